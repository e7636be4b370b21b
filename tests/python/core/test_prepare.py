"""What is prepared for a problem, and what is said where the packages are not there."""

import hashlib
import json
import pathlib
import re
import subprocess
import sys

import pytest

from longspan import prepare as package
from longspan.prepare import Build, Refused, builds_of, prepare
from longspan.prepare import _packages, _problem, _store
from longspan.prepare._objects import FORMAT, checksum_of

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


def test_builds_of_fixed_rows_hold_what_plans_are_made_for():
    # Plans are of 2^i or 3 * 2^i rows, of all rows of a tensor.
    many = "dtype=bf16 heads=4/2 dim=512 lengths=500,300 mask=causal"
    assert all("_s1024x1024_lengths" in name for name in names(many))
    assert all("_s1536x1024_" in name for name in names(many + " padded=700,701"))
    assert all("_s4096x1024_" in name for name in names(many + " tokens=3100"))
    one = names("dtype=bf16 heads=4/2 dim=512 lengths=330 mask=none")
    assert {name.rsplit("h4x2_")[1] for name in one} == {"s384x384_lengths", "s330x330"}
    assert len(names(many.replace("500,300", "0"))) == 2


def test_unequal_dims_with_groups_have_forward_alone():
    problem = "dtype=bf16 heads=4/2 dim=192 dim_v=128 lengths=512"
    assert all("forward" in name for name in names(problem))
    assert any("backward" in name for name in names(problem.replace("4/2", "4/4")))
    with pytest.raises(Refused, match="fa4 has no backward of dim 192, dim_v 128, 2 query heads"):
        names(problem, ["backward"])


def test_invariant_results_are_deterministic_ones():
    assert names(D128 + " invariant=true") == names(D128 + " deterministic=true")


def test_problems_share_builds():
    assert len(builds_of([D128, D128.replace("8192", "1024")], BOTH)) == 4


@pytest.mark.parametrize(
    ("problem", "part"),
    [
        (D128.replace("bf16", "f32"), "dtype=f32: f16 and bf16"),
        (D128.replace("dim=128", "dim=100"), "multiples of 8"),
        (D128.replace("dim=128", "dim=520"), "multiples of 8 from 8 to 512"),
        (D128.replace("32/8", "32/7"), "7 does not divide 32"),
        (D128.replace("32/8", "many"), "heads=many"),
        (D128.replace("8192", "long"), "lengths=long"),
        (D128.replace("dim=128", "dim=0"), "multiples of 8"),
        (D128.replace("dim=128", "dim=-64"), "multiples of 8"),
        (D128 + " dim_v=12", "dim_v=12: multiples of 8"),
        (D128.replace("8192", "-5"), "lengths=-5: numbers from 0"),
        (D128 + " kv_lengths=1,2", "kv_lengths has 2 entries but lengths has 1"),
        (D128 + " tokens=8000", "tokens=8000: numbers from 8192"),
        (D128.replace("causal", "checkered"), "mask=checkered: none, causal"),
        (D128 + " window=wide", "window=wide"),
        (D128 + " window=1", "two widths"),
        (D128 + " deterministic=yes", "deterministic=yes: false, true"),
        (D128 + " dim=64", "dim stands twice"),
        (D128 + " maks=none", "the key maks is unknown; known are dtype heads"),
        (D128 + " softcap=30", "no engine computes softcap"),
        (D128 + " dropout=0.1", "no engine computes dropout"),
        (D128 + " bias=1,h", "no engine computes bias"),
        (D128 + " page=16", "no engine computes page"),
        (D128 + " alibi=", "no key=value"),
        ("dtype=bf16 dim=64", "lacks heads, lengths"),
        ("bf16", "no key=value"),
        (D512 + " window=64,0", "FROST fixes a window's widths"),
    ],
)
def test_what_cannot_be_prepared_is_named(problem, part):
    with pytest.raises(Refused, match=part):
        builds_of([problem], BOTH)


def test_what_decides_nothing_about_kernels_is_allowed():
    more = " softcap=0.0 alibi=none dropout=0 sink=learnable scale=0.5 align=bottom_right"
    assert names(D128 + more + " window=-1,-1 layout=thd chunk=64") == names(D128)


