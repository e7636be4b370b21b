"""Peers on one GPU."""

import torch
import torch.nn.functional as functional
from peer import AutogradPeer, Peer, left_window, need, need_plain
from torch.nn.attention import SDPBackend, sdpa_kernel


class HeadsFirst:
    """Tensors are [batch, heads, length, dim]."""

    def rows(self, tensor):
        return tensor.transpose(1, 2).flatten(0, 1)


def heads_first(inputs):
    return [inputs.batched(t).transpose(1, 2) for t in (inputs.q, inputs.k, inputs.v, inputs.dout)]


class HeadsFirstAutograd(HeadsFirst, AutogradPeer):
    pass


class SdpaPeer(HeadsFirstAutograd):
    """torch's scaled_dot_product_attention by one backend; heads before tokens."""

    def __init__(self, inputs, backend):
        problem = inputs.problem
        need_plain(problem)

        def attention(q, k, v):
            with sdpa_kernel([backend]):
                return functional.scaled_dot_product_attention(
                    q, k, v, is_causal=problem.causal,
                    enable_gqa=problem.heads_q != problem.heads_kv)

        super().__init__(attention, *heads_first(inputs))


def torch_sdpa_cudnn(inputs):
    return SdpaPeer(inputs, SDPBackend.CUDNN_ATTENTION)


def torch_sdpa_flash(inputs):
    return SdpaPeer(inputs, SDPBackend.FLASH_ATTENTION)


def fa4(inputs):
    """FlashAttention-4: tokens before heads, the diagonal ends bottom right."""
    from flash_attn.cute import flash_attn_func

    problem = inputs.problem
    need_plain(problem, window=True)
    need(max(problem.dim, problem.dim_v) <= 256, "dims up to 256")
    left = left_window(problem)
    mask = {"causal": problem.causal} if left is None else {"window_size": (left, 0)}

    def attention(q, k, v):
        return flash_attn_func(q, k, v, return_lse=True, **mask)[0]

    views = (inputs.batched(t) for t in (inputs.q, inputs.k, inputs.v, inputs.dout))
    return AutogradPeer(attention, *views)



def ffpa(inputs):
    """ffpa-attn's public call, its copies between layouts included."""
    from ffpa_attn import ffpa_attn_func

    problem = inputs.problem
    need_plain(problem)
    need(problem.dim == problem.dim_v > 256, "one dim above 256: below it runs torch's own")

    def attention(q, k, v):
        return ffpa_attn_func(q, k, v, is_causal=problem.causal, backend="cutedsl",
                              enable_gqa=problem.heads_q != problem.heads_kv)

    return HeadsFirstAutograd(attention, *heads_first(inputs))


class FrostPeer(HeadsFirst, Peer):
    """cuDNN frontend's FROST forward; it has no backward on Hopper."""

    def __init__(self, inputs):
        from cudnn.sdpa.fwd import sdpa_fwd_wrapper_dsl_sm90

        problem = inputs.problem
        need_plain(problem, window=True)
        need(256 < problem.dim <= 512, "dims from 257 to 512")
        self.run = sdpa_fwd_wrapper_dsl_sm90
        self.views = heads_first(inputs)[:3]
        self.mask = {"is_causal": problem.causal, "window_size_left": left_window(problem)}

    def forward(self):
        self.o = self.run(*self.views, **self.mask)["o_tensor"]

    def backward(self):
        need(False, "forward alone")


class CublasPeer(Peer):
    """The yardstick: a bf16 product of 8192 x 8192 matrices by torch.mm."""

    def __init__(self, _inputs):
        side = 8192
        self.a, self.b = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16)
                          for _ in range(2))
        self.out = torch.empty_like(self.a)

    def forward(self):
        torch.mm(self.a, self.b, out=self.out)

    def results(self):
        return {}


ONE_GPU = {
    "torch_sdpa_cudnn": torch_sdpa_cudnn,
    "torch_sdpa_flash": torch_sdpa_flash,
    "fa4": fa4,
    "ffpa": ffpa,
    "frost": FrostPeer,
    "cublas": CublasPeer,
}
FORWARD_ONLY = ("frost", "cublas")
