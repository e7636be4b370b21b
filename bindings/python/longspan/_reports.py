"""What would run and why: the reports of the command line, as dictionaries."""

import json
from typing import Any

from longspan import _native
from longspan._options import Options


def _report(command: str, *words: str) -> dict[str, Any]:
    return json.loads(_native.report([command, *words]))


def _on_ranks(problem: str, ranks: int, nodes: int) -> list[str]:
    text = _native.canonical_problem(problem)  # raises what is wrong with it
    return [f"--problem={text}", f"--ranks={ranks}", f"--nodes={nodes}"]


def explain(
    problem: str, *, ranks: int = 1, nodes: int = 1, options: Options = Options()
) -> dict[str, Any]:
    """What would compute a problem, and why; computes nothing.

    Returns:
        The report of ``longspan explain``: status (pass or declined), the strategies and providers
        of both directions with reasons and estimates, and all declines
        (docs/reference/files_and_json.md).

    Raises:
        longspan.InvalidArgument: a problem, number or option that cannot be.
    """
    return _report("explain", *_on_ranks(problem, ranks, nodes), *options.flags())


def schedule(
    problem: str,
    *,
    ranks: int = 1,
    nodes: int = 1,
    direction: str = "forward",
    options: Options = Options(),
) -> dict[str, Any]:
    """The report of ``longspan schedule``: steps and their proof."""
    flags = [f"--forward={options.forward}", f"--backward={options.backward}",
             f"--partition={options.partition}", f"--direction={direction}"]
    return _report("schedule", *_on_ranks(problem, ranks, nodes), *flags)


def simulate(problem: str, *, ranks: int = 1, nodes: int = 1) -> dict[str, Any]:
    """The report of ``longspan simulate``: modelled times of all strategies."""
    return _report("simulate", *_on_ranks(problem, ranks, nodes))


def support() -> dict[str, Any]:
    """The report of ``longspan support``: which strategy and provider offers which option."""
    return _report("support")
