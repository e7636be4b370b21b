"""Every key of masks, scores and calls, end to end: reports, files, the definition in Python."""

import math
import struct

import safetensors_files as files
from definition import Definition, keeps, relative_rms, values
from results import same_results

BASE = "dtype=f32 heads=4/2 dim=16 lengths=37,0,20 kv_lengths=24,9,41 mask=bottom_right"
RESULTS = ("o", "lse", "dq", "dk", "dv")

# Keys, and the tensors that the report names beyond RESULTS.
KEYS = [
    ("window=7,0", ()),
    ("window=-1,5", ()),
    ("window=9,4", ()),
    ("prefix=3,1,0", ()),
    ("chunk=8", ()),
    ("softcap=2.5", ()),
    ("alibi=default", ()),
    ("bias=1,1", ("dbias",)),
    ("bias=b,1", ("dbias",)),
    ("bias=1,h", ("dbias",)),
    ("bias=b,h", ("dbias",)),
    ("bias=1,1,1,s", ("dbias",)),
    ("sink=off_by_one", ()),
    ("sink=learnable", ("dsink",)),
    ("dropout=0.3", ()),
    ("max_logit=true", ("max_logit",)),
    ("deterministic=true", ()),
    ("invariant=true", ()),
]
ALL = (
    "window=19,-1 prefix=3,0,5 chunk=18 softcap=3 alibi=default bias=b,h sink=learnable "
    "dropout=0.25 deterministic=true max_logit=true"
)
ALL_RESULTS = {*RESULTS, "max_logit", "dsink", "dbias"}


def every_key(tool):
    """Alone, on one and three ranks, and again from the file that the run wrote."""
    for key, more in [*KEYS, (ALL, ("max_logit", "dsink", "dbias"))]:
        for ranks in (1, 3):
            arguments = ["--ranks", ranks]
            first = tool.expect_pass(
                [
                    "run",
                    "--problem",
                    f"{BASE} {key}",
                    *arguments,
                    "--seed",
                    3,
                    "--output",
                    "one.safetensors",
                ]
            )
            tool.expect(set(first["tensors"]) == {*RESULTS, *more}, f"{key}: {first['tensors']}")
            for part in key.split():
                tool.expect(part in first["problem"], f"{part}: {first['problem']}")
            again = tool.expect_pass(
                ["run", "--input", "one.safetensors", *arguments, "--output", "two.safetensors"]
            )
            tool.expect(again["problem"] == first["problem"], f"{again['problem']}")
            same_results(tool, "one.safetensors", "two.safetensors")


def all_together(tool):
    """In every type, with repeats; the report for people names all results."""
    for dtype in ("f64", "f32", "f16", "bf16"):
        text = f"{BASE} {ALL}".replace("dtype=f32", f"dtype={dtype}")
        report = tool.expect_pass(["run", "--problem", text, "--ranks", 3, "--repeat", 2])
        tool.expect(set(report["tensors"]) == ALL_RESULTS, f"{dtype}: {report['tensors']}")
        names = {check["name"] for check in report["checks"]}
        tool.expect({"max_logit ranks", "repeats"} <= names, f"{dtype}: {names}")
        if dtype in ("f16", "bf16"):
            for name in ALL_RESULTS - {"lse", "max_logit"}:
                tool.expect(f"{name} vs one rank" in names, f"{dtype}: {names}")
    plain = tool("run", "--problem", f"{BASE} {ALL}", "--ranks", 2)
    for name in ALL_RESULTS:
        tool.expect(f"\n  {name} " in plain.out, f"no {name} in {plain.out}")


