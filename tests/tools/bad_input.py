"""Each bad flag and problem text: exit code 2, and a message that names value, limit and remedy."""

import json
import os
import subprocess

PROBLEM = "dtype=f32 heads=4/2 dim=8 lengths=16,5 mask=causal"

# Problem texts and what the message must name.
TEXTS = [
    ("dtype=f32 heads=6/4 dim=8 lengths=16", "heads=6/4", "multiple"),
    ("dtype=f32 heads=4 dim=8 lengths=16", "heads=4", "allowed"),
    ("dtype=f32 heads=0/0 dim=8 lengths=16", "heads=0/0", "allowed"),
    ("dtype=f32 heads=4/2 dim=8 lengths=-3", "lengths=-3", "allowed"),
    (
        "dtype=f32 heads=4/2 dim=8 lengths=99999999999999999999",
        "lengths=99999999999999999999",
        "allowed",
    ),
    ("dtype=f32 heads=4/2 dim=8 lengths=2147483648,1", "2147483649", "2147483648"),
    ("dtype=f32 heads=4/2 dim=8 lengths=4,x", "lengths=4,x", "allowed"),
    ("dtype=f32 heads=4/2 dim=577 lengths=16", "dim=577", "1..576"),
    ("dtype=f32 heads=4/2 dim=0 lengths=16", "dim=0", "1..576"),
    ("dtype=f8 heads=4/2 dim=8 lengths=16", "dtype=f8", "bf16"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 mask=diagonal", "mask=diagonal", "causal"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 flavour=red", "flavour", "the keys are"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 dim=8", "dim is given twice", ""),
    ("dtype=f32 heads=4/2 dim=8 lengths=", "lengths is empty", ""),
    ("dtype=f32 heads=4/2 dim=8", "lengths is missing", ""),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 padded=8", "padded", "16"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 kv_lengths=3,4", "kv_lengths has 2", ""),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 tokens=8", "tokens=8", "16"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16,5 layout=bshd", "layout=bshd", "thd"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 window=3", "window=3", "L,R"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 softcap=-1", "softcap=-1", "allowed"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 dropout=1", "dropout=1", "[0,1)"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 bias=h,1", "bias=h,1", "1,1,1,s"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16,4 prefix=3", "prefix has 1", "lengths has 2"),
    ("dtype=f32 heads=4/2 dim=8 lengths=16 kv_padded=17 page=4", "kv_padded", "page=4"),
    ("nonsense", "key=value", ""),
]

FLAGS = [
    (["run", "--speed", "9", "--problem", PROBLEM], "--speed", "longspan run --help"),
    (["fly"], "fly", "--help"),
    (["run"], "--problem TEXT or --input FILE", ""),
    (["run", "--ranks", "0", "--problem", PROBLEM], "--ranks 0", "from 1 to"),
    (["run", "--output", "", "--problem", PROBLEM], "--output is empty", "drop the flag"),
    (["run", "--ranks", "", "--problem", PROBLEM], "--ranks is empty", "drop the flag"),
    (
        ["run", "--problem", "dtype=f32 heads=64/64 dim=512 lengths=2000000000"],
        "would need",
        "this machine has",
        "use fewer tokens",
    ),
    (["run", "--ranks", "-2", "--problem", PROBLEM], "--ranks -2", "from 1 to"),
    (["run", "--ranks", "2", "--nodes", "3", "--problem", PROBLEM], "--nodes 3", "2 ranks"),
    (["run", "--forward", "carousel", "--problem", PROBLEM], "carousel", "ring"),
    (["run", "--backward", "carousel", "--problem", PROBLEM], "carousel", "head_parallel"),
    (["run", "--partition", "diagonal", "--problem", PROBLEM], "diagonal", "zigzag"),
    (["run", "--provider", "require:gpu/fast", "--problem", PROBLEM], "gpu/fast", "cpu/tiled"),
    (["run", "--provider", "maybe:cpu/tiled", "--problem", PROBLEM], "maybe", "require"),
    (["run", "--communicator", "pigeon", "--problem", PROBLEM], "pigeon", "threads"),
    (["run", "--communicator", "nccl", "--problem", PROBLEM], "nccl", "--device cuda"),
    (["run", "--check", "twice", "--problem", PROBLEM], "twice", "fp64"),
    (["run", "--rates", "missing.json", "--problem", PROBLEM], "missing.json", "cannot be read"),
    (["run", "--rates", "/", "--problem", PROBLEM], "--rates '/'", "Is a directory"),
    (["run", "--cudnn", "nowhere", "--problem", PROBLEM], "--cudnn 'nowhere'", "libcudnn.so.9"),
    (["run", "--prepared", "nowhere", "--problem", PROBLEM], "prepared", ""),
    (
        ["run", "--output", "no/such/folder/x", "--problem", PROBLEM],
        "no/such/folder/x",
        "cannot write",
    ),
    (["run", "--output", ".", "--problem", PROBLEM], "cannot write '.'", "directory"),
    (["run", "--input", "missing.safetensors"], "missing.safetensors", "cannot be opened"),
    (["run", "--fail-rank", "3", "--problem", PROBLEM], "--fail-rank 3", "1 ranks"),
    (
        ["schedule", "--plot", "no/such/folder/x", "--problem", PROBLEM],
        "no/such/folder/x",
        "cannot write",
    ),
    (["support", "--format", "html"], "--format html", "markdown, json"),
    (["schedule", "--ranks", "2", "--rank", "2", "--problem", PROBLEM], "--rank 2", "0 to 1"),
]


