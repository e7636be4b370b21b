"""Prepares kernels of FlashAttention-4 and FROST ahead of time, on a machine with or without a GPU.

``prepare`` fills a store: a folder that longspan's provider ``prepared`` runs kernels from, without
Python. As a program: ``python -m longspan.prepare --out DIR --for "PROBLEM"``.
"""

from ._builds import Build, builds_of
from ._store import Refused, prepare

__all__ = ["Build", "Refused", "builds_of", "prepare"]
