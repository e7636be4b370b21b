"""jit, vmap, grad, checkpoint and what they make of each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_oracle import Terms, relative_rms
from jax_scene import Scene

from longspan.jax import attention

CAUSAL = Scene(terms=Terms(causal=True))
SINKS = jnp.array([0.5, -1.0, 2.0, 0.0])


def stacked(n: int, *arrays):
    """n different variants of each array."""
    return [jnp.stack([x * (1 + 0.1 * i) for i in range(n)]) for x in arrays]


def same(got, want) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert relative_rms(a, b) <= 2e-6


def loss(q, k, v, **options):
    return (attention(q, k, v, **options) ** 2).sum()


def gradients(q, k, v, **options):
    return jax.grad(lambda *x: loss(*x, **options), argnums=(0, 1, 2))(q, k, v)


def test_jit_compiles_once():
    traces = 0

    @jax.jit
    def step(q, k, v):
        nonlocal traces
        traces += 1
        return gradients(q, k, v, causal=True)

    q, k, v = CAUSAL.arrays()
    want = step(q, k, v)
    for factor in (2, 3):
        step(q * factor, k, v)
    assert traces == 1
    same(want, gradients(q, k, v, causal=True))


FOLDING = {
    "bshd": {},
    "sbhd": {"layout": "sbhd"},
    "lengths": {"lengths": (9, 24)},
    "off_by_one": {"sinks": "off_by_one"},
    "softcap, window": {"softcap": 2.0, "window": (3, 0)},
}
ONE_BY_ONE = {
    "sinks": {"sinks": SINKS},
    "dropout": {"dropout": 0.4, "dropout_key": jax.random.key(1)},
}


@pytest.mark.parametrize("name", [*FOLDING, *ONE_BY_ONE])
def test_vmap_is_a_loop(name):
    options = {**FOLDING, **ONE_BY_ONE}[name]
    scene = Scene(layout=options.get("layout", "bshd"))
    arrays = stacked(3, *scene.arrays())
    run = lambda *x: gradients(*x, causal=True, **options)
    same(jax.jit(jax.vmap(run))(*arrays), jax.lax.map(lambda x: run(*x), tuple(arrays)))


@pytest.mark.parametrize("name, calls", [*((name, 1) for name in FOLDING),
                                         *((name, 3) for name in ONE_BY_ONE)])
def test_vmap_folds_where_it_can(name, calls):
    options = {**FOLDING, **ONE_BY_ONE}[name]
    scene = Scene(layout=options.get("layout", "bshd"))
    arrays = stacked(3, *scene.arrays())
    text = jax.jit(jax.vmap(lambda *x: attention(*x, **options))).lower(*arrays).as_text()
    assert text.count("@longspan_forward") == 1
    assert ("while" in text) == (calls > 1)


def test_vmap_of_packed_sequences():
    scene = Scene(lengths=(5, 0, 9), layout="thd")
    arrays = stacked(3, *scene.arrays())
    run = lambda *x: gradients(*x, causal=True, layout="thd", cu_seqlens=(0, 5, 5, 14))
    same(jax.vmap(run)(*arrays), jax.lax.map(lambda x: run(*x), tuple(arrays)))


def test_vmap_over_keys_alone_and_nested():
    q, k, v = CAUSAL.arrays()
    ks, vs = stacked(3, k, v)
    got = jax.vmap(lambda k, v: attention(q, k, v))(ks, vs)
    same(got, jnp.stack([attention(q, ks[i], vs[i]) for i in range(3)]))
    twice = jax.vmap(jax.vmap(lambda k, v: attention(q, k, v)))
    same(twice(ks[None], vs[None]), got[None])


@pytest.mark.parametrize("shape", [(2, 1, 24, 24), (1, 4, 24, 24)])
def test_vmap_with_bias(shape):
    q, k, v = CAUSAL.arrays()
    biases = jnp.asarray(np.random.default_rng(0).standard_normal((3, *shape)), jnp.float32)
    run = jax.grad(lambda q, bias: (attention(q, k, v, bias=bias) ** 2).sum(), argnums=(0, 1))
    got = jax.vmap(run, in_axes=(None, 0))(q, biases)
    parts = [run(q, bias) for bias in biases]
    same(got, jax.tree.map(lambda *x: jnp.stack(x), *parts))


def test_gradient_through_vmap():
    q, k, v = CAUSAL.arrays()
    queries = stacked(3, q)[0]
    total = lambda k: (jax.vmap(lambda q: attention(q, k, v))(queries) ** 2).sum()
    want = sum(jax.grad(lambda k: loss(queries[i], k, v))(k) for i in range(3))
    same(jax.grad(total)(k), want)


def test_checkpoint():
    q, k, v = CAUSAL.arrays()
    layer = jax.checkpoint(lambda q: attention(q, k, v, causal=True, sinks=SINKS))
    got = jax.jit(jax.grad(lambda q: (layer(layer(q)) ** 2).sum()))(q)
    plain = lambda q: attention(q, k, v, causal=True, sinks=SINKS)
    same(got, jax.grad(lambda q: (plain(plain(q)) ** 2).sum())(q))


def test_forward_of_several_before_their_backward():
    q, k, v = CAUSAL.arrays()
    runs = [jax.vjp(lambda q: attention(q * n, k, v), q) for n in (1, 2)]
    for n, (o, back) in zip((1, 2), runs):
        same(back(o)[0], jax.vjp(lambda q: attention(q * n, k, v), q)[1](o)[0])


def test_scan_over_layers():
    q, k, v = CAUSAL.arrays()
    ks, vs = stacked(3, k, v)
    step = lambda q, kv: (attention(q, *kv, causal=True), None)
    got = jax.grad(lambda q: jax.lax.scan(step, q, (ks, vs))[0].sum())(q)

    def unrolled(q):
        for i in range(3):
            q = attention(q, ks[i], vs[i], causal=True)
        return q.sum()

    same(got, jax.grad(unrolled)(q))


def test_four_devices_at_once():
    """Handlers run on threads of their own."""
    q, k, v = (jnp.concatenate([x] * 4) for x in CAUSAL.arrays())
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("data")
    run = jax.shard_map(lambda *x: attention(*x, causal=True), mesh=mesh, in_specs=spec,
                        out_specs=spec)
    step = jax.jit(jax.value_and_grad(lambda *x: (run(*x) ** 2).sum(), argnums=(0, 1, 2)))
    want = jax.value_and_grad(lambda *x: loss(*x, causal=True), argnums=(0, 1, 2))(q, k, v)
    for _ in range(5):
        same(step(q, k, v), want)