def problem_texts(tool):
    for command in ("run", "explain", "schedule", "simulate"):
        for text, *parts in TEXTS if command == "run" else TEXTS[:2]:
            tool.expect_refused([command, "--problem", text], *parts)


def flags(tool):
    for arguments, *parts in FLAGS:
        tool.expect_refused(arguments, *parts)
    tool.expect(os.listdir(tool.folder) == [], "a refused command left a file")


def eight_bits(tool):
    for recipe in ("delayed", "current", "mxfp8"):
        arguments = ["--problem", f"{PROBLEM} fp8={recipe}"]
        tool.expect_refused(["run", *arguments], f"fp8={recipe}", "remove", status="declined")
        report = tool("run", *arguments, "--json", "-").json
        codes = {decline["code"] for decline in report["declines"]}
        tool.expect("fp8" in codes, f"{recipe}: {codes}")
        for command in ("schedule", "simulate"):  # figures of another problem would be wrong
            tool.expect_refused([command, *arguments], f"fp8={recipe}", status="declined")


def routing_declines(tool):
    """require never falls back; off for all leaves nobody."""
    text = "dtype=f32 heads=4/2 dim=8 lengths=16"
    arguments = ["run", "--problem", text, "--provider", "off:cpu/tiled"]
    report = tool.expect_pass(arguments)
    tool.expect(report["forward"]["provider"] == "cpu/reference", str(report["forward"]))
    off = [decline for decline in report["declines"] if decline["code"] == "off"]
    tool.expect({decline["direction"] for decline in off} == {"forward", "backward"}, str(off))
    tool.expect_refused(
        ["run", "--problem", text, "--ranks", 2, "--forward", "head_parallel"],
        "head_parallel",
        status="declined",
    )


def unwritable_json(tool):
    run = tool("run", "--problem", PROBLEM, "--json", "no/such/folder/x")
    tool.expect(run.code == 2 and "cannot write" in run.err, run.err)


def usage_error_in_a_file(tool):
    run = tool("run", "--speed", 3, "--problem", PROBLEM, "--json", "usage.json")
    tool.expect(run.code == 2 and run.out == "", run.out)
    with open(tool.path("usage.json")) as file:
        tool.expect("--speed" in json.load(file)["message"], run.err)


def full_standard_output(tool):
    if not os.path.exists("/dev/full"):
        return
    for words in (["--json", "-"], []):
        command = [tool.program, "list", *words]
        with open("/dev/full", "w") as full:
            process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        tool.expect(process.returncode == 2, f"{words}: exit code {process.returncode}")
        tool.expect("cannot write the report" in process.stderr, process.stderr)


def rates_files(tool):
    for content, part in (
        ("{", "JSON"),
        ('{"speed": 1}', "speed"),
        ('{"node_bytes": "fast"}', "node_bytes"),
        ('{"node_bytes": -1}', "node_bytes"),
    ):
        with open(tool.path("rates.json"), "w") as file:
            file.write(content)
        tool.expect_refused(
            ["simulate", "--rates", "rates.json", "--problem", PROBLEM], "rates.json", part
        )


def cases():
    return [
        flags,
        problem_texts,
        eight_bits,
        routing_declines,
        unwritable_json,
        usage_error_in_a_file,
        full_standard_output,
        rates_files,
    ]
