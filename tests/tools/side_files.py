"""Sink, slopes and bias in files: what the keys become, and what is refused."""

import math
import struct

import safetensors_files as files
from definition import Definition, relative_rms, values
from hostile_files import inputs, refuse

ROWS, HEADS = 10, 2


def floats(shape, value=0.25):
    count = math.prod(shape)
    return files.tensor("F32", shape, struct.pack(f"<{count}f", *[value] * count))


def drawn(tool, text, seed=1):
    """Tensors and metadata of a run of `text`."""
    tool.expect_pass(["run", "--problem", text, "--seed", seed, "--output", "drawn.safetensors"])
    return files.read(tool.path("drawn.safetensors"))


def run_file(tool, tensors, metadata=None, problem=None, ranks=2):
    """The report and the tensors of a run on tensors."""
    files.write(tool.path("in.safetensors"), tensors, metadata)
    more = [] if problem is None else ["--problem", problem]
    report = tool.expect_pass(
        [
            "run",
            "--input",
            "in.safetensors",
            "--ranks",
            ranks,
            *more,
            "--output",
            "out.safetensors",
        ]
    )
    return report, files.read(tool.path("out.safetensors"))[0]


def keys_follow_tensors(tool):
    """Tensors alone state sink, alibi and the kind of bias; a key that agrees may stand beside."""
    batch = {
        "q": files.tensor("F32", [3, 6, 2, 4]),
        "k": files.tensor("F32", [3, 5, 1, 4]),
        "v": files.tensor("F32", [3, 5, 1, 4]),
    }
    for name, tensor, key in (
        ("sink", floats([2]), "sink=learnable"),
        ("alibi_slopes", floats([2]), "alibi=default"),
        ("bias", floats([1, 1, 6, 5]), "bias=1,1"),
        ("bias", floats([3, 1, 6, 5]), "bias=b,1"),
        ("bias", floats([1, 2, 6, 5]), "bias=1,h"),
        ("bias", floats([3, 2, 6, 5]), "bias=b,h"),
        ("bias", floats([1, 1, 1, 5]), "bias=1,1,1,s"),
    ):
        for problem in (None, key):
            report, tensors = run_file(tool, {**batch, name: tensor}, problem=problem)
            tool.expect(key in report["problem"].split(), f"{key}: {report['problem']}")
            tool.expect(tensors[name] == tensor, f"{name} is not written as it was read")
    one = {name: files.tensor("F32", [1, 6, 1, 4]) for name in "qkv"}
    report, _ = run_file(tool, {**one, "bias": floats([1, 1, 6, 6])}, problem="bias=b,h")
    tool.expect("bias=b,h" in report["problem"], report["problem"])
    report, _ = run_file(tool, {**one, "bias": floats([1, 1, 6, 6])})
    tool.expect("bias=1,1" in report["problem"], report["problem"])
    row = {name: files.tensor("F32", [1, 1, 1, 4]) for name in "qkv"}
    report, _ = run_file(tool, {**row, "bias": floats([1, 1, 1, 1])})
    tool.expect("bias=1,1" in report["problem"].split(), report["problem"])


def given_values_are_used(tool):
    """Slopes, sinks and bias of the file enter the result, as the definition says."""
    text = "dtype=f64 heads=2/1 dim=3 lengths=6,4 kv_lengths=5,7 mask=causal layout=thd"
    tensors, metadata = drawn(tool, text)
    inputs_only = {name: tensors[name] for name in tensors if name not in ("o", "lse")}
    sides = {
        "sink": files.tensor("F64", [2], struct.pack("<2d", -0.5, 1.25)),
        "alibi_slopes": files.tensor("F32", [2], struct.pack("<2f", 0.75, 0.125)),
        "bias": files.tensor(
            "F64", [1, 2, 6, 7], struct.pack("<84d", *(math.sin(i) for i in range(84)))
        ),
    }
    _, out = run_file(tool, {**inputs_only, **sides}, metadata, ranks=3)
    metadata = files.read(tool.path("out.safetensors"))[1]
    expected = Definition(out, metadata).run()
    for name in ("o", "lse", "dq", "dk", "dv", "dsink", "dbias"):
        error = relative_rms(values(out[name]), expected[name], 1.0)
        tool.expect(error <= 1e-12, f"{name}: {error}")
    tool.expect(out["alibi_slopes"][0] == "F64", "FP32 slopes of a float64 problem are widened")
    tool.expect(values(out["alibi_slopes"]) == [0.75, 0.125], "slopes")
    tool.expect(out["o"] != tensors["o"], "sides without effect")


def masks_by_bias(tool):
    """-inf hides a pair, as a mask does."""
    text = "dtype=f64 heads=2/1 dim=4 lengths=9 layout=thd mask="
    tensors, _ = drawn(tool, text + "causal")
    hidden = [0.0 if k <= q else -math.inf for q in range(9) for k in range(9)]
    kept = {name: tensors[name] for name in ("q", "k", "v", "dout")}
    kept["bias"] = files.tensor("F64", [1, 1, 9, 9], struct.pack("<81d", *hidden))
    _, out = run_file(tool, kept, problem="mask=none")
    for name in ("o", "lse", "dq", "dk", "dv"):
        error = relative_rms(values(out[name]), values(tensors[name]), 1.0)
        tool.expect(error <= 1e-12, f"{name}: {error}")


