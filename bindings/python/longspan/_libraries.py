"""Where libraries and stores of others are."""

import os

from longspan import _native


def set_prepared_store(folder: str | os.PathLike) -> None:
    """Names the store that ``longspan prepare`` made: the provider ``prepared`` runs its kernels.
    JAX has a library of its own, and ``longspan.jax.set_prepared_store``.

    Raises:
        longspan.InvalidArgument: the folder is no store, or another one is in use already.
        longspan.Unsupported: the store has a file that this version cannot use, or longspan was
            built without the provider.
    """
    _native.set_prepared_store(os.fspath(folder))
