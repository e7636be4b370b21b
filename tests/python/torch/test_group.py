"""Four ranks as processes over gloo: group_scenes.py says what they do."""

import ast
import json
import pathlib
import subprocess
import sys

import pytest

RANKS = 4
PROGRAM = pathlib.Path(__file__).with_name("group_scenes.py")


def scene_names() -> list[str]:
    functions = [n for n in ast.parse(PROGRAM.read_text()).body if isinstance(n, ast.FunctionDef)]
    return [f.name for f in functions if f.decorator_list]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               f"--nproc-per-node={RANKS}", str(PROGRAM), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=400)
    files = [folder / f"{rank}.json" for rank in range(RANKS)]
    assert all(file.exists() for file in files), run.stdout + run.stderr
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize("name", scene_names())
def test_scene(name, outcomes):
    for rank, outcome in enumerate(outcomes):
        assert outcome[name] == "passed", f"rank {rank}: {outcome[name]}"
