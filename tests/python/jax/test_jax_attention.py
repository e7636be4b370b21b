"""One device against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_oracle import Terms
from jax_scene import Scene

from longspan.jax import attention

SINKS = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
SLOPES = np.array([0.5, 0.1, 0.0, 0.02], np.float32)
CROSS = {"lengths": (20, 24), "kv_lengths": (33, 17)}

SCENES = {
    "plain": Scene(),
    "f64": Scene(dtype="float64", terms=Terms(causal=True)),
    "f16": Scene(dtype="float16", terms=Terms(causal=True)),
    "bf16": Scene(dtype="bfloat16", terms=Terms(causal=True)),
    "bf16 long": Scene(lengths=(200,), dtype="bfloat16"),
    "causal": Scene(terms=Terms(causal=True)),
    "top left": Scene(**CROSS, terms=Terms(causal=True, align="top_left")),
    "bottom right": Scene(**CROSS, terms=Terms(causal=True, align="bottom_right")),
    "window": Scene(terms=Terms(window=(5, 3))),
    "window bottom right": Scene(**CROSS, terms=Terms(window=(9, 0), align="bottom_right")),
    "prefix": Scene(terms=Terms(causal=True, prefix=(3, 9))),
    "chunk": Scene(terms=Terms(causal=True, chunk=7)),
    "softcap": Scene(terms=Terms(softcap=1.5, scale=0.7)),
    "alibi": Scene(slopes=True, terms=Terms(causal=True)),
    "alibi slopes": Scene(slopes=SLOPES),
    "dim_v": Scene(dims=(16, 24)),
    "one head": Scene(heads=(1, 1)),
    "mqa": Scene(heads=(6, 1)),
    "sbhd": Scene(layout="sbhd", terms=Terms(causal=True)),
    "lengths": Scene(lengths=(20, 0, 7), padded=24, poison=True),
    "kv lengths": Scene(lengths=(20, 5), kv_lengths=(0, 21), padded=24, layout="sbhd", poison=True),
    "packed": Scene(lengths=(13, 0, 21, 1), layout="thd", terms=Terms(causal=True)),
    "packed cross": Scene(lengths=(13, 0, 21), kv_lengths=(5, 9, 0), layout="thd"),
    "sinks": Scene(sinks=SINKS, terms=Terms(causal=True)),
    "sinks, no key": Scene(lengths=(9, 4), kv_lengths=(6, 0), padded=9, sinks=SINKS),
    "off by one": Scene(sinks="off_by_one"),
    "bias 11": Scene(bias=(1, 1, 24, 24)),
    "bias b1": Scene(bias=(2, 1, 24, 24)),
    "bias 1h": Scene(bias=(1, 4, 24, 24), terms=Terms(causal=True)),
    "bias bh": Scene(bias=(2, 4, 24, 24), dtype="bfloat16"),
    "bias 111s": Scene(bias=(1, 1, 1, 24)),
    "dropout": Scene(key=jax.random.key(3), terms=Terms(causal=True, dropout=0.3)),
}


@pytest.mark.parametrize("name", SCENES)
def test_results(name):
    SCENES[name].check()


def test_empty_batch_of_keys_gives_zeros():
    scene = Scene(lengths=(8,), kv_lengths=(0,), padded=8)
    results = scene.results()
    assert not results["o"].any() and not results["dq"].any()
    assert np.isneginf(results["lse"]).all() and np.isneginf(results["max_logit"]).all()


def test_dropout_replays_by_key():
    scene = Scene()
    q, k, v = scene.arrays()
    run = jax.jit(lambda key: attention(q, k, v, dropout=0.5, dropout_key=key))
    step = jax.random.fold_in(jax.random.key(0), 1)
    first = run(step)
    assert (first == run(step)).all()
    assert (first != run(jax.random.fold_in(jax.random.key(0), 2))).any()
    legacy = attention(q, k, v, dropout=0.5, dropout_key=jax.random.PRNGKey(4))
    assert (legacy == run(jax.random.key(4))).all()


def test_lse_and_largest_logit_have_no_gradient():
    scene = Scene()
    q, k, v = scene.arrays()

    def total(q):
        _, lse, largest = attention(q, k, v, return_lse=True, return_max_logit=True)
        return lse.sum() + largest.sum()

    assert not jax.grad(total)(q).any()


def test_single_results():
    scene = Scene()
    q, k, v = scene.arrays()
    o, lse = attention(q, k, v, return_lse=True)
    assert o.shape == q.shape and lse.shape == q.shape[:3] and lse.dtype == jnp.float32
    o, largest = attention(q, k, v, return_max_logit=True)
    assert largest.shape == (4,)
    assert attention(q, k, v).dtype == q.dtype
