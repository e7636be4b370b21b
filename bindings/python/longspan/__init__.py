"""Exact attention over sequences that span many devices.

``longspan.torch`` and ``longspan.jax`` are the front ends. What stands here is common to them: the
problem text, engine options, what would run and why, and errors.
"""

from longspan._errors import (
    DriverError,
    Error,
    GuardFailed,
    InternalError,
    InvalidArgument,
    OutOfMemory,
    PeerLost,
    TimedOut,
    Unsupported,
)
from longspan._libraries import set_prepared_store
from longspan._native import version as _version
from longspan._options import Options
from longspan._problem import canonical_problem, problem_text
from longspan._reports import explain, schedule, simulate, support

__version__ = _version()

__all__ = [
    "DriverError",
    "Error",
    "GuardFailed",
    "InternalError",
    "InvalidArgument",
    "Options",
    "OutOfMemory",
    "PeerLost",
    "TimedOut",
    "Unsupported",
    "canonical_problem",
    "explain",
    "problem_text",
    "schedule",
    "set_prepared_store",
    "simulate",
    "support",
]
