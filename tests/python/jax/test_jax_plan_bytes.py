"""Plans of whole problems: what attention computes by them, and the same bytes in every front
end."""

import pathlib
import subprocess
import sysconfig

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import AxisType, PartitionSpec as P

import longspan
import longspan.torch
from longspan.jax import CallPlan, attention

PROGRAM = pathlib.Path(sysconfig.get_path("scripts")) / "longspan"
PROBLEM = {"dtype": "f32", "heads": (4, 2), "dim": 8, "causal": True}


def command(*words) -> str:
    """The C++ program."""
    run = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def arrays(*rows: int):
    keys = jax.random.split(jax.random.key(0), 2)
    return [jax.random.normal(key, (*rows, heads, 8)) for key, heads in zip(keys, (4, 2))]


def gradients(call, q, k):
    return jax.grad(lambda q, k: (call(q, k) ** 2).sum(), argnums=(0, 1))(q, k)


def by_ranks(plan: CallPlan, count: int):
    """Attention of whole arrays over ``count`` devices."""
    mesh = jax.make_mesh((count,), ("cp",), axis_types=(AxisType.Auto,),
                         devices=jax.devices()[:count])
    rows = P("cp") if plan.layout == "thd" else P(None, "cp")
    run = jax.shard_map(
        lambda q, k: attention(q, k, k, axis_name="cp", layout=plan.layout, **plan.arguments()),
        mesh=mesh, in_specs=rows, out_specs=rows,
    )
    return lambda q, k: plan.unshard(run(plan.shard(q), plan.shard(k, "k")))


def test_the_same_bytes_from_torch_by_cpp_and_jax_to_torch(tmp_path):
    data = longspan.torch.engine_of().plan(lengths=[24, 24], **PROBLEM).to_bytes()
    (tmp_path / "torch.json").write_bytes(data)
    text = command("run", "--plan", tmp_path / "torch.json", "--save-plan", tmp_path / "cpp.json")
    assert "recorded" in text and "PASS" in text
    from_cpp = (tmp_path / "cpp.json").read_bytes()
    plan = CallPlan.from_bytes(from_cpp)
    assert plan.forward == ("ring", "recorded", "cpu/tiled", "recorded")
    back = longspan.torch.Plan.from_bytes(plan.to_bytes())
    assert data == from_cpp == plan.to_bytes() == back.to_bytes()
    q, k = arrays(2, 24)
    o = attention(q, k, k, plan=plan)
    tensors = [torch.from_numpy(np.array(x)) for x in (q, k, k)]
    assert np.array_equal(o, longspan.torch.attention(*tensors, plan=back).numpy())
    for mine, other in zip(gradients(lambda q, k: attention(q, k, k, plan=plan), q, k),
                           gradients(lambda q, k: attention(q, k, k, causal=True), q, k)):
        assert (mine == other).all()


@pytest.mark.parametrize(
    ("lengths", "partition"), [("61", "zigzag"), ("24,24", "striped"), ("20,9,32", "auto")]
)
def test_a_plan_of_four_ranks_from_cpp_and_back(tmp_path, lengths, partition):
    file = tmp_path / "plan.json"
    problem = f"dtype=f32 heads=4/2 dim=8 lengths={lengths} mask=causal"
    command("explain", "--problem", problem, "--ranks", 4, "--forward", "ring", "--backward",
            "ring", "--partition", partition, "--save-plan", file)
    plan = CallPlan.from_bytes(file.read_bytes())
    assert plan.to_bytes() == file.read_bytes()
    counts = [int(n) for n in lengths.split(",")]
    packed = plan.layout == "thd"
    q, k = arrays(sum(counts)) if packed else arrays(len(counts), counts[0])
    more = {"layout": "thd", "cu_seqlens": np.cumsum([0, *counts])} if packed else {}
    want = gradients(lambda q, k: attention(q, k, k, causal=True, **more), q, k)
    for mine, other in zip(gradients(by_ranks(plan, 4), q, k), want):
        np.testing.assert_allclose(mine, other, atol=1e-4)
    with pytest.raises(longspan.InvalidArgument, match="the plan is of 4 ranks; there are 1"):
        longspan.torch.Plan.from_bytes(plan.to_bytes())


def test_a_plan_made_here_runs_in_cpp(tmp_path):
    plan = CallPlan(ranks=3, strategy="all_gather", partition="contiguous", lengths=[50],
                    window=(16, 0), **PROBLEM)
    assert plan.forward[:2] == ("all_gather", "as asked")
    (tmp_path / "jax.json").write_bytes(plan.to_bytes())
    text = command("run", "--plan", tmp_path / "jax.json", "--save-plan", tmp_path / "cpp.json")
    assert "PASS" in text
    assert (tmp_path / "cpp.json").read_bytes() == plan.to_bytes()
    q, k = arrays(1, 50)
    want = attention(q, k, k, causal=True, window=(16, 0))
    np.testing.assert_allclose(by_ranks(plan, 3)(q, k), want, atol=1e-5)


