"""longspan.jax on one GPU against float64, and inside XLA's command buffers."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_oracle import GPU_BARS, Terms, relative_rms
from jax_scene import Scene

from longspan.jax import attention

SINKS = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
CAUSAL = Terms(causal=True)
WIDE = {"dims": (64, 64), "lengths": (130, 130)}

SCENES = {
    "f32": Scene(terms=CAUSAL),
    "f16": Scene(**WIDE, dtype="float16", terms=CAUSAL),
    "bf16": Scene(**WIDE, dtype="bfloat16", terms=CAUSAL),
    "bf16 window": Scene(**WIDE, dtype="bfloat16", terms=Terms(causal=True, window=(40, 0))),
    "bf16 packed": Scene(dims=(64, 64), lengths=(70, 0, 129, 1), layout="thd", dtype="bfloat16",
                         terms=CAUSAL),
    "bf16 lengths": Scene(dims=(64, 64), lengths=(70, 0, 129), padded=130, dtype="bfloat16",
                          poison=True),
    "f16 mqa": Scene(**WIDE, heads=(6, 1), dtype="float16"),
    "bottom right": Scene(lengths=(20, 24), kv_lengths=(33, 17),
                          terms=Terms(causal=True, align="bottom_right")),
    "sbhd": Scene(layout="sbhd", terms=CAUSAL),
    "softcap": Scene(terms=Terms(softcap=1.5, scale=0.7)),
    "alibi": Scene(slopes=True, terms=CAUSAL),
    "sinks": Scene(sinks=SINKS, terms=CAUSAL),
    "bias": Scene(bias=(1, 4, 24, 24), terms=CAUSAL),
    "dropout": Scene(key=jax.random.key(3), terms=Terms(causal=True, dropout=0.3)),
}


def inputs(dtype=jnp.bfloat16, seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = (2, 130, 4, 64), (2, 130, 2, 64), (2, 130, 2, 64)
    return [jax.random.normal(key, shape, dtype) for key, shape in zip(keys, shapes)]


def loss(q, k, v, **options):
    return (attention(q, k, v, **options).astype(jnp.float32) ** 2).sum()


def gradients(q, k, v, **options):
    return jax.grad(lambda *x: loss(*x, **options), argnums=(0, 1, 2))(q, k, v)


def same(got, want, bar=1e-6) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert relative_rms(a, b) <= bar


@pytest.mark.parametrize("name", SCENES)
def test_results(name):
    SCENES[name].check(bars=GPU_BARS)


@pytest.mark.parametrize("name", ["f32", "bf16", "bf16 packed", "dropout"])
def test_results_of_compiled_programs(name):
    scene = SCENES[name]
    scene.check(jax.jit(scene.call), bars=GPU_BARS)


def test_vmap():
    q, k, v = (jnp.stack([x, 2 * x, -x]) for x in inputs())
    run = lambda *x: attention(*x, causal=True)  # noqa: E731
    want = jnp.stack([run(*x) for x in zip(q, k, v)])
    same(jax.jit(jax.vmap(run))(q, k, v), want)


def test_dropout_replays_by_key():
    q, k, v = inputs(jnp.float32)
    run = jax.jit(lambda key: attention(q, k, v, dropout=0.5, dropout_key=key))
    first = run(jax.random.key(1))
    assert (first == run(jax.random.key(1))).all()
    assert (first != run(jax.random.key(2))).any()


def test_checkpoint():
    x = inputs()
    again = jax.checkpoint(lambda *x: loss(*x, causal=True))
    same(jax.jit(jax.grad(again, argnums=(0, 1, 2)))(*x), gradients(*x, causal=True))


IN_BUFFERS = {
    "bf16": (jnp.bfloat16, {"causal": True}),
    "f32": (jnp.float32, {"softcap": 2.0}),
}


@pytest.mark.parametrize("name", IN_BUFFERS)
def test_what_xla_captures_takes_new_data(name):
    dtype, options = IN_BUFFERS[name]

    def step(q, k, v):
        dq, dk, dv = gradients(q * 2, k, v, **options)
        return dq + 1, dk * 2, dv - 1

    compiled = jax.jit(step).lower(*inputs(dtype)).compile()
    for seed in range(6):
        x = inputs(dtype, seed)
        same(compiled(*x), step(*x), GPU_BARS[jnp.dtype(dtype).name][0])


def test_what_xla_captures_takes_new_dropout_keys():
    """Keys are data of the graph: a replay with another key drops others."""
    x = inputs(jnp.float32)

    def step(key):
        return gradients(*x, dropout=0.3, dropout_key=key)

    compiled = jax.jit(step)
    for seed in (1, 2, 1, 3, 1):
        same(compiled(jax.random.key(seed)), step(jax.random.key(seed)))


STEP = """
import jax, jax.numpy as jnp
from longspan.jax import attention

def loss(q, k, v):
    return (attention(q, k, v, causal=True).astype(jnp.float32) ** 2).sum()

x = [jnp.ones((2, 130, heads, 64), jnp.bfloat16) for heads in (4, 2, 2)]
jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*x)[0].block_until_ready()
"""


def test_both_calls_are_in_one_command_buffer(tmp_path):
    """XLA's list of what it launches: what a command buffer holds stands indented below it."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    subprocess.run([sys.executable, "-c", STEP], env={**os.environ, "XLA_FLAGS": flags}, check=True)
    launches, = tmp_path.glob("*jit_loss.thunk_sequence_after_thunk_passes.txt")
    calls = [line for line in launches.read_text().splitlines() if "kCustomCall" in line]
    assert len(calls) == 2
    assert all(line.startswith("    ") for line in calls), launches.read_text()
