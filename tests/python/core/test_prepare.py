"""What is prepared for a problem, and what is said where the packages are not there."""

import json
import os
import subprocess
import sys

import pytest

from longspan import prepare as package
from longspan.prepare import Build, Refused, builds_of, prepare
from longspan.prepare import _packages, _store

D128 = "dtype=bf16 heads=32/8 dim=128 lengths=8192 mask=causal"
D512 = "dtype=bf16 heads=16/8 dim=512 lengths=4096 mask=causal"
BOTH = ["forward", "backward"]


def names(problem, directions=BOTH):
    return {build.name for build in builds_of([problem], directions)}


def test_a_causal_problem_needs_the_steps_of_a_ring():
    assert names(D128) == {
        f"fa4_{direction}_bf16_d128_g4_{mask}" for direction in BOTH for mask in ("full", "causal")
    }


def test_windows_packs_and_determinism_are_builds_of_their_own():
    assert "fa4_forward_bf16_d128_g4_window" in names(D128 + " window=64,0")
    packed = names(D128.replace("8192", "300,200"))
    assert "fa4_backward_bf16_d128_g4_causal_packed" in packed
    assert "fa4_backward_bf16_d128_g4_causal" in packed
    fixed = names(D128.replace("8192", "300,200") + " deterministic=true")
    assert "fa4_backward_bf16_d128_g4_causal_det" in fixed
    assert not any("backward" in name and "packed" in name for name in fixed)


def test_frost_has_forward_alone_for_its_heads_and_rows():
    assert names(D512) == {
        "frost_forward_bf16_d512_g2_full_h16x8_s4096x4096_lengths",
        "frost_forward_bf16_d512_g2_causal_h16x8_s4096x4096_lengths",
        "frost_forward_bf16_d512_g2_causal_h16x8_s4096x4096",
    }
    assert names(D512, ["backward"]) == set()


def test_unequal_dims_with_groups_have_forward_alone():
    problem = "dtype=bf16 heads=4/2 dim=192 dim_v=128 lengths=512"
    assert all("forward" in name for name in names(problem))
    assert any("backward" in name for name in names(problem.replace("4/2", "4/4")))


def test_problems_share_builds():
    assert len(builds_of([D128, D128.replace("8192", "1024")], BOTH)) == 4


@pytest.mark.parametrize(
    ("problem", "part"),
    [
        (D128.replace("bf16", "f32"), "dtype=f32: f16 and bf16"),
        (D128.replace("dim=128", "dim=100"), "multiples of 8"),
        (D128.replace("dim=128", "dim=520"), "more than 512"),
        (D128.replace("32/8", "32/7"), "7 does not divide 32"),
        (D128.replace("32/8", "many"), "no pair of numbers"),
        (D128.replace("8192", "long"), "lengths=long"),
        ("dtype=bf16 dim=64", "lacks heads, lengths"),
        ("bf16", "is no problem text"),
        (D512 + " window=64,0", "FROST fixes a window's widths"),
    ],
)
def test_what_cannot_be_prepared_is_named(problem, part):
    with pytest.raises(Refused, match=part):
        builds_of([problem], BOTH)


def test_names_tell_builds_apart():
    build = Build("fa4", "forward", "bf16", 64, 64, 1, "full")
    others = [
        Build("fa4", "backward", "bf16", 64, 64, 1, "full"),
        Build("fa4", "forward", "f16", 64, 64, 1, "full"),
        Build("fa4", "forward", "bf16", 64, 128, 1, "full"),
        Build("fa4", "forward", "bf16", 64, 64, 2, "full"),
        Build("fa4", "forward", "bf16", 64, 64, 1, "full", layout="packed"),
        Build("fa4", "forward", "bf16", 64, 64, 1, "full", deterministic=True),
    ]
    assert len({build.name, *(other.name for other in others)}) == 7


@pytest.mark.parametrize("engine", ["fa4", "frost"])
def test_a_missing_package_comes_with_the_line_that_installs_it(monkeypatch, engine):
    first = next(iter(_packages.PINNED[engine]))

    def version(name):
        if name == first:
            raise _packages.importlib.metadata.PackageNotFoundError
        return _packages.PINNED[engine][name]

    monkeypatch.setattr(_packages.importlib.metadata, "version", version)
    with pytest.raises(Refused, match=f"{first}.*not installed; run: pip install --pre {first}=="):
        _packages.probe(engine)


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(_packages.importlib.metadata, "version", lambda name: "9.9")
    with pytest.raises(Refused, match="flash-attn-4 4.0.0b36, which is version 9.9"):
        _packages.probe("fa4")


def test_the_program_refuses_before_it_makes_anything(tmp_path):
    if _store_packages_are_there():
        pytest.skip("the packages are installed here")
    out = tmp_path / "store"
    command = [sys.executable, "-m", "longspan.prepare", "--out", str(out), "--for", D128]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "run: pip install --pre flash-attn-4==4.0.0b36" in done.stderr
    assert not out.exists()


def test_the_list_needs_no_package():
    command = [sys.executable, "-m", "longspan.prepare", "--out", "x", "--list", "--for", D128]
    done = subprocess.run(command, capture_output=True, text=True)
    assert set(done.stdout.split()) == names(D128)


def _store_packages_are_there():
    try:
        _packages.probe("fa4")
    except Refused:
        return False
    return True


def _fake(monkeypatch, made):
    monkeypatch.setattr(_store, "probe", lambda engine: dict(_packages.PINNED[engine]))
    monkeypatch.setattr(_store, "tvm_ffi_library", lambda: package.__file__)
    monkeypatch.setattr(_store, "runtime_library", lambda: package.__file__)

    def make(build, store):
        made.append(build.name)
        (store / f"{build.name}.so").write_bytes(b"")
        manifest = {"format": 1, "versions": _packages.PINNED[build.engine]}
        (store / f"{build.name}.json").write_text(json.dumps(manifest))

    monkeypatch.setattr(_store, "_make", make)


def test_a_store_keeps_what_it_has(monkeypatch, tmp_path):
    made, lines = [], []
    _fake(monkeypatch, made)
    prepare([D128], tmp_path, jobs=2, progress=lines.append)
    assert len(made) == 4
    assert lines[0] == "4 builds, 0 of them are there"
    assert any(line.startswith("[4/4]") for line in lines)
    store = json.loads((tmp_path / "store.json").read_text())
    assert store == {"format": 1, "tvm_ffi": package.__file__, "runtime": package.__file__}
    prepare([D128 + " window=8,0"], tmp_path)
    assert len(made) == 6
    stale = tmp_path / f"{made[0]}.json"
    stale.write_text(json.dumps({"format": 1, "versions": {}}))
    prepare([D128], tmp_path)
    assert made[6:] == [made[0]]


def test_a_build_that_fails_ends_the_run_by_name(monkeypatch, tmp_path):
    made = []
    _fake(monkeypatch, made)

    def fail(build, store):
        raise Refused(f"{build.name}: no room")

    monkeypatch.setattr(_store, "_make", fail)
    with pytest.raises(Refused, match="fa4_.*: no room"):
        prepare([D128], tmp_path)
    assert not os.path.exists(tmp_path / "store.json")
