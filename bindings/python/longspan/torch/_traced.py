"""Plans inside traced graphs, which hold no objects: a graph names its plan by a number."""

import dataclasses

import torch

from longspan._errors import InvalidArgument
from longspan._options import Options
from longspan._problem import number
from longspan.torch._engine import engine_of
from longspan.torch._plan import NUMBERED, Plan


def tracing() -> bool:
    """Whether somebody records or watches operators: torch.compile, fake tensors, other modes."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


@dataclasses.dataclass(frozen=True)
class NumberedPlan:
    """What tracing needs of a plan. Its calls are the operator, plain or not."""

    number: int
    scale: float
    dropout: float
    ranks: int
    plain = False


_kept: set[Plan] = set()  # compiled graphs name them for good


@torch.compiler.assume_constant_result
def _numbers(text: str, group, device: str, *options):
    plan = engine_of(group, device, Options(*options)).plan(text)
    _kept.add(plan)
    return plan.number, plan.scale, plan.dropout, plan.ranks


def plan_of(text: str, group, device: torch.device, options: Options):
    """A Plan, or while torch.compile traces a NumberedPlan, prepared at that time."""
    if torch.compiler.is_compiling():
        *others, deadline = options.values()
        seconds = number(deadline, "deadline")
        return NumberedPlan(*_numbers(text, group, str(device), *others, seconds))
    return engine_of(group, device, options).plan(text)


def plan_numbered(number: int) -> Plan:
    plan = NUMBERED.get(number)
    if plan is None:
        raise InvalidArgument(
            f"no plan has number {number}: it is gone, or the graph is of another process; keep "
            "the plan, or trace the model again"
        )
    return plan
