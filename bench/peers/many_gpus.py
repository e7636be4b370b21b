"""Peers over several GPUs: one process a rank, the default process group over them all."""

import contextlib
import os

import torch
import torch.distributed as distributed
import torch.nn.functional as functional
from one_gpu import HeadsFirst, heads_first
from peer import AutogradPeer, left_window, need, need_plain
from torch.nn.attention import SDPBackend, sdpa_kernel


def head_and_tail(lengths, ranks, rank):
    """Tokens of a rank: of each sequence pieces r and 2N-1-r of 2N, so causal work is equal."""
    tokens, first = [], 0
    for length in lengths:
        need(length > 0 and length % (2 * ranks) == 0, f"lengths divisible by {2 * ranks}")
        pieces = torch.arange(first, first + length, device="cuda").chunk(2 * ranks)
        tokens += [pieces[rank], pieces[2 * ranks - 1 - rank]]
        first += length
    return torch.cat(tokens)


def packed_arguments(lengths):
    """What TransformerEngine takes beside packed tensors."""
    ends = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32).cuda()
    names = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
    return {**dict.fromkeys(names, ends), "max_seqlen_q": max(lengths),
            "max_seqlen_kv": max(lengths)}


class TorchContextParallel(HeadsFirst, AutogradPeer):
    """torch's context_parallel around scaled_dot_product_attention."""

    can_record = False

    def __init__(self, inputs):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel

        problem = inputs.problem
        need_plain(problem)
        need(len(problem.q_lengths) == 1, "one sequence")
        mesh = init_device_mesh("cuda", (distributed.get_world_size(),))
        # The context cuts its buffers in place: of the token numbers it leaves those of this rank.
        tokens = torch.arange(problem.q_lengths[0], device="cuda")[None]
        views = [view.contiguous() for view in heads_first(inputs)]
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(sdpa_kernel([SDPBackend.CUDNN_ATTENTION,
                                              SDPBackend.FLASH_ATTENTION]))
        self.stack.enter_context(context_parallel(
            mesh, buffers=[*views, tokens], buffer_seq_dims=[2, 2, 2, 2, 1]))
        self.tokens = tokens.flatten().clone()

        def attention(q, k, v):
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=problem.causal, enable_gqa=problem.heads_q != problem.heads_kv)

        super().__init__(attention, *(view.clone() for view in views))


# TransformerEngine's own kernels of choice here: cuDNN.
FUSED = {"NVTE_FUSED_ATTN": "1", "NVTE_FLASH_ATTN": "0", "NVTE_UNFUSED_ATTN": "0"}


def mask_name(problem, packed):
    return ("padding_" if packed else "") + ("causal" if problem.causal else "no_mask")


class TransformerEngine(AutogradPeer):
    """TransformerEngine's DotProductAttention; `mode`: p2p, all_gather or a2a."""

    can_record = False

    def __init__(self, inputs, mode):
        for name, value in FUSED.items():
            os.environ.setdefault(name, value)
        import transformer_engine.pytorch as te

        problem = inputs.problem
        need_plain(problem, window=mode != "p2p", packed=True)
        lengths = problem.q_lengths
        packed = self.packed = len(lengths) > 1
        ranks, rank = distributed.get_world_size(), distributed.get_rank()
        self.tokens = head_and_tail(lengths, ranks, rank)
        left = left_window(problem)
        dims = problem.dim if problem.dim == problem.dim_v else (problem.dim, problem.dim_v)
        module = te.DotProductAttention(
            problem.heads_q, dims, num_gqa_groups=problem.heads_kv, attention_dropout=0.0,
            qkv_format="thd" if packed else "bshd", attn_mask_type=mask_name(problem, packed),
            window_size=None if left is None else (left, 0))
        group = distributed.new_group(backend="nccl")
        module.set_context_parallel_group(group, list(range(ranks)), torch.cuda.Stream(), mode)
        self.width = problem.dim_v
        arguments = packed_arguments(lengths) if packed else {}
        views = [t[self.tokens] for t in (inputs.q, inputs.k, inputs.v, inputs.dout.flatten(-2))]
        if not packed:
            views = [view[None] for view in views]
        super().__init__(lambda q, k, v: module(q, k, v, **arguments), *views)

    def rows(self, tensor):
        rows = tensor if self.packed else tensor[0]
        return rows if rows.dim() == 3 else rows.unflatten(-1, (-1, self.width))  # o is flat


MANY_GPUS = {
    "torch_cp": TorchContextParallel,
    "te:p2p": lambda inputs: TransformerEngine(inputs, "p2p"),
    "te:all_gather": lambda inputs: TransformerEngine(inputs, "all_gather"),
    "te:a2a": lambda inputs: TransformerEngine(inputs, "a2a"),
}
