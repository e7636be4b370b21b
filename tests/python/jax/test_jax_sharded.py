"""Over four devices: the same results as on one, for every strategy and partition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from jax_oracle import Terms, check
from jax_scene import Scene, over_mesh

import longspan
from longspan.jax import Plan, attention

RANKS = 4
MESH = jax.make_mesh((RANKS,), ("cp",), axis_types=(jax.sharding.AxisType.Auto,))
SINKS = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
SLOPES = np.array([0.5, 0.1, 0.0, 0.02], np.float32)


over_axis = functools.partial(over_mesh, mesh=MESH)
SCENES = {
    "plain": Scene(),
    "causal": Scene(lengths=(40, 40), terms=Terms(causal=True)),
    "uneven": Scene(lengths=(37, 5), padded=37, terms=Terms(causal=True)),
    "packed": Scene(lengths=(13, 0, 21, 1, 30), layout="thd", terms=Terms(causal=True)),
    "packed cross": Scene(lengths=(13, 0, 21), kv_lengths=(5, 9, 30), layout="thd",
                          terms=Terms(causal=True, align="bottom_right")),
}


@pytest.mark.parametrize("strategy", ["ring", "all_gather"])
@pytest.mark.parametrize("partition", ["contiguous", "zigzag", "striped"])
@pytest.mark.parametrize("name", ["causal", "packed", "uneven"])
def test_partitions(name, partition, strategy):
    SCENES[name].check(over_axis(SCENES[name], partition, strategy=strategy))


@pytest.mark.parametrize("strategy", ["ring", "all_gather"])
@pytest.mark.parametrize("name", ["packed", "packed cross"])
def test_balanced(name, strategy):
    SCENES[name].check(over_axis(SCENES[name], "balanced", strategy=strategy))


FEATURES = {
    "plain": Scene(),
    "f64": Scene(dtype="float64", terms=Terms(causal=True)),
    "f16": Scene(dtype="float16", terms=Terms(causal=True)),
    "bf16": Scene(dtype="bfloat16", terms=Terms(causal=True)),
    "sbhd": Scene(layout="sbhd", terms=Terms(causal=True)),
    "dim_v": Scene(dims=(16, 24)),
    "bottom right": Scene(lengths=(17, 20), kv_lengths=(24, 3), padded=24, poison=True,
                          terms=Terms(causal=True, align="bottom_right")),
    "window": Scene(lengths=(40, 40), terms=Terms(window=(5, 3))),
    "prefix": Scene(lengths=(40, 20), layout="thd", terms=Terms(causal=True, prefix=(9, 3))),
    "chunk": Scene(terms=Terms(causal=True, chunk=7)),
    "softcap": Scene(terms=Terms(softcap=1.5, scale=0.7)),
    "alibi": Scene(slopes=True, terms=Terms(causal=True)),
    "alibi slopes": Scene(slopes=SLOPES),
    "sinks": Scene(sinks=SINKS, terms=Terms(causal=True)),
    "sinks, no key": Scene(lengths=(9, 4, 7), kv_lengths=(6, 0, 9), layout="thd", sinks=SINKS),
    "off by one": Scene(sinks="off_by_one"),
    "bias bh": Scene(bias=(2, 4, 24, 24), terms=Terms(causal=True)),
    "bias 11": Scene(bias=(1, 1, 24, 24)),
    "bias 111s": Scene(bias=(1, 1, 1, 24)),
    "dropout": Scene(key=jax.random.key(3), terms=Terms(causal=True, dropout=0.3)),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features(name):
    FEATURES[name].check(over_axis(FEATURES[name], "zigzag"))


@pytest.mark.parametrize("name", ["sinks", "bias bh", "dropout"])
def test_features_gathered(name):
    FEATURES[name].check(over_axis(FEATURES[name], "striped", strategy="all_gather"))


@pytest.mark.parametrize("name", ["bf16", "sinks", "bias 11"])
def test_without_tracking_of_axes(name):
    FEATURES[name].check(over_axis(FEATURES[name], "zigzag", check_vma=False))


def test_gradient_inside_shard_map():
    scene = Scene(lengths=(40, 40), sinks=SINKS, terms=Terms(causal=True))
    rows = PartitionSpec(None, "cp")

    def gradients(q, k, v, dout, sinks):
        run = lambda *x: attention(*x[:3], sinks=x[3], causal=True, axis_name="cp")
        return jax.vjp(run, q, k, v, sinks)[1](dout)

    sharded = jax.shard_map(gradients, mesh=MESH, in_specs=(rows,) * 4 + (PartitionSpec(),),
                            out_specs=(rows,) * 3 + (PartitionSpec(),))
    dout = jnp.asarray(scene.shaped(scene.dout))
    got = jax.jit(sharded)(*scene.arrays(), dout, jnp.asarray(SINKS))
    want = scene.truth()
    for x, name in zip(got, ("dq", "dk", "dv")):
        np.testing.assert_allclose(scene.rows(x), want[name], atol=1e-5)
    np.testing.assert_allclose(got[3], want["dsinks"], atol=1e-5)


def test_batch_axis_beside():
    """A mesh of data and context axes."""
    mesh = jax.make_mesh((2, 2), ("dp", "cp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    scene = Scene(sinks=SINKS, terms=Terms(causal=True))
    rows = PartitionSpec("dp", "cp")

    def call(q, k, v, sinks, bias):
        body = lambda q, k, v, sinks: attention(q, k, v, sinks=sinks, causal=True, axis_name="cp",
                                                return_lse=True, return_max_logit=True)
        sharded = jax.shard_map(body, mesh=mesh, in_specs=(rows,) * 3 + (PartitionSpec(),),
                                out_specs=(rows, rows, PartitionSpec("dp")))
        o, lse, largest = sharded(q, k, v, sinks)
        return o, (lse, largest.reshape(2, -1).max(0))

    scene.check(jax.jit(call))


def test_vmap_over_shard_map():
    scene = Scene(terms=Terms(causal=True))
    run = over_axis(scene, "zigzag")
    arrays = [jnp.stack([x, 2 * x]) for x in scene.arrays()]
    got = jax.vmap(lambda q, k, v: run(q, k, v, None, None)[0])(*arrays)
    for i in range(2):
        want = run(*(x[i] for x in arrays), None, None)[0]
        np.testing.assert_allclose(got[i], want, atol=1e-6)


def test_checkpoint_inside_shard_map():
    scene = Scene(lengths=(40, 40), terms=Terms(causal=True))
    rows = PartitionSpec(None, "cp")

    def sharded(wrap):
        layer = wrap(lambda q, k, v: attention(q, k, v, causal=True, axis_name="cp"))
        run = jax.shard_map(layer, mesh=MESH, in_specs=rows, out_specs=rows)
        return jax.jit(jax.grad(lambda *x: (run(*x) ** 2).sum(), argnums=(0, 1, 2)))

    for got, want in zip(sharded(jax.checkpoint)(*scene.arrays()),
                         sharded(lambda f: f)(*scene.arrays())):
        np.testing.assert_array_equal(got, want)


def test_only_rows_that_are_seen_travel():
    """A narrow window reaches one neighbour: one round forward, not three."""
    scene = Scene(lengths=(40,), terms=Terms(causal=True, window=(3, 0)))
    run = over_axis(scene, "contiguous")
    text = run.lower(*scene.arrays(), None, None).as_text()
    assert text.count("stablehlo.collective_permute") == 2  # keys, values
    assert "tensor<3x2x16xf32>" in text  # 3 rows of 10
    gathered = over_axis(scene, "contiguous", strategy="all_gather")
    text = gathered.lower(*scene.arrays(), None, None).as_text()
    assert text.count("stablehlo.all_gather") == 2 and "collective_permute" not in text


def test_programs_are_compiled_once():
    traces = 0
    scene = Scene(lengths=(40, 40))

    def body(q):
        nonlocal traces
        traces += 1
        return attention(q, q, q, axis_name="cp")

    rows = PartitionSpec(None, "cp")
    run = jax.jit(jax.shard_map(body, mesh=MESH, in_specs=rows, out_specs=rows))
    q = scene.arrays()[0]
    first = run(q)
    for _ in range(3):
        np.testing.assert_array_equal(run(q), first)
    assert traces == 1


def test_without_jit():
    scene = Scene(lengths=(13, 21), layout="thd")
    plan = Plan(RANKS, cu_seqlens=(0, 13, 34), causal=True)
    rows = PartitionSpec("cp")
    body = functools.partial(attention, axis_name="cp", **plan.arguments())
    sharded = jax.shard_map(body, mesh=MESH, in_specs=rows, out_specs=rows)

    def run(q, k, v):
        return plan.unshard(sharded(plan.shard(q), plan.shard(k, "k"), plan.shard(v, "k")))

    o, back = jax.vjp(run, *scene.arrays())
    causal = Scene(lengths=(13, 21), layout="thd", terms=Terms(causal=True))
    got = dict(zip(("o", "dq", "dk", "dv"), (o, *back(jnp.asarray(scene.dout)))))
    check(got, causal.truth(), "float32")


@pytest.mark.parametrize("name", ["causal", "packed"])
def test_a_mesh_of_one_device(name):
    mesh = jax.make_mesh((1,), ("cp",), axis_types=(jax.sharding.AxisType.Auto,),
                         devices=jax.devices()[:1])
    SCENES[name].check(over_mesh(SCENES[name], "zigzag", mesh=mesh))


def two_axes(run, spec, **options):
    automatic = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((2, 2), ("data", "cp"), axis_types=automatic)
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, **options))


@pytest.mark.parametrize("partition", ["contiguous", "zigzag"])
def test_other_axes_may_be_automatic(partition):
    q = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8, 4, 16)), jnp.float32)
    plan = Plan(2, seq=8, causal=True, partition=partition)

    def loss(run):
        return jax.grad(lambda q: (run(q) ** 2).sum())(q)

    run = two_axes(
        lambda q: attention(q, q, q, axis_name="cp", **plan.arguments(batch=2)),
        PartitionSpec(None, "cp"), axis_names={"cp"},
    )
    np.testing.assert_allclose(
        loss(lambda q: plan.unshard(run(plan.shard(q)))),
        loss(lambda q: attention(q, q, q, causal=True)), atol=1e-4,
    )


def test_axes_are_named_in_the_order_of_the_mesh():
    q = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8, 4, 16)), jnp.float32)
    for axes in (("data", "cp"), ["data", "cp"]):
        run = two_axes(lambda q: attention(q, q, q, axis_name=axes, causal=True),
                       PartitionSpec(None, ("data", "cp")))
        np.testing.assert_allclose(run(q), attention(q, q, q, causal=True), atol=1e-5)
    with pytest.raises(longspan.InvalidArgument, match=r"in the order \('data', 'cp'\)"):
        two_axes(lambda q: attention(q, q, q, axis_name=("cp", "data")),
                 PartitionSpec(None, ("cp", "data")))(q)
