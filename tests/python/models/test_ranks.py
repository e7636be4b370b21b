"""Four ranks as processes over gloo: rank_scenes.py says what they do."""

import json
import pathlib
import subprocess
import sys

import pytest

import ranks

PROGRAM = pathlib.Path(__file__).with_name("rank_scenes.py")
EXAMPLE = PROGRAM.parents[3] / "examples" / "train_gpt" / "train.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def outcomes(folder):
    return ranks.start(PROGRAM, folder)


@pytest.mark.parametrize("name", ranks.scene_names(PROGRAM))
def test_scene(name, outcomes):
    ranks.check(name, outcomes)


def test_the_example_has_the_losses_of_one_rank(outcomes, folder, tmp_path):
    ranks.check("the_example_trains", outcomes)
    command = [sys.executable, str(EXAMPLE), "--steps", "8", "--sequence", "250", "--device", "cpu",
               "--output", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    want = json.loads((tmp_path / "losses.json").read_text())
    got = json.loads((folder / "example.json").read_text())
    assert len(got) == 8 and want[-1] < 0.9 * want[0]
    assert got == pytest.approx(want, rel=1e-4)
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")
