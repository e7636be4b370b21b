"""Four processes with one GPU: rank_scenes.py says what they do."""

import pathlib

import pytest

import ranks

PROGRAM = pathlib.Path(__file__).with_name("rank_scenes.py")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return ranks.start(PROGRAM, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", ranks.scene_names(PROGRAM))
def test_scene(name, outcomes):
    ranks.check(name, outcomes)
