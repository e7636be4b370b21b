#!/usr/bin/env python3
"""Checks that every #include points to a lower layer, or to a library that its folder may use.

usage: lint_layers.py [ROOT]        lints the tree at ROOT (default: this script's tree)
       lint_layers.py --self-test   seeds violations and checks that each is found
"""

import pathlib
import re
import sys
import tempfile

# A folder of src/ includes its own files and those of the rows above its own, nothing else.
ROWS = [
    {"base"},
    {"mask", "tensor"},
    {"problem", "cuda"},
    {"partition", "providers", "comm", "guard"},
    {"schedule"},
    {"plan", "strategies"},
    {"engine"},
]

# The folder that a public header belongs to. engine.h stands with plan, which defines a part of it
# (routing and the plan cache).
PUBLIC_OWNER = {
    "status.h": "base",
    "decline.h": "base",
    "loan.h": "base",
    "libraries.h": "base",
    "log.h": "base",
    "version.h": "base",
    "tensor.h": "tensor",
    "device.h": "tensor",
    "mask.h": "mask",
    "modification.h": "mask",
    "dropout.h": "problem",
    "problem.h": "problem",
    "partition.h": "partition",
    "promise.h": "guard",
    "provider.h": "providers",
    "communicator.h": "comm",
    "schedule.h": "schedule",
    "engine.h": "plan",
    "routing_table.h": "plan",
    "plan_record.h": "engine",
    "c_api.h": "engine",
    "longspan.h": "engine",
}

# Third-party headers, by prefix, and the folders that wrap them.
THIRD_PARTY = {
    "fmt/": ["src", "tools", "tests", "bench"],
    "nlohmann/": ["src/base", "src/schedule", "src/plan", "src/engine", "src/providers/prepared",
                  "tools", "tests", "bench"],
    # A test is a program that has initialised MPI itself.
    "mpi.h": ["src/comm/mpi", "tests/comm"],
    "hwy/": ["src/providers/cpu", "tests/providers"],
    "libxsmm": ["src/providers/cpu"],
    "cuda.h": ["src/cuda", "src/providers/hopper"],
    "nccl.h": ["src/comm/nccl"],
    "cuda_": ["src/cuda", "src/providers/cuda", "src/providers/cudnn", "src/providers/hopper",
              "src/providers/prepared", "src/providers/rows", "src/guard", "tests/gpu",
              "tools/longspan"],
    "nvtx3/": ["src/cuda"],
    "cudnn_frontend": ["src/providers/cudnn", "tests/gpu/cudnn"],
    "tvm/ffi/": ["src/providers/prepared", "tests/providers/prepared", "bindings/python/native"],
    "wgmma_instructions.cuh": ["src/providers/hopper/ptx"],  # written by generate_wgmma.py
    "CLI/": ["tools/longspan"],
    "gtest/": ["tests"],
    "gmock/": ["tests"],
    "rapidcheck": ["tests"],
    "benchmark/": ["bench"],
}

C_STANDARD = {f"{name}.h" for name in (
    "assert ctype errno float inttypes limits math signal stdbool stddef stdint stdio stdlib "
    "string time").split()}
SYSTEM = {"dlfcn.h", "fcntl.h", "immintrin.h", "link.h", "pthread.h", "sched.h", "unistd.h",
          "spawn.h", "malloc.h", "sys/mman.h", "sys/wait.h"}
# Layer 5 sees the public headers alone; tests may look inside.
OUTSIDE = ("tools", "bench", "examples")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
SUFFIXES = {".h", ".cc", ".c", ".cu", ".cuh"}


def within(path, folder):
    return path == folder or path.startswith(folder + "/")


def row_of(folder):
    for row, folders in enumerate(ROWS):
        if folder in folders:
            return row
    return None


def standard(header):
    return re.fullmatch(r"[a-z_0-9]+", header) is not None or header in C_STANDARD


def third_party_violation(path, header):
    """A message, or None when `path` may include the header or it is none of the known ones."""
    for prefix, folders in THIRD_PARTY.items():
        if header.startswith(prefix):
            if any(within(path, folder) for folder in folders):
                return None
            return f"<{header}> may only be included in {', '.join(folders)}"
    return f"unknown header <{header}>: name it in scripts/lint_layers.py or include it with quotes"


def project_target(root, path, header):
    """Where an include leads: ("public", name), ("src", folder), ("own", path) or None."""
    name = header.removeprefix("longspan/")
    if header.startswith("longspan/") and (
            name in PUBLIC_OWNER or (root / "include" / header).exists()):
        return ("public", name)
    if (root / "src" / header).exists():
        return ("src", header.split("/")[0])
    here = root / pathlib.PurePosixPath(path).parent / header
    if here.exists():
        return ("own", header)
    # Tests share a kit, and look into the command line's parts.
    shared = (root / "tests" / header, root / "tools/longspan" / header)
    if within(path, "tests") and any(file.exists() for file in shared):
        return ("own", header)
    return None


def source_violation(path, owner):
    """`path` lies in src/; `owner` is the folder of src/ that the include belongs to."""
    folder = path.split("/")[1]
    if folder == owner:
        return None
    mine, theirs = row_of(folder), row_of(owner)
    for name, row in ((folder, mine), (owner, theirs)):
        if row is None:
            return f"src/{name} is in no layer of scripts/lint_layers.py"
    return None if theirs < mine else f"src/{folder} must not include src/{owner}: not lower"


