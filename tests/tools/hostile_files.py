"""Input files that lie: exit code 2 and the reason, whatever is in them."""

import os
import random
import struct

import safetensors_files as files


def inputs(rows=10, heads=2, kv_heads=1, dim=4, dtype="F32", **others):
    tensors = {
        "q": files.tensor(dtype, [rows, heads, dim]),
        "k": files.tensor(dtype, [rows, kv_heads, dim]),
        "v": files.tensor(dtype, [rows, kv_heads, dim]),
    }
    tensors.update(others)
    return tensors


def refuse(tool, tensors, *parts, metadata=None, problem=None):
    path = tool.path("hostile.safetensors")
    files.write(path, tensors, metadata)
    more = [] if problem is None else ["--problem", problem]
    tool.expect_refused(["run", "--input", path, *more], *parts)


def cumulative_lengths(tool):
    cu = files.integers
    refuse(
        tool,
        inputs(cu_seqlens_q=cu([0, 7, 5, 10])),
        "cu_seqlens_q must not decrease",
        "entry 2 is 5 after 7",
    )
    refuse(tool, inputs(cu_seqlens_q=cu([1, 10])), "cu_seqlens_q[0] is 1")
    refuse(tool, inputs(cu_seqlens_q=cu([0, -4, 10])), "cu_seqlens_q must not decrease")
    refuse(tool, inputs(cu_seqlens_q=cu([0, 12])), "need 12 rows", "'q' has only 10")
    refuse(tool, inputs(cu_seqlens_k=cu([0, 12])), "need 12 rows", "'k' has only 10")
    refuse(tool, inputs(cu_seqlens_q=cu([0])), "cu_seqlens_q has 1 entries")
    refuse(tool, inputs(cu_seqlens_k=cu([0, 4, 10])), "kv_")  # one query sequence, two of keys
    refuse(
        tool, inputs(cu_seqlens_q=files.tensor("F32", [2])), "'cu_seqlens_q' is F32", "I32 or I64"
    )
    refuse(tool, inputs(cu_seqlens_q=files.tensor("I32", [2, 1])), "one dimension")
    big = files.tensor("I64", [2], struct.pack("<2q", 0, 1 << 62))
    refuse(tool, inputs(cu_seqlens_q=big), "cu_seqlens_q[1]")
    refuse(tool, inputs(cu_seqlens_q_padded=cu([0, 10])), "needs cu_seqlens_q beside it")
    refuse(
        tool,
        inputs(cu_seqlens_q=cu([0, 10]), cu_seqlens_q_padded=cu([0, 5, 10])),
        "both need one entry per sequence",
    )
    refuse(
        tool,
        inputs(cu_seqlens_q=cu([0, 6, 10]), cu_seqlens_q_padded=cu([0, 5, 10])),
        "length 6 but only 5 rows",
    )
    refuse(
        tool, inputs(cu_seqlens_q=cu([0, 4, 8]), cu_seqlens_q_padded=cu([0, 5, 11])), "need 11 rows"
    )


def wrong_tensors(tool):
    refuse(tool, inputs(dtype="I32"), "'q' has dtype I32", "BF16")
    refuse(tool, inputs(v=files.tensor("F16", [10, 1, 4])), "'v' has dtype F16 but 'q' has F32")
    refuse(tool, inputs(k=files.tensor("F32", [8, 1, 4])), "'v' has 1 batch x 10 seq")
    refuse(tool, inputs(dout=files.tensor("F32", [9, 2, 4])), "'dout' has 1 batch x 9 seq")
    refuse(tool, inputs(k=files.tensor("F32", [10, 1, 8])), "'k'", "dim of 'q'")
    refuse(
        tool,
        inputs(k=files.tensor("F32", [1, 10, 1, 4])),
        "'k' has shape [1, 10, 1, 4]",
        "as many dimensions",
    )
    refuse(tool, inputs(heads=3, kv_heads=2), "heads=3/2", "multiple")
    refuse(tool, inputs(dim=600), "600")
    refuse(
        tool, inputs(weights=files.tensor("F32", [1])), "unknown tensor 'weights'", "cu_seqlens_q"
    )
    missing = inputs()
    del missing["v"]
    refuse(tool, missing, "tensor 'v' is missing")


