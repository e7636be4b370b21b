"""Four ranks as processes over gloo: rank_scenes.py says what they do."""

import ast
import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install transformers")
pytest.importorskip("tqdm", reason="the example needs tqdm and matplotlib")

RANKS = 4
PROGRAM = pathlib.Path(__file__).with_name("rank_scenes.py")
EXAMPLE = PROGRAM.parents[3] / "examples" / "train_gpt" / "train.py"


def scene_names() -> list[str]:
    functions = [n for n in ast.parse(PROGRAM.read_text()).body if isinstance(n, ast.FunctionDef)]
    return [f.name for f in functions if f.decorator_list]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               f"--nproc-per-node={RANKS}", str(PROGRAM), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=400)
    files = [folder / f"{rank}.json" for rank in range(RANKS)]
    assert all(file.exists() for file in files), run.stdout + run.stderr
    return folder


@pytest.mark.parametrize("name", scene_names())
def test_scene(name, folder):
    for rank in range(RANKS):
        outcome = json.loads((folder / f"{rank}.json").read_text())[name]
        assert outcome == "passed", f"rank {rank}: {outcome}"


def test_the_example_has_the_losses_of_one_rank(folder, tmp_path):
    command = [sys.executable, str(EXAMPLE), "--steps", "8", "--sequence", "250", "--device", "cpu",
               "--output", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    want = json.loads((tmp_path / "losses.json").read_text())
    got = json.loads((folder / "example.json").read_text())
    assert len(got) == 8 and want[-1] < 0.9 * want[0]
    assert got == pytest.approx(want, rel=1e-4)
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")