def project_violation(path, kind, name):
    if kind == "public" and name not in PUBLIC_OWNER:
        return f"longspan/{name} has no owner in scripts/lint_layers.py"
    if within(path, "include"):
        return None if kind == "public" else "a public header may only include public headers"
    if within(path, "src") and kind != "own":
        return source_violation(path, PUBLIC_OWNER[name] if kind == "public" else name)
    if kind == "src" and any(within(path, folder) for folder in OUTSIDE):
        return f"{path.split('/')[0]}/ sees include/longspan alone, not src/{name}"
    return None


def include_violation(root, path, header):
    target = project_target(root, path, header)
    if target is not None:
        return project_violation(path, *target)
    if standard(header):
        return None
    if within(path, "include"):
        return f"a public header may not include {header}"
    if header.startswith("sys/") or header in SYSTEM:
        return None
    return third_party_violation(path, header)


def violations(root):
    root = pathlib.Path(root)
    found = []
    for top in ("include", "src", "tools", "bench", "examples", "tests"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text("ascii", "replace").splitlines(), 1):
                match = INCLUDE.match(line)
                message = match and include_violation(root, path, match[1] or match[2])
                if message:
                    found.append(f"{path}:{number}: {message}")
    return found


# Include lines that must be found, by the file that they are added to.
SEEDED = [
    ("src/mask/seeded.cc", '#include "longspan/problem.h"'),
    ("src/mask/seeded.cc", '#include "tensor/inner.h"'),
    ("src/base/seeded.h", '#include "engine/inner.h"'),
    ("src/schedule/seeded.cc", '#include "strategies/inner.h"'),
    ("src/engine/seeded.cc", "#include <mpi.h>"),
    ("src/comm/threads/seeded.cc", "#include <mpi.h>"),
    ("src/plan/seeded.cc", "#include <cblas.h>"),
    ("src/engine/seeded.cc", "#include <hwy/highway.h>"),
    ("src/base/seeded.cc", "#include <libxsmm.h>"),
    ("src/comm/threads/seeded.cc", "#include <cuda_runtime_api.h>"),
    ("src/providers/cuda/seeded.cc", "#include <cudnn_frontend.h>"),
    ("src/engine/seeded.cc", "#include <tvm/ffi/c_api.h>"),
    ("src/base/seeded.cc", "#include <CLI/CLI.hpp>"),
    ("src/base/seeded.cc", "#include <boost/any.hpp>"),
    ("src/newfolder/seeded.cc", '#include "longspan/status.h"'),
    ("include/longspan/seeded.h", "#include <fmt/format.h>"),
    ("include/longspan/seeded.h", "#include <unistd.h>"),
    ("include/longspan/seeded.h", '#include "base/inner.h"'),
    ("tools/longspan/seeded.cc", '#include "engine/inner.h"'),
    ("bench/micro/seeded.cc", '  #  include "base/inner.h"'),
]
# And lines that must pass.
ALLOWED = [
    ("src/engine/fine.cc", '#include "plan/inner.h"\n#include "longspan/engine.h"\n#include <map>'),
    ("src/comm/mpi/fine.cc", '#include <mpi.h>\n#include "base/inner.h"\n#include <fmt/format.h>'),
    ("src/providers/cpu/fine.cc", "#include <hwy/base.h>\n#include <libxsmm.h>"),
    ("src/plan/fine.cc", '#include "longspan/engine.h"\n#include "schedule/inner.h"'),
    ("include/longspan/fine.h", '#include "longspan/status.h"\n#include <cstdint>'),
    ("tools/longspan/fine.cc", '#include <CLI/CLI.hpp>\n#include "longspan/longspan.h"'),
    ("tests/mask/fine.cc", '#include "base/inner.h"\n#include <gtest/gtest.h>'),
]


def self_test():
    """Each seeded line is the only violation of an otherwise clean tree."""
    failures = []
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder in set().union(*ROWS):
            (root / "src" / folder).mkdir(parents=True)
            (root / "src" / folder / "inner.h").write_text("#pragma once\n", "ascii")
        for path, text in ALLOWED:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n", "ascii")
        failures += [f"allowed, but reported: {line}" for line in violations(root)]
        for path, text in SEEDED:
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n", "ascii")
            reported = [line for line in violations(root) if line.startswith(f"{path}:1: ")]
            if len(reported) != 1:
                failures.append(f"not found: {text} in {path}")
            file.unlink()
    return failures


def main(arguments):
    if arguments == ["--self-test"]:
        lines = self_test()
        summary = f"lint_layers self-test: {len(SEEDED)} seeded violations found"
    elif len(arguments) <= 1 and not (arguments and arguments[0].startswith("-")):
        root = pathlib.Path(arguments[0] if arguments else __file__).resolve()
        lines = violations(root if arguments else root.parent.parent)
        summary = "lint_layers: every include leads to a lower layer"
    else:
        print(__doc__, file=sys.stderr)
        return 2
    for line in lines:
        print(line)
    if not lines:
        print(summary)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
