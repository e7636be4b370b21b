"""What the package offers without a framework."""

import importlib.metadata
import json
import pathlib
import subprocess
import sys

import pytest

import longspan

TEXT = "dtype=bf16 heads=8/2 dim=64 lengths=100,20 mask=causal"


def test_the_problem_text_is_that_of_the_command_line():
    text = longspan.problem_text(dtype="bf16", heads=(8, 2), dim=64, lengths=[100, 20], causal=True)
    assert longspan.canonical_problem(text) == TEXT


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"window": (128, 0)}, "window=128,0"),
        ({"window": 16}, "window=16,16"),
        ({"kv_lengths": [30, 20], "align": "bottom_right"}, "align=bottom_right"),
        ({"prefix": [3, 0]}, "prefix=3,0"),
        ({"chunk": 32}, "chunk=32"),
        ({"scale": 0.5}, "scale=0.5"),
        ({"softcap": 30.0}, "softcap=30"),
        ({"alibi": True}, "alibi=default"),
        ({"bias": "b,h"}, "bias=b,h"),
        ({"sink": "learnable"}, "sink=learnable"),
        ({"dropout": 0.1}, "dropout=0.1"),
        ({"max_logit": True}, "max_logit=true"),
        ({"deterministic": True}, "deterministic=true"),
        ({"device_lengths": True}, "device_lengths=true"),
        ({"dim_v": 128}, "dim_v=128"),
        ({"padded": [128, 20]}, "padded=128,20"),
    ],
)
def test_every_argument_becomes_its_key(arguments, key):
    required = {"dtype": "bf16", "heads": (8, 2), "dim": 64, "lengths": [100, 20], "causal": True}
    text = longspan.problem_text(**required, **arguments)
    assert key in longspan.canonical_problem(text).split()


def test_alignment_must_be_named_where_it_matters():
    required = {"dtype": "f32", "heads": (1, 1), "dim": 8, "lengths": [4], "kv_lengths": [6]}
    longspan.problem_text(**required)
    for mask in ({"causal": True}, {"window": (2, 0)}):
        with pytest.raises(longspan.InvalidArgument, match="bottom_right"):
            longspan.problem_text(**required, **mask)


def test_bad_input_names_value_limit_and_remedy():
    with pytest.raises(longspan.InvalidArgument, match="heads=8/3: .* multiple") as raised:
        longspan.canonical_problem("dtype=bf16 heads=8/3 dim=64 lengths=4")
    assert isinstance(raised.value, ValueError)
    assert raised.value.code == "invalid_argument"


def test_explain_is_the_report_of_the_command_line():
    options = longspan.Options(forward="ring", backward="ring")
    report = longspan.explain(TEXT, ranks=4, options=options)
    assert report["status"] == "pass"
    assert report["forward"]["strategy"] == "ring"
    declined = longspan.explain(TEXT + " fp8=delayed", ranks=4)
    assert declined["status"] == "declined"
    assert any(decline["code"] == "fp8" for decline in declined["declines"])
    with pytest.raises(longspan.InvalidArgument, match="ranks 0"):
        longspan.explain(TEXT, ranks=0)
    with pytest.raises(longspan.InvalidArgument, match="lenghts"):
        longspan.explain("dtype=f32 heads=1/1 dim=8 lenghts=8")


def test_routing_options_reach_the_report():
    options = longspan.Options(forward_provider="require:cpu/reference")
    report = longspan.explain(TEXT, options=options)
    assert report["forward"]["provider"] == "cpu/reference"
    assert report["backward"]["provider"] == "cpu/tiled"


def test_a_folder_that_is_no_store_cannot_be_named(tmp_path):
    refusals = (longspan.InvalidArgument, longspan.Unsupported)  # the second where not built
    with pytest.raises(refusals, match="longspan prepare --out|built without prepared"):
        longspan.set_prepared_store(tmp_path)


def test_routing_tables_reach_the_report(tmp_path):
    row = {"device": "cpu", "direction": "forward", "dtype": "bf16", "dim": 64, "dim_v": 64,
           "mask": "causal", "packed": True, "deterministic": False, "length": 60,
           "median_us": {"cpu/tiled": 100, "cpu/reference": 80}}
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"format": 1, "fingerprint": {}, "rows": [row]}))
    report = longspan.explain(TEXT, options=longspan.Options(routing_table=str(table)))
    assert report["forward"]["provider"] == "cpu/reference"
    assert report["backward"]["provider"] == "cpu/tiled"
    none = longspan.explain(TEXT, options=longspan.Options(routing_table=str(tmp_path / "none")))
    assert none["status"] == "error"
    assert "cannot be read" in none["message"]


def test_schedule_simulate_and_support_report():
    assert longspan.schedule(TEXT, ranks=2)["status"] == "pass"
    assert longspan.simulate(TEXT, ranks=2)["status"] == "pass"
    names = [row["option"] for row in longspan.support()["rows"]]
    assert len(names) > 20


def test_needs_no_framework():
    code = (
        "import sys; sys.modules.update(torch=None, jax=None, numpy=None);"
        f"import longspan; print(longspan.canonical_problem('{TEXT}'))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == TEXT


def test_a_native_library_of_another_version_is_refused(monkeypatch):
    from longspan import _native

    monkeypatch.setattr(importlib.metadata, "version", lambda _: "9.9")
    with pytest.raises(ImportError, match="version .*, the Python package 9.9.*force-reinstall"):
        _native._load()
    monkeypatch.setattr(_native, "_PATH", pathlib.Path("nowhere.so"))
    with pytest.raises(ImportError, match="nowhere.so is missing.*pip install"):
        _native._load()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 4}, "heads is 4"),
        ({"heads": (4, 2, 1)}, "of keys and values"),
        ({"lengths": 8}, "lengths is 8"),
        ({"lengths": [8.5]}, "list of integers"),
        ({"window": (1, 2, 3)}, "window is"),
        ({"alibi": "default"}, "alibi is 'default'"),
        ({"scale": "half"}, "scale is 'half'"),
        ({"chunk": 2.5}, "chunk is"),
    ],
)
def test_arguments_of_other_kinds_are_refused_by_name(change, message):
    problem = {"dtype": "f32", "heads": (4, 2), "dim": 8, "lengths": [8], **change}
    with pytest.raises(longspan.InvalidArgument, match=message):
        longspan.problem_text(**problem)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"deadline": float("inf")}, "deadline of Options is inf"), ({"deadline": -1}, "positive"),
     ({"partition": 3}, "partition of Options is 3"),
     ({"require_fp32_partials": "no"}, "type bool")],
)
def test_options_of_other_kinds_are_refused_by_name(change, message):
    with pytest.raises(longspan.InvalidArgument, match=message):
        longspan.Options(**change)