def against_the_definition(tool):
    """All terms at once, as the file says it: inputs and results of three ranks."""
    for dtype, bar in (("f64", 1e-12), ("f32", 2e-6)):
        text = (
            f"dtype={dtype} heads=4/2 dim=6 dim_v=5 lengths=17,9 kv_lengths=13,15 {ALL} "
            "mask=bottom_right layout=thd"
        ).replace("prefix=3,0,5 chunk=18", "prefix=3,0 chunk=8")
        tool.expect_pass(
            ["run", "--problem", text, "--ranks", 3, "--seed", 8, "--output", "all.safetensors"]
        )
        tensors, metadata = files.read(tool.path("all.safetensors"))
        tool.expect("dropout_seed=8" in metadata["problem"], metadata["problem"])
        expected = Definition(tensors, metadata).run()
        dout = values(tensors["dout"])
        rms_dout = math.sqrt(math.fsum(x * x for x in dout) / len(dout))
        for name in sorted(ALL_RESULTS):
            floor = 1.0 if name in ("o", "lse", "max_logit") else rms_dout
            error = relative_rms(values(tensors[name]), expected[name], floor)
            tool.expect(error <= bar, f"{dtype} {name}: {error}")
        shapes = {name: tensors[name][:2] for name in tensors}
        wide = "F64" if dtype == "f64" else "F32"
        own = dtype.upper()
        for name, shape in {
            "sink": (wide, [4]),
            "dsink": (wide, [4]),
            "alibi_slopes": (wide, [4]),
            "max_logit": (wide, [4]),
            "bias": (own, [2, 4, 17, 15]),
            "dbias": (wide, [2, 4, 17, 15]),
        }.items():
            tool.expect(shapes[name] == shape, f"{name}: {shapes[name]}")
        sink = values(tensors["sink"])
        rounded = list(struct.unpack("<4f", struct.pack("<4f", *sink)))
        tool.expect(sink == rounded and any(sink), f"sink is not FP32: {sink}")


def rectangles(tool):
    """Queries shorter and longer than keys, both alignments, with a window: the rows that see no
    key are those of the definition."""
    for lengths in ("lengths=5 kv_lengths=19", "lengths=19 kv_lengths=5"):
        for mask in ("none", "causal"):
            for align in ("top_left", "bottom_right"):
                text = (
                    f"dtype=f64 heads=2/1 dim=3 {lengths} mask={mask} align={align} window=3,2 "
                    "alibi=default max_logit=true layout=thd"
                )
                tool.expect_pass(
                    ["run", "--problem", text, "--ranks", 3, "--output", "rectangle.safetensors"]
                )
                tensors, metadata = files.read(tool.path("rectangle.safetensors"))
                expected = Definition(tensors, metadata).run()
                for name in ("o", "lse", "max_logit", "dq", "dk", "dv"):
                    error = relative_rms(values(tensors[name]), expected[name], 1.0)
                    tool.expect(error <= 1e-12, f"{text}: {name}: {error}")


def dropout_masks(tool):
    """The same on any number of ranks, and the documented generator's."""
    text = "dtype=f32 heads=3/1 dim=8 lengths=11,0,6 kv_lengths=9,4,13 mask=causal dropout=0.4"
    for ranks in (1, 4):
        tool.expect_pass(
            ["run", "--problem", text, "--seed", 99, "--ranks", ranks, "--output", f"{ranks}.st"]
        )
    one, metadata = files.read(tool.path("1.st"))
    four, _ = files.read(tool.path("4.st"))
    tool.expect(one["dropout_keep"] == four["dropout_keep"], "the mask depends on the ranks")
    tool.expect("dropout_seed=99" in metadata["problem"], metadata["problem"])
    expected = bytes(
        keeps(0.4, 99, sequence, head, q, k)
        for sequence, (q_length, k_length) in enumerate(((11, 9), (0, 4), (6, 13)))
        for head in range(3)
        for q in range(q_length)
        for k in range(k_length)
    )
    tool.expect(one["dropout_keep"] == ("U8", [len(expected)], expected), "another mask")
    tool.expect(0 < sum(expected) < len(expected), "the mask is trivial")
    seeded = tool.expect_pass(["run", "--problem", f"{text} dropout_seed=7", "--seed", 99])
    tool.expect("dropout_seed=7" in seeded["problem"], seeded["problem"])
    plain = tool.expect_pass(["run", "--problem", text.replace(" dropout=0.4", ""), "--seed", 99])
    tool.expect("dropout_seed" not in plain["problem"], plain["problem"])


