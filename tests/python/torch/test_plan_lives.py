"""What a plan keeps: rows that every mode can use, copies, pickles."""

import copy
import pickle

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

import longspan
from longspan.torch import Plan, engine_of


def plan_of(tokens):
    return engine_of().plan(dtype="f32", heads=(4, 2), dim=16, lengths=[tokens, tokens])


def check_rows(plan, tokens):
    whole = torch.randn(2, tokens, 3, requires_grad=True)
    back = plan.unshard(plan.shard(whole))
    assert torch.equal(back, whole)
    assert torch.autograd.grad(back.sum(), whole)[0].eq(1).all()
    assert plan.positions().tolist() == [*range(tokens)] * 2


def test_rows_first_asked_for_under_inference_mode_can_be_trained_with():
    plan = plan_of(21)
    with torch.inference_mode():
        plan.shard(torch.ones(2, 21, 3))
    check_rows(plan, 21)


def test_rows_first_asked_for_among_fake_tensors_are_real():
    plan = plan_of(22)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert plan.shard(torch.ones(2, 22, 3)).shape == (2, 22, 3)
    check_rows(plan, 22)


def test_rows_do_not_go_by_the_default_device():
    plan = plan_of(23)
    with torch.device("meta"):
        assert plan.indices().tolist() == [*range(46)]
        plan.shard(torch.ones(2, 23, 3, device="cpu"))
    check_rows(plan, 23)


def test_copies_share_the_plan():
    plan = plan_of(8)
    module = torch.nn.Linear(2, 2)
    module.plan = plan
    assert copy.deepcopy(module).plan is plan and copy.copy(plan) is plan


def test_pickles_carry_the_bytes():
    plan = plan_of(8)
    again = pickle.loads(pickle.dumps(plan))
    assert isinstance(again, Plan) and again.to_bytes() == plan.to_bytes()


def test_plans_of_groups_say_how_to_move_them():
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    plan = engine_of(dist.group.WORLD).plan(dtype="f32", heads=(1, 1), dim=8, lengths=[4])
    with pytest.raises(longspan.Unsupported, match="from_bytes"):
        pickle.dumps(plan)


def test_sides_and_beginnings_are_named():
    with pytest.raises(longspan.InvalidArgument, match="side is 'v'"):
        plan_of(8).shard(torch.ones(2, 8, 3), "v")
    with pytest.raises(longspan.InvalidArgument, match="causal given beside a problem text"):
        engine_of().plan(plan_of(8).problem, causal=True)