def contradictions(tool):
    for text, *parts in (
        ("dtype=f16", "dtype=f16 contradicts", "dtype=f32"),
        ("heads=4/2", "heads=4/2 contradicts", "heads=2/1"),
        ("dim=8", "dim=8 contradicts", "dim=4"),
        ("dim_v=8", "dim_v=8 contradicts", "dim_v=4"),
        ("lengths=16", "lengths=16", "need 16 rows", "'q' has only 10"),
        ("lengths=6", "lengths=6 claims 6 rows", "'q' has 10", "tokens=10"),
        ("lengths=4,6 kv_lengths=4,4", "kv_lengths=4,4 claims 8 rows", "kv_tokens=10"),
        ("tokens=11", "tokens=11 contradicts"),
        ("layout=bshd", "layout=bshd contradicts", "thd"),
    ):
        refuse(tool, inputs(), *parts, problem=text)
        refuse(tool, inputs(), *parts, metadata={"problem": text})
    cu = inputs(cu_seqlens_q=files.integers([0, 4, 10]), cu_seqlens_k=files.integers([0, 4, 10]))
    refuse(tool, cu, "lengths=5,5 contradicts cu_seqlens_q", "4,6", problem="lengths=5,5")
    batch = {name: files.tensor("F32", [2, 6, 1, 4]) for name in "qkv"}
    refuse(tool, batch, "layout=thd contradicts", problem="layout=thd")
    refuse(tool, batch, "lengths=3,3", "padded=6,6", problem="lengths=3,3")
    refuse(tool, batch, "lengths has 3 sequences", "batch 2", problem="lengths=6,6,6")
    refuse(
        tool,
        dict(batch, cu_seqlens_q=files.integers([0, 12])),
        "cu_seqlens_q has 1 sequences",
        "batch 2",
    )
    refuse(tool, inputs(), 'unknown key "colour"', metadata={"problem": "colour=red"})
    refuse(tool, inputs(), "metadata seed 'x'", metadata={"seed": "x"})


def refuse_bytes(tool, content, *parts):
    path = tool.path("raw.safetensors")
    with open(path, "wb") as file:
        file.write(content)
    tool.expect_refused(["run", "--input", path], "raw.safetensors", *parts)


def broken_headers(tool):
    path = tool.path("good.safetensors")
    files.write(path, inputs())
    with open(path, "rb") as file:
        good = file.read()
    length = struct.unpack("<Q", good[:8])[0]
    refuse_bytes(tool, b"", "has 0 bytes")
    refuse_bytes(tool, good[:4], "has 4 bytes")
    refuse_bytes(tool, good[: 8 + length // 2], "passes the end of the file")
    refuse_bytes(tool, good[:-1], "truncated or damaged")
    refuse_bytes(tool, good + b"x", "belong to no tensor")
    refuse_bytes(tool, struct.pack("<Q", 1 << 63) + good[8:], "above the limit")
    refuse_bytes(tool, struct.pack("<Q", 200_000_000) + good[8:], "above the limit")
    refuse_bytes(tool, struct.pack("<Q", 2) + b"{]", "not valid JSON")
    bomb = b"[" * 200_000
    refuse_bytes(tool, struct.pack("<Q", len(bomb)) + bomb, "must be a JSON object")
    header = b'{"q":{"dtype":"F32","shape":[1099511627776,1099511627776,4],"data_offsets":[0,16]}}'
    refuse_bytes(tool, struct.pack("<Q", len(header)) + header + bytes(16), "more than 2^63 bytes")
    overlap = (
        b'{"q":{"dtype":"F32","shape":[1,1,2],"data_offsets":[0,8]},'
        b'"k":{"dtype":"F32","shape":[1,1,2],"data_offsets":[4,12]}}'
    )
    refuse_bytes(tool, struct.pack("<Q", len(overlap)) + overlap + bytes(12), "overlap")


def random_damage(tool):
    """No damage of a header may do anything but be refused or be computed."""
    path = tool.path("damaged.safetensors")
    files.write(path, inputs(rows=3), {"problem": "mask=causal"})
    with open(path, "rb") as file:
        good = bytearray(file.read())
    length = struct.unpack("<Q", good[:8])[0]
    generator = random.Random(1)
    for _ in range(60):
        damaged = bytearray(good)
        for _ in range(generator.randint(1, 3)):
            damaged[generator.randrange(8 + length)] = generator.randrange(256)
        with open(path, "wb") as file:
            file.write(damaged)
        run = tool("run", "--input", path, "--json", "-")
        tool.expect(run.code in (0, 2), f"exit code {run.code}: {run.err}: {bytes(damaged)!r}")
        tool.expect(run.json["status"] in ("pass", "error", "declined"), run.out)


def non_finite_values(tool):
    """NaN in a token: the run ends as a failed check, and the JSON holds null."""
    nan = struct.pack("<f", float("nan")) + bytes(10 * 2 * 4 * 4 - 4)
    path = tool.path("nan.safetensors")
    files.write(path, inputs(q=files.tensor("F32", [10, 2, 4], nan)))
    run = tool("run", "--input", path, "--json", "-")
    tool.expect(run.code == 1, f"exit code {run.code}: {run.err}")
    tool.expect(run.json["status"] == "fail", run.out)
    tool.expect(run.json["tensors"]["o"]["relative_rms"] is None, run.out)


def not_files(tool):
    os.mkdir(tool.path("folder"))
    os.mkfifo(tool.path("pipe"))
    for name in ("folder", "pipe"):
        tool.expect_refused(["run", "--input", tool.path(name)], "not a regular file")


def cases():
    return [
        cumulative_lengths,
        wrong_tensors,
        contradictions,
        broken_headers,
        random_damage,
        non_finite_values,
        not_files,
    ]
