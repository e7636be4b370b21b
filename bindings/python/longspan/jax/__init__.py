"""Attention for JAX: on one device, and inside ``shard_map`` over a mesh axis.

``attention`` computes; ``Plan`` says which rows each device of an axis holds, ``CallPlan`` also
what is computed by whom, as bytes too. The guide is docs/guides/jax.md.
"""

from longspan.jax._attention import attention
from longspan.jax._call_plan import CallPlan
from longspan.jax._library import set_prepared_store
from longspan.jax._plan import Plan

__all__ = ["CallPlan", "Plan", "attention", "set_prepared_store"]
