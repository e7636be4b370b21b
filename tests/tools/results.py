"""Runs that must succeed: results in files, repeats, all strategies, reports of every command."""

import json
import os
import struct

import safetensors_files as files

PACKED = "dtype=f32 heads=4/2 dim=16 lengths=50,0,13,1 mask=causal"
RESULTS = ("o", "lse", "dq", "dk", "dv")


def report_shape(tool):
    report = tool.expect_pass(["run", "--problem", PACKED, "--ranks", 3])
    for key in (
        "status",
        "problem",
        "ranks",
        "version",
        "message",
        "forward",
        "backward",
        "tensors",
        "bytes_sent",
        "peak_bytes",
        "seconds",
        "declines",
    ):
        tool.expect(key in report, f"{key} is missing")
    for direction in ("forward", "backward"):
        for key in ("strategy", "provider", "partition"):
            tool.expect(isinstance(report[direction][key], str), f"{direction}.{key}")
        tool.expect(len(report["bytes_sent"][direction]) == 3, "bytes_sent per rank")
    for name in RESULTS:
        tool.expect(set(report["tensors"][name]) == {"relative_rms", "max_abs", "max_rel"}, name)
    tool.expect(len(report["peak_bytes"]) == 3, "peak_bytes per rank")
    tool.expect(report["message"].startswith("PASS "), report["message"])
    plain = tool("run", "--problem", PACKED, "--ranks", 3)
    last = plain.out.strip().splitlines()[-1]
    tool.expect(last == report["message"], f"{last} instead of {report['message']}")
    tool.expect(plain.err == "", plain.err)


def json_to_a_file(tool):
    run = tool("run", "--problem", PACKED, "--json", "report.json")
    tool.expect(run.code == 0 and "PASS" in run.out, run.err)
    with open(tool.path("report.json")) as file:
        tool.expect(json.load(file)["status"] == "pass", "report.json")


def same_results(tool, first, second):
    one, _ = files.read(tool.path(first))
    two, _ = files.read(tool.path(second))
    tool.expect(set(one) == set(two), f"{set(one) ^ set(two)}")
    for name in one:
        tool.expect(one[name] == two[name], f"{name} differs between {first} and {second}")


def round_trips(tool):
    """What --output writes, --input reads: the same problem, the same bits."""
    for text in (
        PACKED + " padded=64,0,16,2 tokens=90 scale=0.5",
        "dtype=f16 heads=2/2 dim=32 dim_v=24 lengths=90,90 kv_lengths=70,120 kv_padded=120,120 "
        "mask=bottom_right layout=sbhd",
        "dtype=bf16 heads=3/1 dim=24 lengths=110,70 padded=120,120 layout=bshd kv_padded=110,110",
        "dtype=f64 heads=1/1 dim=3 lengths=9 mask=causal layout=thd",
    ):
        arguments = ["--ranks", 2, "--partition", "contiguous", "--seed", 11]
        first = tool.expect_pass(
            ["run", "--problem", text, *arguments, "--output", "one.safetensors"]
        )
        second = tool.expect_pass(
            ["run", "--input", "one.safetensors", *arguments[:-2], "--output", "two.safetensors"]
        )
        tool.expect(
            first["problem"] == second["problem"], f"{first['problem']} / {second['problem']}"
        )
        tool.expect(second["seed"] == 11, f"seed {second['seed']}")
        tool.expect(any("not used" in note for note in second["notes"]), str(second["notes"]))
        same_results(tool, "one.safetensors", "two.safetensors")
    left = sorted(os.listdir(tool.folder))
    tool.expect(not any(".safetensors." in name for name in left), f"temporary files: {left}")


def output_contents(tool):
    """Shapes, padding and metadata of the file, read by an independent reader."""
    text = "dtype=f32 heads=2/1 dim=4 lengths=3,2 padded=4,4 kv_padded=3,2 tokens=9"
    tool.expect_pass(["run", "--problem", text, "--output", "out.safetensors", "--seed", 2])
    tensors, metadata = files.read(tool.path("out.safetensors"))
    tool.expect(
        metadata["seed"] == "2" and metadata["problem"].startswith("dtype=f32"), str(metadata)
    )
    tool.expect("longspan" in metadata, str(metadata))
    tool.expect(tensors["o"][:2] == ("F32", [9, 2, 4]), str(tensors["o"][:2]))
    tool.expect(tensors["lse"][:2] == ("F32", [9, 2]), str(tensors["lse"][:2]))
    tool.expect(tensors["dk"][:2] == ("F32", [5, 1, 4]), str(tensors["dk"][:2]))
    lse = struct.unpack("<18f", tensors["lse"][2])
    o = struct.unpack("<72f", tensors["o"][2])
    for row in range(9):
        token = row in (0, 1, 2, 4, 5)
        tool.expect((lse[2 * row] != float("-inf")) == token, f"lse of row {row}: {lse[2 * row]}")
        tool.expect(any(o[8 * row : 8 * row + 8]) == token, f"o of row {row}")
    tool.expect(struct.unpack("<3i", tensors["cu_seqlens_q"][2]) == (0, 3, 5), "cu_seqlens_q")
    tool.expect(struct.unpack("<3i", tensors["cu_seqlens_q_padded"][2]) == (0, 4, 8), "padded")