def unread_bias(tool):
    """Elements of no pair may be anything; their gradient is 0."""
    text = (
        "dtype=f32 heads=2/1 dim=4 lengths=3,5,0 kv_lengths=6,2,4 padded=5,5,1 kv_padded=7,3,4 "
        "layout=thd bias="
    )
    for kind in ("1,1", "b,1", "1,h", "b,h", "1,1,1,s"):
        tensors, metadata = drawn(tool, text + kind)
        batch, heads, rows, columns = tensors["bias"][1]
        lengths = ((3, 6), (5, 2), (0, 4))

        def read(i, q, k):
            chosen = [lengths[i]] if batch > 1 else lengths
            return any((q < n if rows > 1 else n > 0) and k < m for n, m in chosen)

        clean = values(tensors["bias"])
        poisoned = list(clean)
        places = [
            (i, h, q, k)
            for i in range(batch)
            for h in range(heads)
            for q in range(rows)
            for k in range(columns)
        ]
        unread = [at for at, (i, _, q, k) in enumerate(places) if not read(i, q, k)]
        tool.expect(0 < len(unread) < len(places), f"{kind}: nothing unread")
        for at in unread:
            tool.expect(clean[at] == 0, f"{kind}: drawn where nothing reads it")
            poisoned[at] = math.nan
        packed = struct.pack(f"<{len(poisoned)}f", *poisoned)
        bias = files.tensor("F32", tensors["bias"][1], packed)
        _, out = run_file(tool, {**tensors, "bias": bias}, metadata, ranks=1)
        for name in ("o", "lse", "dq", "dk", "dv", "dbias"):
            tool.expect(out[name] == tensors[name], f"{kind}: {name} depends on unread bias")
        gradients = values(out["dbias"])
        tool.expect(not any(gradients[at] for at in unread), f"{kind}: dbias of no pair")


def contradictions(tool):
    bias = floats([1, 2, ROWS, ROWS])
    for tensors, problem, *parts in (
        ({"sink": floats([2])}, "sink=off_by_one", "sink=off_by_one", "tensor 'sink'"),
        ({"sink": floats([2])}, "sink=none", "sink=none contradicts", "sink=learnable"),
        ({"alibi_slopes": floats([2])}, "alibi=none", "alibi=none contradicts", "alibi_slopes"),
        ({"bias": bias}, "bias=none", "bias=none contradicts", "[1, 2, 10, 10]"),
        ({"bias": bias}, "bias=1,1", "bias=1,1 contradicts", "[1, 1, 10, 10]", "[1, 2, 10, 10]"),
        ({"bias": bias}, "bias=1,1,1,s", "bias=1,1,1,s contradicts", "[1, 1, 1, 10]"),
    ):
        refuse(tool, inputs(**tensors), *parts, "remove the key", problem=problem)
        refuse(tool, inputs(**tensors), *parts, metadata={"problem": problem})


def wrong_shapes_and_types(tool):
    refuse(tool, inputs(sink=floats([3])), "'sink' has shape [3]", "[2]")
    refuse(tool, inputs(sink=floats([1, 1, 2, 1])), "'sink' has shape [1, 1, 2, 1]", "[2]")
    refuse(tool, inputs(alibi_slopes=floats([1])), "'alibi_slopes' has shape [1]", "[2]")
    for dtype in ("F64", "F16", "I32"):
        refuse(tool, inputs(sink=files.tensor(dtype, [2])), f"'sink' has dtype {dtype}", "F32")
    refuse(
        tool,
        inputs(dtype="F64", sink=files.tensor("BF16", [2])),
        "'sink' has dtype BF16",
        "F32 or F64",
    )
    refuse(
        tool,
        inputs(bias=files.tensor("F16", [1, 1, ROWS, ROWS])),
        "'bias' has dtype F16 but 'q' has F32",
    )
    refuse(tool, inputs(bias=files.tensor("U8", [1, 1, ROWS, ROWS])), "'bias' has dtype U8")
    for shape in (
        [ROWS, ROWS],
        [1, 1, ROWS, ROWS + 1],
        [1, 1, ROWS - 1, ROWS],
        [2, 1, ROWS, ROWS],
        [1, 3, ROWS, ROWS],
        [1, 2, 1, ROWS],
        [1, 1, ROWS, 0],
    ):
        refuse(
            tool,
            inputs(bias=floats(shape)),
            f"'bias' has shape {shape}",
            "[1 or 1, 2 or 1, 10, 10]",
            "[1, 1, 1, 10]",
        )


def cases():
    return [
        keys_follow_tensors,
        given_values_are_used,
        masks_by_bias,
        unread_bias,
        contradictions,
        wrong_shapes_and_types,
    ]
