"""Ranks as processes under mpirun."""

import json
import os
import shutil

import safetensors_files as files
from results import PACKED
from score_terms import ALL, BASE

TWO_PROBLEMS = ("dtype=f32 heads=4/2 dim=16 lengths=40", "dtype=f32 heads=4/2 dim=16 lengths=41")


def launcher(count):
    """Also as root, and with more ranks than cores."""
    return [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
        "-n",
        str(count),
    ]


def same_as_threads(tool):
    for text in (
        PACKED,
        "dtype=bf16 heads=2/1 dim=32 lengths=133,133 mask=causal layout=sbhd",
        f"{BASE} {ALL}",
    ):
        arguments = ["run", "--problem", text, "--forward", "ring", "--backward", "ring"]
        tool.expect_pass([*arguments, "--ranks", 3, "--output", "threads.safetensors"])
        run = tool(
            *arguments,
            "--communicator",
            "mpi",
            "--json",
            "-",
            "--output",
            "mpi.safetensors",
            launcher=launcher(3),
        )
        tool.expect(run.code == 0, f"exit code {run.code}: {run.err}")
        tool.expect(run.json["ranks"] == 3 and run.json["communicator"] == "mpi", run.out)
        tool.expect(len(run.json["bytes_sent"]["forward"]) == 3, run.out)
        one, _ = files.read(tool.path("threads.safetensors"))
        two, _ = files.read(tool.path("mpi.safetensors"))
        tool.expect(one == two, "results of threads and processes differ")


def refusals(tool):
    run = tool(
        "run",
        "--problem",
        PACKED,
        "--communicator",
        "mpi",
        "--ranks",
        3,
        "--json",
        "-",
        launcher=launcher(2),
    )
    tool.expect(run.code == 2, f"exit code {run.code}: {run.err}")
    tool.expect("--ranks 3: MPI started 2 processes" in run.json["message"], run.out)
    run = tool(
        "run",
        "--problem",
        PACKED,
        "--communicator",
        "mpi",
        "--speed",
        3,
        "--json",
        "-",
        launcher=launcher(2),
    )
    tool.expect(run.code == 2 and run.json["status"] == "error", run.out)
    run = tool(
        "run",
        "--problem",
        PACKED + " fp8=current",
        "--communicator",
        "mpi",
        "--json",
        "-",
        launcher=launcher(2),
    )
    tool.expect(run.code == 2 and run.json["status"] == "declined", run.out)


def different_problems(tool):
    """Every rank ends with the named mismatch."""
    one, two = TWO_PROBLEMS
    command = ["run", "--communicator", "mpi", "--deadline", "20", "--problem"]
    run = tool(*command, one, ":", "-n", "1", tool.program, *command, two, launcher=launcher(1))
    tool.expect(run.code == 2, f"exit code {run.code}: {run.err}")
    tool.expect("invalid_argument" in run.err and "problem" in run.err, run.err)


def one_rank_cannot_start(tool):
    """Whatever keeps one rank from starting, the job ends at once and says which rank it was."""
    command = ["run", "--communicator", "mpi", "--deadline", "100", "--problem", TWO_PROBLEMS[0]]
    second = [":", "-n", "1", tool.program]
    for other, message in (
        ([*command, "--speed", "3"], "--speed"),
        (["run", "--communicator", "mpi", "--help"], "rank 1 cannot start"),
        ([*command, "--seed", "3"], "ranks disagree on --seed: rank 1"),
        ([*command, "--repeat", "3"], "ranks disagree on --repeat: rank 1"),
        ([*command, "--input", "no/such/file"], "no/such/file"),
    ):
        run = tool(*command, "--json", "-", *second, *other, launcher=launcher(1), timeout=60)
        tool.expect(run.code == 2, f"{other}: exit code {run.code}: {run.err}")
        tool.expect(message in run.err, f"{other}: {run.err}")
        tool.expect(run.json["status"] == "error" and "rank 1" in run.json["message"], run.out)
    unwritable = ["--json", "no/such/folder/x"]
    run = tool(*command, *unwritable, *second, *command, launcher=launcher(1), timeout=60)
    tool.expect(run.code == 2 and "cannot write" in run.err, f"exit code {run.code}: {run.err}")


def killed_rank(tool):
    """A rank that dies takes the run down with peer_lost on all others, not with a hang. mpirun
    lets them live on with --enable-recovery, and then ends with status 0 whatever they return."""
    run = tool(
        "run",
        "--problem",
        PACKED,
        "--communicator",
        "mpi",
        "--fail-rank",
        1,
        "--deadline",
        5,
        "--output",
        "lost.safetensors",
        "--json",
        "lost.json",
        launcher=[*launcher(3), "--enable-recovery"],
        timeout=60,
    )
    for rank in (0, 2):
        tool.expect(f"longspan: rank {rank}: peer_lost" in run.err, run.err)
    with open(tool.path("lost.json")) as file:
        report = json.load(file)
    tool.expect(report["status"] == "error" and "peer_lost" in report["message"], str(report))
    left = [name for name in os.listdir(tool.folder) if name.startswith("lost.safetensors")]
    tool.expect(left == [], f"{left} left")


def cases():
    if shutil.which("mpirun") is None:

        def mpirun_is_missing(tool):
            run = tool("run", "--problem", PACKED, "--communicator", "mpi")
            tool.expect(run.code in (0, 2), run.err)

        return [mpirun_is_missing]
    return [same_as_threads, refusals, different_problems, one_rank_cannot_start, killed_rank]