def test_every_key_of_a_problem_text_is_known():
    page = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "problem_text.md"
    columns = re.findall(r"^\| (`[^|]*) \|", page.read_text(), re.MULTILINE)
    keys = {key for column in columns for key in re.findall(r"`(\w+)`", column)}
    assert len(keys) > 25
    assert keys == {*_problem._READ, *_problem._ANY_VALUE, *_problem._OFF}


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
    monkeypatch.setattr(_store, "tvm_ffi_library", lambda: pathlib.Path(package.__file__))
    monkeypatch.setattr(_store, "runtime_library", lambda: pathlib.Path(package.__file__))

    def make(build, store):
        made.append(build.name)
        (store / f"{build.name}.so").write_bytes(b"kernels")
        manifest = {
            "format": FORMAT,
            "engine": build.engine,
            "versions": _packages.PINNED[build.engine],
            "library": {"sha256": hashlib.sha256(b"kernels").hexdigest()},
        }
        manifest["checksum"] = checksum_of(manifest)
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
    assert store == {"format": FORMAT, "tvm_ffi": package.__file__, "runtime": package.__file__}
    prepare([D128 + " window=8,0"], tmp_path)
    assert len(made) == 6
    prepare([D128 + " window=8,0"], tmp_path)
    assert len(made) == 6


DAMAGED = ["", "[]", '{"format": 2', '{"format": 2}', '{"format": 3}', "\x00"]


@pytest.mark.parametrize("text", DAMAGED)
def test_manifests_that_say_nothing_are_written_anew(monkeypatch, tmp_path, text):
    made = []
    _fake(monkeypatch, made)
    prepare([D128], tmp_path)
    (tmp_path / f"{made[0]}.json").write_text(text)
    prepare([D128], tmp_path)
    assert made[4:] == [made[0]]


def test_damaged_and_stale_builds_are_made_anew(monkeypatch, tmp_path):
    made = []
    _fake(monkeypatch, made)
    prepare([D128], tmp_path)
    (tmp_path / f"{made[0]}.so").write_bytes(b"kern")
    stale = tmp_path / f"{made[1]}.json"
    stale.write_text(stale.read_text().replace("4.0.0b36", "4.0.0b35"))
    (tmp_path / f"{made[2]}.so").unlink()
    edited = tmp_path / f"{made[3]}.json"
    edited.write_text(json.dumps(dict(json.loads(edited.read_text()), tile_q=8)))
    prepare([D128], tmp_path)
    assert set(made[4:]) == set(made[:4])


def test_the_checksum_of_a_manifest_is_that_of_the_library():
    manifest = {"b": [1, True, '\u00e9" x'], "checksum": "0", "a": {"z": -3, "y": {}}}
    text = '{"a":{"y":{},"z":-3},"b":[1,true,"\\u00e9\\" x"]}'
    assert checksum_of(manifest) == hashlib.sha256(text.encode()).hexdigest()


OTHER = [("4.0.0b36", "4.0.0b35"), (f'"format": {FORMAT}', '"format": 1')]


@pytest.mark.parametrize("now, before", OTHER)
def test_builds_of_other_versions_leave_the_store(monkeypatch, tmp_path, now, before):
    lines = []
    _fake(monkeypatch, [])
    prepare([D128 + " window=8,0"], tmp_path)
    stale = tmp_path / "fa4_forward_bf16_d128_g4_window.json"
    stale.write_text(stale.read_text().replace(now, before))
    (tmp_path / "notes.json").write_text("{}")
    prepare([D128], tmp_path, progress=lines.append)
    assert "removed fa4_forward_bf16_d128_g4_window, which other versions made" in lines
    assert not stale.exists() and not stale.with_suffix(".so").exists()
    assert len(list(tmp_path.glob("*.so"))) == 5
    assert (tmp_path / "notes.json").exists()


def test_a_store_with_copies_of_the_libraries_keeps_them(monkeypatch, tmp_path):
    _fake(monkeypatch, [])
    prepare([D128], tmp_path, with_libraries=True)
    copy = tmp_path / "__init__.py"
    copy.write_text("of another version")
    prepare([D128 + " window=8,0"], tmp_path)
    store = json.loads((tmp_path / "store.json").read_text())
    assert store == {"format": FORMAT, "tvm_ffi": copy.name, "runtime": copy.name}
    assert copy.read_bytes() == pathlib.Path(package.__file__).read_bytes()


def test_a_build_that_fails_ends_the_run_by_name_and_others_stay(monkeypatch, tmp_path):
    made = []
    _fake(monkeypatch, made)
    make = _store._make

    def fail_some(build, store):
        if build.direction == "backward":
            raise Refused(f"{build.name}: no room")
        make(build, store)

    monkeypatch.setattr(_store, "_make", fail_some)
    with pytest.raises(Refused, match="fa4_backward.*: no room"):
        prepare([D128], tmp_path)
    assert (tmp_path / "store.json").exists()
    assert len(made) == 2


def test_stores_that_cannot_be_are_refused(monkeypatch, tmp_path):
    _fake(monkeypatch, [])
    file = tmp_path / "file"
    file.write_text("")
    for out, part in [(file, "file cannot be a store: File exists"), ("", "no name"),
                      (file / "below", "cannot be a store: Not a directory")]:
        with pytest.raises(Refused, match=part):
            prepare([D128], out)
    with pytest.raises(Refused, match="jobs is 0: at least 1"):
        prepare([D128], tmp_path, jobs=0)
