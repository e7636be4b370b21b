"""longspan for PyTorch: exact attention, whole or as one rank of a process group."""

from longspan.torch._attention import attention
from longspan.torch._engine import Engine, engine_of
from longspan.torch._plan import Plan

__all__ = ["Engine", "Plan", "attention", "engine_of"]