def an_existing_output_survives(tool):
    with open(tool.path("kept"), "w") as file:
        file.write("old")
    run = tool("run", "--problem", PACKED + " fp8=mxfp8", "--output", "kept")
    tool.expect(run.code == 2, run.err)
    with open(tool.path("kept")) as file:
        tool.expect(file.read() == "old", "a declined run overwrote its output")


def missing_dout(tool):
    tool.expect_pass(["run", "--problem", PACKED, "--seed", 4, "--output", "full.safetensors"])
    tensors, metadata = files.read(tool.path("full.safetensors"))
    kept = {name: tensors[name] for name in ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k")}
    files.write(tool.path("some.safetensors"), kept, {"problem": "mask=causal", "seed": "4"})
    report = tool.expect_pass(
        ["run", "--input", "some.safetensors", "--output", "again.safetensors"]
    )
    tool.expect(any("dout is drawn" in note for note in report["notes"]), str(report["notes"]))
    same_results(tool, "full.safetensors", "again.safetensors")


def keys_follow_queries(tool):
    """Without cu_seqlens_k, keys are as long as queries."""
    problem = "dtype=f32 heads=2/1 dim=8 lengths=7,0,12 mask=causal layout=thd"
    tool.expect_pass(["run", "--problem", problem, "--output", "both.safetensors"])
    tensors, metadata = files.read(tool.path("both.safetensors"))
    kept = {name: tensors[name] for name in ("q", "k", "v", "dout", "cu_seqlens_q")}
    files.write(tool.path("one.safetensors"), kept, {"problem": "mask=causal"})
    tool.expect_pass(["run", "--input", "one.safetensors", "--output", "follows.safetensors"])
    same_results(tool, "both.safetensors", "follows.safetensors")


def strategies(tool):
    for forward, backward in (
        ("ring", "ring"),
        ("all_gather", "all_gather"),
        ("all_to_all", "all_to_all"),
        ("ring", "head_parallel"),
        ("all_to_all", "head_parallel"),
    ):
        report = tool.expect_pass(
            ["run", "--problem", PACKED, "--ranks", 3, "--forward", forward, "--backward", backward]
        )
        tool.expect(report["forward"]["strategy"] == forward, str(report["forward"]))
        tool.expect(report["backward"]["strategy"] == backward, str(report["backward"]))
    report = tool.expect_pass(
        [
            "run",
            "--problem",
            PACKED,
            "--ranks",
            4,
            "--nodes",
            2,
            "--forward",
            "hybrid",
            "--backward",
            "hybrid",
        ]
    )
    tool.expect(report["nodes"] == 2, str(report["nodes"]))


def partitions(tool):
    for partition in ("contiguous", "zigzag", "striped", "balanced"):
        report = tool.expect_pass(
            ["run", "--problem", PACKED, "--ranks", 3, "--partition", partition]
        )
        tool.expect(report["forward"]["partition"] == partition, str(report["forward"]))


def sixteen_bits(tool):
    """Three ranks are as exact as one; the report holds the rule."""
    for dtype in ("f16", "bf16"):
        text = f"dtype={dtype} heads=4/2 dim=32 lengths=150,41 mask=causal"
        report = tool.expect_pass(["run", "--problem", text, "--ranks", 3])
        names = {check["name"] for check in report["checks"]}
        for name in ("o", "dq", "dk", "dv"):
            tool.expect(f"{name} vs one rank" in names, f"{dtype}: {names}")
        alone = tool.expect_pass(["run", "--problem", text])
        tool.expect(
            not any("one rank" in check["name"] for check in alone["checks"]), str(alone["checks"])
        )


def repeats_and_threads(tool):
    report = tool.expect_pass(
        [
            "run",
            "--problem",
            PACKED,
            "--ranks",
            2,
            "--repeat",
            3,
            "--threads",
            1,
            "--output",
            "one_thread.safetensors",
        ]
    )
    repeats = [check for check in report["checks"] if check["name"] == "repeats"]
    tool.expect(len(repeats) == 1 and repeats[0]["value"] == 0, str(repeats))
    tool.expect_pass(
        [
            "run",
            "--problem",
            PACKED,
            "--ranks",
            2,
            "--threads",
            3,
            "--output",
            "three_threads.safetensors",
        ]
    )
    same_results(tool, "one_thread.safetensors", "three_threads.safetensors")


def unchecked(tool):
    report = tool.expect_pass(["run", "--problem", PACKED, "--check", "none"])
    tool.expect(report["tensors"] == {}, str(report["tensors"]))
    tool.expect(any("not compared" in note for note in report["notes"]), str(report["notes"]))


def lost_rank(tool):
    """Survivors report within the deadline; exit code 3."""
    for rank in (0, 1):
        arguments = [
            "run",
            "--problem",
            PACKED,
            "--ranks",
            3,
            "--fail-rank",
            rank,
            "--deadline",
            1,
            "--output",
            "lost.safetensors",
        ]
        tool.expect_refused(arguments, "peer_lost", code=3)
    tool.expect(not os.path.exists(tool.path("lost.safetensors")), "a failed run left its output")


def explain(tool):
    report = tool.expect_pass(["explain", "--problem", PACKED, "--ranks", 4, "--forward", "ring"])
    tool.expect(report["forward"]["strategy"] == "ring", str(report["forward"]))
    tool.expect(len(report["forward"]["bytes_sent"]) == 4, "bytes per rank")
    tool.expect(len(report["backward"]["workspace_bytes"]) == 4, "workspace per rank")
    tool.expect({buffer["name"] for buffer in report["saved"]} != set(), "saved layout")
    run = tool.expect_pass(["run", "--problem", PACKED, "--ranks", 4, "--forward", "ring"])
    for direction in ("forward", "backward"):
        tool.expect(
            run["bytes_sent"][direction] == report[direction]["bytes_sent"],
            f"{direction}: {run['bytes_sent'][direction]} sent, "
            f"{report[direction]['bytes_sent']} said",
        )
    plain = tool("explain", "--problem", PACKED, "--ranks", 4)
    for part in ("partition", "saved for backward", "estimated"):
        tool.expect(part in plain.out, f"no {part} in {plain.out}")


def schedule(tool):
    for direction in ("forward", "backward"):
        report = tool.expect_pass(
            [
                "schedule",
                "--problem",
                PACKED,
                "--ranks",
                3,
                "--direction",
                direction,
                "--plot",
                "lanes.svg",
            ]
        )
        tool.expect(report["direction"] == direction and len(report["schedules"]) == 3, str(report))
        with open(tool.path("lanes.svg")) as file:
            content = file.read()
        tool.expect("<svg" in content and "</svg>" in content, content[:100])
    plain = tool("schedule", "--problem", PACKED, "--ranks", 2, "--forward", "ring", "--all")
    tool.expect("attend" in plain.out and "PASS 1 checks" in plain.out, plain.out)


def simulate(tool):
    text = "dtype=bf16 heads=32/8 dim=128 lengths=1048576 mask=causal"
    report = tool.expect_pass(["simulate", "--problem", text, "--ranks", 2048, "--nodes", 256])
    tool.expect(report["sampled_ranks"] == 9, str(report["sampled_ranks"]))
    pairs = {(row["strategy"], row["direction"]) for row in report["rows"]}
    for name in ("ring", "all_gather", "all_to_all", "hybrid"):
        tool.expect((name, "forward") in pairs, f"{name}: {pairs}")
    tool.expect(("head_parallel", "backward") in pairs, str(pairs))
    with open(tool.path("slow.json"), "w") as file:
        file.write('{"forward_flops": 6e12}')
    small = ["simulate", "--problem", text, "--ranks", 8]
    fast = tool.expect_pass(small)
    slow = tool.expect_pass([*small, "--rates", "slow.json"])

    def forward_compute(report):
        return {
            row["strategy"]: row["compute_seconds"]
            for row in report["rows"]
            if row["direction"] == "forward"
        }

    for name, seconds in forward_compute(fast).items():
        tool.expect(forward_compute(slow)[name] > 50 * seconds, f"{name}: rates are not used")


def lists_and_help(tool):
    report = tool.expect_pass(["list"])
    tool.expect([item["name"] for item in report["providers"]][-1] == "cpu/reference", str(report))
    tool.expect(len(report["strategies"]) == 5, str(report["strategies"]))
    tool.expect("cpu/tiled" in tool("list").out, "list")
    version = tool("--version")
    tool.expect(version.code == 0 and version.out.startswith("longspan "), version.out)
    tool.expect("run" in tool("--help").out, "--help")


def cases():
    return [
        report_shape,
        json_to_a_file,
        round_trips,
        output_contents,
        an_existing_output_survives,
        missing_dout,
        keys_follow_queries,
        strategies,
        partitions,
        sixteen_bits,
        repeats_and_threads,
        unchecked,
        lost_rank,
        explain,
        schedule,
        simulate,
        lists_and_help,
    ]
