"""Which rows devices hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.jax import Plan

PARTITIONS = ("contiguous", "zigzag", "striped")


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("seq", [64, 37, 3, 1])
def test_dense_round_trip(partition, seq):
    plan = Plan(4, seq=seq, partition=partition)
    x = jnp.arange(2.0 * seq).reshape(2, seq)
    cut = plan.shard(x)
    assert cut.shape == (2, 4 * plan.rows())
    np.testing.assert_array_equal(plan.unshard(cut), x)
    held = plan.indices()
    assert sorted(held[held >= 0]) == list(range(4 * plan.rows()))


@pytest.mark.parametrize("partition", [*PARTITIONS, "balanced"])
def test_packed_round_trip(partition):
    cumulative = np.array([0, 13, 13, 34, 35])
    plan = Plan(4, cu_seqlens=cumulative, partition=partition, causal=True)
    x = jnp.arange(35.0)[:, None] + 1
    cut = plan.shard(x)
    assert cut.shape == (4 * plan.rows(), 1)
    np.testing.assert_array_equal(plan.unshard(cut), x)
    held = plan.indices()
    assert not np.asarray(cut)[held < 0].any()
    assert sorted(held[held >= 0]) == list(range(35))
    starts = np.repeat(cumulative[:-1], np.diff(cumulative))
    tokens = held[held >= 0]
    np.testing.assert_array_equal(plan.positions()[held >= 0], tokens - starts[tokens])


def test_zigzag_pairs_early_with_late():
    plan = Plan(2, seq=8, partition="zigzag")
    assert plan.indices().tolist() == [0, 1, 6, 7, 2, 3, 4, 5]
    assert plan.positions().tolist() == plan.indices().tolist()


def test_automatic_choice():
    assert Plan(4, seq=1024, causal=True).partition == "zigzag"
    assert Plan(4, seq=1024).partition == "contiguous"
    plan = Plan(4, cu_seqlens=range(0, 800, 8), causal=True)
    assert plan.partition == "balanced" and plan.reason


def test_gradient_of_shard():
    plan = Plan(4, seq=10, partition="zigzag")
    weights = jnp.arange(4.0 * plan.rows())
    got = jax.grad(lambda x: (plan.shard(x, axis=0) * weights).sum())(jnp.zeros(10))
    np.testing.assert_array_equal(got, plan.unshard(weights, axis=0))


def test_arguments():
    plan = Plan(4, seq=10, causal=True, window=(4, 0), prefix=(3,))
    assert plan.arguments(batch=2) == {
        "partition": "zigzag", "causal": True, "window": (4, 0), "lengths": (10, 10),
        "kv_lengths": (10, 10), "prefix": (3, 3),
    }
    packed = Plan(4, cu_seqlens=(0, 4, 9), partition="striped").arguments()
    assert packed == {"partition": "striped", "layout": "thd", "cu_seqlens": (0, 4, 9),
                      "cu_seqlens_kv": None}
