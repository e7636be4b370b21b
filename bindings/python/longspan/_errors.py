"""The error codes of the library as exceptions."""

import tvm_ffi


class Error(RuntimeError):
    """What longspan raises. ``code`` is the name of the library's error code."""

    code = "internal"


class InvalidArgument(Error, ValueError):
    """A value that cannot be; the message names it, the limit and the remedy."""

    code = "invalid_argument"


class Unsupported(Error):
    """Nobody offers the problem; the message has all declines."""

    code = "unsupported"


class GuardFailed(Error):
    """A promise about values on the device did not hold; the outputs of that call are NaN."""

    code = "guard_failed"


class PeerLost(Error):
    """Another rank died, gave up or did not answer within the deadline."""

    code = "peer_lost"


class TimedOut(Error, TimeoutError):
    code = "timeout"


class OutOfMemory(Error, MemoryError):
    code = "out_of_memory"


class DriverError(Error):
    """CUDA, cuDNN, NCCL or MPI reported an error."""

    code = "driver"


class InternalError(Error):
    code = "internal"


for _kind in (
    InvalidArgument, Unsupported, GuardFailed, PeerLost, TimedOut, OutOfMemory, DriverError,
    InternalError,
):
    tvm_ffi.register_error(f"longspan.{_kind.code}", _kind)
