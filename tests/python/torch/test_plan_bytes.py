"""Plans as bytes, on one rank; training_scenes.py has those of ranks."""

import json

import pytest
import torch

import longspan
from longspan.torch import Engine, Plan, attention, engine_of

PROBLEM = {"dtype": "f32", "heads": (4, 2), "dim": 8, "lengths": [20, 30], "causal": True}


def made(**options) -> Plan:
    return Engine(options=longspan.Options(**options)).plan(**PROBLEM)


def test_a_loaded_plan_computes_the_same():
    plan = made(forward_provider="require:cpu/reference")
    again = Plan.from_bytes(plan.to_bytes())
    assert again.to_bytes() == plan.to_bytes()
    assert again.problem == plan.problem
    assert again.forward == ("ring", "recorded", "cpu/reference", "recorded")
    assert again.backward[2] == "cpu/tiled"
    q = torch.randn(50, 4, 8, requires_grad=True)
    k = torch.randn(50, 2, 8, requires_grad=True)
    results = []
    for one in (plan, again):
        o = attention(q, k, k, plan=one)
        results.append((o, *torch.autograd.grad(o.square().sum(), (q, k))))
    for mine, other in zip(*results):
        assert torch.equal(mine, other)


def test_loading_chooses_nothing_and_builds_once():
    data = made().to_bytes()
    engine = Engine()
    plan = engine.load(data)
    counted = engine.counters()
    assert counted["selections"] == 0
    assert engine.load(data) is plan
    assert engine.counters() == counted
    engine.plan(**PROBLEM)
    assert engine.counters()["selections"] == 1
    assert engine.counters()["plan_builds"] == counted["plan_builds"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "no JSON object"),
        (lambda data: data.replace(b"causal", b"causaL"), "not as they were written"),
        (lambda data: b"", "a plan of 0 bytes"),
        (lambda data: bytes(1 << 25), "has from 1 to 16777216"),
        (lambda data: data.replace(b'"format":1', b'"format":7'), "format is 7"),
        (lambda data: b"\xff" + data, "no JSON object"),
    ],
)
def test_damaged_bytes_are_refused(change, message):
    with pytest.raises(longspan.InvalidArgument, match=message):
        Plan.from_bytes(change(made().to_bytes()))


def test_options_of_the_engine_may_not_contradict():
    data = made().to_bytes()
    engine = Engine(options=longspan.Options(partition="striped"))
    with pytest.raises(longspan.InvalidArgument, match="partition is striped here and zigzag"):
        engine.load(data)
    assert Engine(options=longspan.Options(partition="zigzag")).load(data).to_bytes() == data


def test_forward_alone_stays_forward_alone():
    plan = Plan.from_bytes(made(backward="none").to_bytes())
    assert plan.backward is None
    q = torch.randn(50, 4, 8, requires_grad=True)
    with pytest.raises(longspan.Unsupported, match="forward alone"):
        attention(q, q[:, :2], q[:, :2], plan=plan)


def test_bytes_are_text_that_says_what_runs():
    said = json.loads(engine_of().plan(**PROBLEM).to_bytes())
    assert said["problem"] == "dtype=f32 heads=4/2 dim=8 lengths=20,30 mask=causal"
    assert said["longspan"] == longspan.__version__
    assert said["forward"]["provider"] == "cpu/tiled"
