"""Loads the native library. Its functions are called with and return plain values and handles."""

import importlib.metadata
import pathlib

import tvm_ffi

import longspan._errors  # noqa: F401  (registers what the functions raise)

_PATH = pathlib.Path(__file__).with_name("longspan_native.so")


def _load():
    if not _PATH.exists():
        raise ImportError(
            f"{_PATH} is missing: the package was not installed. Run `pip install .` in the root "
            "of longspan's sources."
        )
    module = tvm_ffi.load_module(str(_PATH))
    native = module.version()
    try:
        package = importlib.metadata.version("longspan")
    except importlib.metadata.PackageNotFoundError:
        return module  # run from a build tree
    if native != package:
        raise ImportError(
            f"the native library {_PATH} is version {native}, the Python package {package}; "
            "install longspan again: pip install --force-reinstall ."
        )
    return module


_module = _load()

version = _module.version
canonical_problem = _module.canonical_problem
report = _module.report
set_prepared_store = _module.set_prepared_store
threads_communicators = _module.threads_communicators
callback_communicator = _module.callback_communicator
peer_communicator = _module.peer_communicator
nccl_communicator = _module.nccl_communicator
make_engine = _module.make_engine
prepare = _module.prepare
load = _module.load
plan_bytes = _module.plan_bytes
describe = _module.describe
forward = _module.forward
forward_plain = _module.forward_plain
backward = _module.backward
backward_plain = _module.backward_plain
synchronize = _module.synchronize
counters = _module.counters
shard_shape = _module.shard_shape
shard_indices = _module.shard_indices
shard_positions = _module.shard_positions
shard_inverse = _module.shard_inverse