def large_dropout_masks_are_not_written(tool):
    text = "dtype=f32 heads=1/1 dim=1 lengths=8200 window=1,0 dropout=0.5"
    report = tool.expect_pass(["run", "--problem", text, "--output", "large.safetensors"])
    tool.expect(any("dropout_keep" in note for note in report["notes"]), str(report["notes"]))
    tool.expect("dropout_keep" not in files.read(tool.path("large.safetensors"))[0], "written")


def invariance(tool):
    """invariant=true: the bits of one rank on any number of them."""
    text = f"{BASE} {ALL} invariant=true".replace("dtype=f32", "dtype=bf16")
    for ranks in (1, 2, 3):
        tool.expect_pass(
            ["run", "--problem", text, "--ranks", ranks, "--output", f"{ranks}.safetensors"]
        )
    one, _ = files.read(tool.path("1.safetensors"))
    for ranks in (2, 3):
        other, _ = files.read(tool.path(f"{ranks}.safetensors"))
        for name in (*RESULTS, "max_logit"):
            tool.expect(one[name] == other[name], f"{name} on {ranks} ranks")
    tool.expect_refused(
        ["run", "--problem", text, "--ranks", 2, "--forward", "ring"],
        "ring",
        "all_to_all",
        status="declined",
    )


def forward_alone(tool):
    arguments = ["--problem", f"{BASE} {ALL}", "--ranks", 2, "--backward", "none"]
    report = tool.expect_pass(["run", *arguments, "--output", "forward.safetensors"])
    tool.expect(report["backward"] is None, str(report["backward"]))
    tool.expect(report["bytes_sent"]["backward"] is None, str(report["bytes_sent"]))
    tool.expect(report["seconds"]["backward"] is None, str(report["seconds"]))
    tool.expect(set(report["tensors"]) == {"o", "lse", "max_logit"}, str(report["tensors"]))
    tool.expect(len(report["bytes_sent"]["forward"]) == 2, str(report["bytes_sent"]))
    tensors, _ = files.read(tool.path("forward.safetensors"))
    gradients = {"dout", "dq", "dk", "dv", "dsink", "dbias"} & set(tensors)
    tool.expect(not gradients, f"{gradients} in a file of forward alone")
    tool.expect_pass(["run", "--problem", f"{BASE} {ALL}", "--output", "both.safetensors"])
    both, _ = files.read(tool.path("both.safetensors"))
    for name in ("o", "lse", "max_logit", "bias", "sink", "dropout_keep"):
        tool.expect(name in tensors, f"no {name}")
    tool.expect(tensors["max_logit"] == both["max_logit"], "max_logit of forward alone")
    plain = tool("run", *arguments)
    tool.expect("backward     none" in plain.out, plain.out)
    tool.expect("sent backward" not in plain.out, plain.out)

    explained = tool.expect_pass(["explain", *arguments])
    tool.expect(explained["backward"] is None and explained["saved"] == [], str(explained))
    tool.expect("softcap=3" in explained["features"], str(explained["features"]))
    tool.expect(
        explained["forward"]["bytes_sent"] == report["bytes_sent"]["forward"],
        f"{explained['forward']} / {report['bytes_sent']}",
    )
    scheduled = tool.expect_pass(["schedule", *arguments])
    tool.expect(scheduled["direction"] == "forward", str(scheduled))
    tool.expect_refused(
        ["schedule", *arguments, "--direction", "backward"], "--backward none", "drop one"
    )
    rows = tool.expect_pass(["simulate", *arguments])["rows"]
    tool.expect(rows and {row["direction"] for row in rows} == {"forward"}, str(rows))
    tool.expect_refused(["simulate", *arguments[:-1], "ring"], "--backward ring", "auto or none")