def test_options_of_values_come_with_the_plan():
    plan = CallPlan(lengths=[24, 24], sink="learnable", bias="1,1", dropout=0.25, max_logit=True,
                    scale=0.3, **PROBLEM)
    q, k = arrays(2, 24)
    sides = {"sinks": jnp.ones(4), "bias": jnp.ones((1, 1, 24, 24)),
             "dropout_key": jax.random.key(3), "return_max_logit": True}
    mine = attention(q, k, k, plan=plan, **sides)
    other = attention(q, k, k, causal=True, dropout=0.25, scale=0.3, **sides)
    assert all((a == b).all() for a, b in zip(mine, other))


def test_vmap_and_jit_of_a_plan():
    plan = CallPlan(lengths=[24], **PROBLEM)
    q, k = arrays(3, 1, 24)
    got = jax.jit(jax.vmap(lambda q, k: attention(q, k, k, plan=plan)))(q, k)
    want = jax.vmap(lambda q, k: attention(q, k, k, causal=True))(q, k)
    assert (got == want).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"causal": True, "chunk": 4}, "causal, chunk given beside a plan"),
        ({"cu_seqlens": np.array([0, 24])}, "cu_seqlens given beside a plan"),
        ({"sinks": jnp.zeros(4)}, "sink is learnable and in the plan None"),
        ({"return_max_logit": True}, "max_logit is true and in the plan None"),
        ({"bias": jnp.zeros((1, 1, 24, 24))}, "bias is True and in the plan False"),
    ],
)
def test_what_the_plan_has_not_is_refused(arguments, message):
    plan = CallPlan(lengths=[24, 24], **PROBLEM)
    q, k = arrays(2, 24)
    with pytest.raises(longspan.InvalidArgument, match=message):
        attention(q, k, k, plan=plan, **arguments)


def test_arrays_that_do_not_fit_are_refused():
    plan = CallPlan(lengths=[24, 24], **PROBLEM)
    q, k = arrays(2, 24)
    with pytest.raises(longspan.InvalidArgument, match="dtype is bf16 and in the plan f32"):
        attention(*(x.astype(jnp.bfloat16) for x in (q, k, k)), plan=plan)
    with pytest.raises(longspan.InvalidArgument, match=r"heads is \(2, 2\)"):
        attention(k, k, k, plan=plan)
    four = CallPlan(ranks=4, partition="zigzag", lengths=[24, 24], **PROBLEM)
    with pytest.raises(longspan.InvalidArgument, match="the plan is of 4 ranks and axis_name"):
        attention(q, k, k, plan=four)


def test_gradients_need_a_plan_with_them():
    plan = CallPlan.from_bytes(CallPlan(lengths=[24, 24], gradients=False, **PROBLEM).to_bytes())
    assert plan.backward is None
    q, k = arrays(2, 24)
    assert (attention(q, k, k, plan=plan) == attention(q, k, k, causal=True)).all()
    with pytest.raises(longspan.Unsupported, match="the plan is for forward alone"):
        gradients(lambda q, k: attention(q, k, k, plan=plan), q, k)


def test_plans_that_jax_cannot_run_are_refused(tmp_path):
    def saved(*flags, more=""):
        file = tmp_path / "plan.json"
        problem = f"dtype=f32 heads=4/4 dim=8 lengths=24,24 mask=causal{more}"
        command("explain", "--problem", problem, "--save-plan", file, *flags)
        return file.read_bytes()

    exchange = saved("--ranks", 2, "--forward", "all_to_all", "--backward", "all_to_all")
    mixed = saved("--ranks", 2, "--forward", "ring", "--backward", "all_gather")
    for data, message in (
        (exchange, "heads are not exchanged"),
        (mixed, "in JAX both directions have the same"),
        (saved(more=" device_lengths=true"), "device_lengths=true in the plan's problem"),
        (exchange[1:], "no JSON object"),
    ):
        with pytest.raises(longspan.InvalidArgument, match=message):
            CallPlan.from_bytes(data)
    with pytest.raises(longspan.InvalidArgument, match="use layout='thd', or another partition"):
        CallPlan.from_bytes(saved("--ranks", 2, "--forward", "ring", "--backward", "ring",
                                  "--partition", "balanced"))
