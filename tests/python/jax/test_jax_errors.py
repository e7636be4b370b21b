"""What cannot be says which value, which limit and what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_scene import Scene

import longspan
from longspan.jax import CallPlan, Plan, attention

Q, K, V = Scene().arrays()


def refused(words, *arrays, error=longspan.InvalidArgument, **options):
    with pytest.raises(error) as raised:
        attention(*(arrays or (Q, K, V)), **options)
    for word in words:
        assert word in str(raised.value), str(raised.value)


def test_arrays():
    refused(["int32"], *(x.astype(jnp.int32) for x in (Q, K, V)))
    refused(["k is float16", "float32"], Q, K.astype(jnp.float16), V)
    refused(["[2, 24, 4, 16]", "thd", "3 extents"], layout="thd")
    refused(["'bhsd'", "sbhd"], layout="bhsd")
    refused(["dim 16", "8"], Q, K[..., :8], V)
    refused(["[2, 24, 2, 16]", "[2, 12, 2, 16]"], Q, K, V[:, :12])


def test_arrays_of_other_kinds_are_taken_as_jax_takes_them():
    doubles = [np.asarray(x, np.float64) for x in (Q, K, V)]
    o = attention(*doubles)
    assert o.dtype == jnp.float32
    assert jax.grad(lambda q: attention(q, *doubles[1:]).sum())(doubles[0]).dtype == jnp.float32
    assert (o == attention(Q, K, V)).all()
    assert (attention(Q, K, V, bias=np.zeros((1, 1, 24, 24)).tolist()) == o).all()


def test_lengths():
    refused(["lengths", "[5]", "2 entries"], lengths=(5,))
    refused(["25", "24"], lengths=(25, 1))
    refused(["cu_seqlens", "thd"], cu_seqlens=(0, 24))
    refused(["align", "top_left"], causal=True, lengths=(9, 9), kv_lengths=(24, 24))
    packed = Scene(lengths=(24,), layout="thd").arrays()
    refused(["cu_seqlens", "[1, 24]"], *packed, layout="thd", cu_seqlens=(1, 24))
    refused(["30", "24"], *packed, layout="thd", cu_seqlens=(0, 30))
    refused(["one of them"], *packed, layout="thd", cu_seqlens=(0, 24), lengths=(24,))


def test_traced_lengths():
    with pytest.raises(longspan.InvalidArgument, match="known when the program is traced"):
        jax.jit(lambda n: attention(Q, K, V, lengths=n))(jnp.array([3, 4]))


@pytest.mark.parametrize("name", ["scale", "softcap", "dropout", "window", "chunk"])
def test_constants_of_the_program(name):
    with pytest.raises(longspan.InvalidArgument, match=f"{name} is traced; it must be known"):
        jax.jit(lambda x: attention(Q, K, V, **{name: x}))(1)


def test_extents_without_a_number():
    batch, = jax.export.symbolic_shape("b")
    shapes = [jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype) for x in (Q, K, V)]
    with pytest.raises(longspan.InvalidArgument, match="extents must be known"):
        jax.eval_shape(attention, *shapes)


def test_second_derivatives():
    first = jax.grad(lambda q: (attention(q, K, V) ** 2).sum())
    with pytest.raises(longspan.Unsupported, match="second derivatives of attention"):
        jax.grad(lambda q: first(q).sum())(Q)
    with pytest.raises(longspan.Unsupported, match="second derivatives of attention"):
        jax.jit(jax.grad(lambda q: jax.grad(lambda q: (on_axis(q) ** 2).sum())(q).sum()))(Q)


def test_sides():
    refused(["sinks", "[3]", "[4]"], sinks=jnp.zeros(3))
    refused(["alibi", "[4]"], alibi=np.zeros(5))
    refused(["dropout_key"], dropout=0.1)
    refused(["bias", "[2, 4, 24, 23]", "[2, 4, 24, 24]"], bias=jnp.zeros((2, 4, 24, 23)))
    refused(["bias", "[24, 24]"], bias=jnp.zeros((24, 24)))
    refused(["bias is bool", "jnp.where"], bias=jnp.ones((1, 1, 24, 24), bool))
    refused(["alibi is 'yes'"], alibi="yes")
    for word in (True, "learnable", "none"):
        refused([f"sinks is {word!r}", "off_by_one"], sinks=word)


def test_declines_are_carried():
    refused(["cudnn declines (device)", "device cpu is not cuda"], error=longspan.Unsupported,
            forward_provider="require:cudnn")
    with pytest.raises(longspan.Unsupported, match="cudnn"):
        jax.grad(lambda q: attention(q, K, V, backward_provider="require:cudnn").sum())(Q)
    assert attention(Q, K, V, backward_provider="require:cudnn").shape == Q.shape


def test_unknown_provider():
    refused(["nobody"], forward_provider="require:nobody")


def test_failure_in_a_handler_is_an_error_of_jax():
    call = jax.ffi.ffi_call("longspan_forward", jax.ShapeDtypeStruct((4,), jnp.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match="longspan: .*0 arguments and 1 results"):
        jax.block_until_ready(call(problem="", request=""))


def on_axis(array, **options):
    mesh = jax.make_mesh((4,), ("cp",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec(None, "cp") if array.ndim == 4 else \
        jax.sharding.PartitionSpec("cp")
    return jax.shard_map(lambda q: attention(q, q, q, axis_name="cp", **options), mesh=mesh,
                         in_specs=spec, out_specs=spec)(array)


def test_over_an_axis():
    with pytest.raises(longspan.InvalidArgument, match="all_to_all.*ring, all_gather"):
        on_axis(Q, strategy="all_to_all")
    with pytest.raises(longspan.InvalidArgument, match="6 rows on each device.*Plan.*largest"):
        on_axis(jnp.zeros((24, 4, 16)), layout="thd", cu_seqlens=(0, 20))
    with pytest.raises(longspan.InvalidArgument, match="layout='thd'"):
        on_axis(Q, partition="balanced", causal=True)
    with pytest.raises(longspan.InvalidArgument, match="spiral"):
        on_axis(Q, partition="spiral")
    refused(["spiral"], partition="spiral")
    refused(["strategy=rings"], strategy="rings")


def test_an_axis_that_is_not_bound():
    refused(["'cp'", "shard_map"], axis_name="cp")
    mesh = jax.make_mesh((4,), ("cp",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec(None, "cp")
    with pytest.raises(longspan.InvalidArgument, match="'sequence'.*mesh axis"):
        jax.shard_map(lambda q: attention(q, q, q, axis_name="sequence"), mesh=mesh, in_specs=rows,
                      out_specs=rows)(Q)


def test_plans():
    with pytest.raises(longspan.InvalidArgument, match="either seq or cu_seqlens"):
        Plan(4)
    with pytest.raises(longspan.InvalidArgument, match="not fall"):
        Plan(4, cu_seqlens=(0, 5, 3))
    with pytest.raises(longspan.InvalidArgument, match=r"\[2, 24, 4, 16\].*takes 10"):
        Plan(4, seq=10).shard(Q)
    with pytest.raises(longspan.InvalidArgument, match="ranks is 0"):
        Plan(0, seq=8)
    with pytest.raises(longspan.InvalidArgument, match="kv_seq.*both sides alike"):
        Plan(4, cu_seqlens=(0, 8), kv_seq=8)
    with pytest.raises(longspan.InvalidArgument, match="cu_seqlens_kv.*both sides alike"):
        Plan(4, seq=8, cu_seqlens_kv=(0, 8))
    with pytest.raises(longspan.InvalidArgument, match="side is 'v'"):
        Plan(4, seq=8).rows("v")
    refused([r"**plan.arguments()"], plan=Plan(1, seq=24))
    with pytest.raises(longspan.InvalidArgument, match="heads given beside a problem text"):
        CallPlan("dtype=f32 heads=1/1 dim=8 lengths=8", heads=(2, 1))