def pages(tool):
    """Where keys lie changes no bit. Backward is declined, and the remedy works."""
    for dtype, layout in (("f32", "thd"), ("bf16", "bshd")):
        shape = "lengths=30,30 kv_lengths=40,40" if layout == "bshd" else "lengths=9,0,30"
        text = f"dtype={dtype} heads=4/2 dim=16 {shape} mask=bottom_right layout={layout}"
        for ranks in (1, 3):
            arguments = ["--ranks", ranks, "--backward", "none", "--partition", "contiguous"]
            tool.expect_pass(["run", "--problem", text, *arguments, "--output", "rows.st"])
            report = tool.expect_pass(
                ["run", "--problem", f"{text} page=8", *arguments, "--output", "pages.st"]
            )
            tool.expect("page=8" in report["problem"], report["problem"])
            rows, _ = files.read(tool.path("rows.st"))
            paged, _ = files.read(tool.path("pages.st"))
            if layout == "bshd":  # no padding: the same partition
                for name in ("q", "k", "v", "o", "lse"):
                    tool.expect(rows[name] == paged[name], f"{text} at {ranks} ranks: {name}")
            again = tool.expect_pass(["run", "--input", "pages.st", *arguments, "--output", "2.st"])
            tool.expect(again["problem"] == report["problem"], again["problem"])
            same_results(tool, "pages.st", "2.st")
        for command in ("run", "explain", "schedule", "simulate"):
            tool.expect_refused(
                [command, "--problem", f"{text} page=8"], "page", "none", status="declined"
            )


def nothing_visible(tool):
    """No pair at all: max_logit is -inf, LSE the sink, gradients 0."""
    text = "dtype=f32 heads=2/1 dim=8 lengths=5,2 kv_lengths=0,0 sink=learnable max_logit=true"
    tool.expect_pass(
        ["run", "--problem", text + " bias=1,h", "--ranks", 2, "--output", "none.safetensors"]
    )
    tensors, _ = files.read(tool.path("none.safetensors"))
    tool.expect(values(tensors["max_logit"]) == [-math.inf] * 2, "max_logit")
    tool.expect(values(tensors["lse"]) == values(tensors["sink"]) * 7, "lse")
    tool.expect(values(tensors["dsink"]) == [0.0, 0.0], "dsink")
    tool.expect(tensors["bias"][1] == [1, 2, 5, 0], str(tensors["bias"][1]))


def lengths_of_the_call(tool):
    """Drawn from the seed; the file holds the problem of these lengths. Promises are checked."""
    text = "dtype=f32 heads=4/2 dim=8 lengths=40,17,9 kv_lengths=30,17,20 mask=causal"
    asked = f"{text} device_lengths=true sink=learnable"
    for ranks in (1, 3):
        first = tool.expect_pass(
            ["run", "--problem", asked, "--ranks", ranks, "--repeat", 2, "--output", "one.st"]
        )
        tool.expect("device_lengths=true" in first["problem"], first["problem"])
        again = tool.expect_pass(["run", "--input", "one.st", "--ranks", ranks])
        tool.expect("device_lengths" not in again["problem"], again["problem"])
        tool.expect("lengths=40,17,9 " not in again["problem"], again["problem"])
    promise = ["--promise", "uniform_lengths"]
    tool.expect_pass(["run", "--problem", f"{asked} align=bottom_right", *promise])
    tool.expect_refused(
        ["run", "--problem", f"{asked} align=bottom_right"],
        "device_lengths",
        "use align=top_left",
        status="declined",
    )
    run = ["run", "--problem", asked]
    tool.expect_refused([*run, "--promise", "uniform"], "uniform_lengths")
    tool.expect_refused([*run, "--guards", "off"], "report and trap")
    tool.expect_refused([*run, "--guards", "trap"], "only CUDA devices trap")


def cases():
    return [
        every_key,
        all_together,
        against_the_definition,
        rectangles,
        dropout_masks,
        large_dropout_masks_are_not_written,
        invariance,
        forward_alone,
        pages,
        nothing_visible,
        lengths_of_the_call,
    ]
