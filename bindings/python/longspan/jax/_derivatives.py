"""Derivatives that are not computed."""

from collections.abc import Callable

import jax

from longspan._errors import Unsupported


def underived(run: Callable) -> Callable:
    """``run``, a derivative or something with one of its own, with an error for who derives it."""
    guarded = jax.custom_jvp(run)

    @guarded.defjvp
    def refuse(_primals, _tangents):
        raise Unsupported(
            "second derivatives of attention (hessian, grad of grad) are not computed; stop the "
            "gradient of its output (jax.lax.stop_gradient), or take first derivatives alone"
        )

    return guarded
