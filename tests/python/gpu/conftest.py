"""Paths of the oracles, and an environment for GPUs that several processes use at once."""

import os
import pathlib
import sys

_HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(_HERE), *(str(_HERE.parent / name) for name in ("", "jax"))]
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # ranks that share a GPU
# Command buffers of one command: those of a small test, too.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_gpu_graph_min_graph_size=1"
)
