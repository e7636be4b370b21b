"""Loads the library of XLA handlers, registers them, and asks it what it will do."""

import ctypes
import functools
import json
import os
import pathlib

import jax

from longspan import _errors

_PATH = pathlib.Path(__file__).parent.parent / "longspan_xla.so"
_HANDLERS = ("forward", "backward", "attend", "attend_backward")
_PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}  # suffix of the symbol: XLA's name
_HOST = -1
_ERRORS = {kind.code: kind for kind in _errors.Error.__subclasses__()}


def _load() -> ctypes.CDLL:
    if not _PATH.exists():
        raise ImportError(
            f"{_PATH} is missing: longspan was built without the headers of XLA's FFI. Run "
            "scripts/setup.sh, which gets them, then `pip install .` in the root of longspan's "
            "sources."
        )
    library = ctypes.CDLL(str(_PATH))
    for name in ("describe", "record", "shards", "set_prepared_store"):
        getattr(library, f"longspan_xla_{name}").restype = ctypes.c_void_p
    library.longspan_xla_free.argtypes = [ctypes.c_void_p]
    for handler in _HANDLERS:
        for suffix, platform in _PLATFORMS.items():
            symbol = getattr(library, f"longspan_xla_{handler}_{suffix}")
            jax.ffi.register_ffi_target(
                f"longspan_{handler}", jax.ffi.pycapsule(symbol), platform=platform
            )
    return library


_library = _load()


def _answer(address: int) -> dict:
    try:
        answer = json.loads(ctypes.string_at(address))
    finally:
        _library.longspan_xla_free(address)
    if "error" in answer:
        raise _ERRORS[answer["error"]["code"]](answer["error"]["message"])
    return answer


def set_prepared_store(folder: str | os.PathLike) -> None:
    """As ``longspan.set_prepared_store``, for calls from JAX: their library is one of its own."""
    _answer(_library.longspan_xla_set_prepared_store(os.fspath(folder).encode()))


def _ordinal() -> int:
    backend = jax.default_backend()
    if backend == "cpu":
        return _HOST
    if backend in ("gpu", "cuda"):
        return 0
    raise _errors.Unsupported(
        f"the backend of JAX is {backend}; longspan has handlers for cpu and cuda"
    )


@functools.lru_cache(maxsize=1024)
def _described(problem: str, request: str, ordinal: int) -> dict:
    return _answer(_library.longspan_xla_describe(problem.encode(), request.encode(), ordinal))


def describe(problem: str, request: str) -> dict:
    """What bindings/python/native/xla/describe.h says; errors of longspan."""
    return _described(problem, request, _ordinal())


@functools.lru_cache(maxsize=1024)
def _recorded(problem: str, request: str, ordinal: int) -> dict:
    return _answer(_library.longspan_xla_record(problem.encode(), request.encode(), ordinal))


def record(problem: str, request: str) -> dict:
    """As describe: a request as a plan."""
    return _recorded(problem, request, _ordinal())


@functools.lru_cache(maxsize=1024)
def shards(problem: str, request: str) -> dict:
    """The rows of all ranks; as describe."""
    return _answer(_library.longspan_xla_shards(problem.encode(), request.encode()))
