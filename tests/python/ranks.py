"""Scenes that four gloo ranks play together: one torchrun for all scenes of a program, and what
became of them."""

import ast
import datetime
import json
import pathlib
import subprocess
import sys
import traceback

import torch
import torch.distributed as dist

RANKS = 4


def play(scenes: dict, folder: pathlib.Path) -> None:
    """On each rank: plays the scenes in order and writes what became of them."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    torch.set_num_threads(1)
    outcomes = {}
    for name, function in scenes.items():
        dist.barrier()
        try:
            function()
            outcomes[name] = "passed"
        except Exception:
            outcomes[name] = traceback.format_exc()
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(outcomes))


def scene_names(program: pathlib.Path) -> list[str]:
    """The decorated functions, without running the program."""
    functions = [n for n in ast.parse(program.read_text()).body if isinstance(n, ast.FunctionDef)]
    return [f.name for f in functions if f.decorator_list]


def start(program: pathlib.Path, folder: pathlib.Path) -> list[dict]:
    """What became of each rank's scenes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               f"--nproc-per-node={RANKS}", str(program), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=400)
    files = [folder / f"{rank}.json" for rank in range(RANKS)]
    assert all(file.exists() for file in files), run.stdout + run.stderr
    return [json.loads(file.read_text()) for file in files]


def check(name: str, outcomes: list[dict]) -> None:
    for rank, outcome in enumerate(outcomes):
        assert outcome[name] == "passed", f"rank {rank}: {outcome[name]}"
