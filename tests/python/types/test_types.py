"""What type checkers are told: annotations of everything public, and a program that uses them."""

import ast
import inspect
import pathlib
import subprocess
import sys

import pytest

import longspan
import longspan.jax
import longspan.torch
from longspan import _native

PROGRAM = '''
import jax
import torch
import torch.distributed as dist
import longspan
import longspan.jax
from longspan.torch import Engine, Plan, attention, engine_of

options = longspan.Options(forward="ring", deadline=5.0)
group: dist.ProcessGroup | None = None
engine: Engine = engine_of(group, "cpu", options)
plan: Plan = engine.plan(dtype="f32", heads=(4, 2), dim=8, lengths=[16], causal=True)
again: Plan = Plan.from_bytes(plan.to_bytes(), group)
q = torch.zeros(1, 16, 4, 8)
o: torch.Tensor = attention(plan.shard(q), q, q, plan=again)
o, lse = attention(q, q, q, window=(4, 0), return_lse=True)
indices: torch.Tensor = plan.indices("k")
counted: dict[str, int] = engine.counters()
status: str = longspan.explain(plan.problem, ranks=2)["status"]
try:
    longspan.canonical_problem("dtype=f64")
except longspan.InvalidArgument as error:
    code: str = error.code

def step(x: jax.Array, whole: longspan.jax.CallPlan) -> jax.Array:
    y: jax.Array = longspan.jax.attention(x, x, x, plan=whole)
    return y

rows: int = longspan.jax.Plan(4, seq=16).rows("k")
data: bytes = longspan.jax.CallPlan(plan.problem).to_bytes()
'''
# Each line is wrong, and a checker must say so.
MISTAKES = '''
longspan.Options(forward=3)
engine_of(options="ring")
plan.to_bytes("utf-8")
attention(q, q, q, causal="yes")
longspan.jax.CallPlan(ranks="4")
n: int = longspan.__version__
'''


def check(program: str, folder: pathlib.Path) -> str:
    (folder / "program.py").write_text(program)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "program.py"], cwd=folder, capture_output=True,
        text=True,
    )
    return run.stdout + run.stderr


def test_a_strict_checker_passes_and_finds_mistakes(tmp_path):
    assert "Success: no issues" in check(PROGRAM, tmp_path)
    found = check(PROGRAM + MISTAKES, tmp_path)
    first = PROGRAM.count("\n") + 1
    for number, mistake in enumerate(MISTAKES.strip().split("\n"), first + 1):
        assert f"program.py:{number}: error" in found, mistake


def public_functions():
    for module in (longspan, longspan.torch, longspan.jax):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value
            elif inspect.isclass(value):
                for attribute, member in vars(value).items():
                    function = inspect.unwrap(getattr(member, "__func__", member))
                    shown = not attribute.startswith("_") or attribute == "__init__"
                    own = getattr(function, "__module__", "").startswith("longspan")
                    if shown and own and inspect.isfunction(function):
                        yield f"{module.__name__}.{name}.{attribute}", function


@pytest.mark.parametrize(("name", "function"), public_functions())
def test_every_argument_and_result_has_a_type(name, function):
    signature = inspect.signature(function)
    missing = [p.name for p in signature.parameters.values()
               if p.annotation is p.empty and p.name not in ("self", "cls")]
    assert not missing, name
    assert signature.return_annotation is not signature.empty or name.endswith("__init__"), name


def test_the_stub_has_the_functions_of_the_native_library():
    stub = pathlib.Path(_native.__file__).with_name("_native.pyi")
    declared = {n.name for n in ast.parse(stub.read_text()).body if isinstance(n, ast.FunctionDef)}
    exported = {name for name, value in vars(_native).items()
                if type(value).__module__.startswith("tvm_ffi") and not name.startswith("_")}
    assert declared == exported
