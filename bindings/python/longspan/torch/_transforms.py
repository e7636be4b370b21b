"""Attention under torch.func: grad, vjp, jacrev and vmap, in any order."""

import torch

from longspan._errors import InvalidArgument, Unsupported
from longspan.torch._calls import run_backward, run_forward


transforming = torch._C._are_functorch_transforms_active


def refuse_tangents(*_) -> None:
    raise Unsupported(
        "forward-mode derivatives (jvp, jacfwd, dual numbers) of attention are not computed; use "
        "grad, vjp or jacrev"
    )


def _one_by_one(apply, info, in_dims, arguments):
    """A vmap is a call for each: the plan is of one of them, and ranks stay in step."""
    dims = [dim if isinstance(dim, int) else None for dim in in_dims]
    inner = [dim for dim in in_dims if not isinstance(dim, int)]
    if any(dim is not None for dim in torch.utils._pytree.tree_leaves(inner)):
        raise InvalidArgument(
            "vmap over actual_lengths or actual_kv_lengths; give lengths that all calls share"
        )
    if info.batch_size == 0:
        raise InvalidArgument("vmap over 0 calls of attention; leave the call out")
    calls = [
        apply(*(x if dim is None else x.select(dim, i) for x, dim in zip(arguments, dims)))
        for i in range(info.batch_size)
    ]
    results = [None if each[0] is None else torch.stack(each) for each in zip(*calls)]
    return tuple(results), tuple(None if result is None else 0 for result in results)


def refuse_second_derivatives(*_) -> None:
    raise Unsupported(
        "second derivatives of attention (create_graph=True, hessian) are not computed; detach its "
        "output, or take first derivatives alone"
    )


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(run, *arguments):
        return run(*arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(refuse_second_derivatives)
    jvp = staticmethod(refuse_tangents)

    @staticmethod
    def vmap(info, in_dims, *arguments):
        return _one_by_one(Backward.apply, info, in_dims, arguments)


def backward(run, plan, dout, *arguments):
    """The gradients that `run` computes of dout and what forward kept. Where somebody wants more of
    them than values (their graph, or a vmap of them) they are outputs of a function that says what
    it has not."""
    if torch.is_grad_enabled() or transforming():
        return Backward.apply(run, plan, dout, *arguments)
    if not torch._C._has_storage(dout):
        raise Unsupported(
            "several gradients at once (is_grads_batched=True, jacobian(vectorize=True)) of "
            "attention are not computed; use torch.func.jacrev, or vmap of torch.func.vjp"
        )
    return run(plan, dout, *arguments)


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(plan, values, q, k, v, sinks, bias, slopes):
        return run_forward(plan, q, k, v, sinks, bias, slopes, values)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.plan, ctx.values, q, k, v, sinks, bias, slopes = inputs
        o, lse, max_logit, saved = output
        ctx.mark_non_differentiable(*(t for t in (lse, max_logit, saved) if t is not None))
        ctx.save_for_backward(q, k, v, o, lse, saved, sinks, bias, slopes)

    @staticmethod
    def backward(ctx, dout, *_):
        if ctx.plan.backward is None:
            raise Unsupported("the plan is for forward alone (backward='none')")
        gradients = Backward.apply(
            run_backward, ctx.plan, dense(dout), *ctx.saved_tensors, ctx.values
        )
        return (None, None, *gradients, None)

    jvp = staticmethod(refuse_tangents)

    @staticmethod
    def vmap(info, in_dims, *arguments):
        return _one_by_one(_Forward.apply, info, in_dims, arguments)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """As the library takes it: values that lie together along dim, in rows that do not overlap."""
    tensor = tensor.resolve_neg()
    if tensor.is_contiguous():
        return tensor
    *rows, values = tensor.stride()
    return tensor if values == 1 and min(rows) >= tensor.shape[-1] else tensor.contiguous()


def attend(plan, q, k, v, sinks, bias, slopes, values):
    """o, lse and max_logit."""
    return _Forward.apply(plan, values, q, k, v, sinks, bias, slopes)[:3]
