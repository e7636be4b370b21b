#!/usr/bin/env python3
"""Checks the text of source files: ASCII, line and file length, tabs, words that must not stand.

usage: lint_text.py FILE...      paths relative to the root of the tree
       lint_text.py --self-test  seeds violations and checks that each is found
"""

import pathlib
import re
import sys

COLUMNS = 100
LINES = 300  # of a C++ file
CODE = {".h", ".cc", ".c", ".cu", ".cuh"}
WIDTH_CHECKED = CODE | {".py", ".sh", ".cmake", ".txt", ""}

# (what, pattern, folder it is barred from, suffixes; empty = all). Library code neither prints nor
# reads the environment; a task that is left open names its issue.
WORDS = [
    ("a TODO without an issue number", r"\bTODO\b(?!\(#\d+\))", "", CODE),
    ("FIXME, XXX or HACK", r"\b(FIXME|XXX|HACK)\b", "", CODE),
    ("'using namespace' in a header", r"\busing\s+namespace\b", "", {".h", ".cuh"}),
    ("printing in the library", r"\bstd::(cout|cerr|clog)\b|\bf?printf\s*\(|\bfmt::print\b", "src",
     CODE),
    ("reading the environment in the library", r"\b(secure_)?getenv\s*\(", "src", CODE),
    ("abort or exit in the library", r"\b(std::)?(abort|exit|_Exit|terminate)\s*\(", "src", CODE),
    ("a path of one machine", r"(^|[\s\"'(=])/(home|root|Users|mnt|opt)/\w", "", set()),
]
# NCCL's one switch for multicast is a variable that it reads itself.
EXEMPT = {("reading the environment in the library", "src/comm/nccl/library.cc")}


def violations_of(path, data):
    suffix = pathlib.PurePosixPath(path).suffix
    if not data.isascii():
        line = data[:next(i for i, byte in enumerate(data) if byte > 127)].count(b"\n") + 1
        return [f"{path}:{line}: not ASCII"]
    lines = data.decode("ascii").split("\n")
    found = []
    if data and not data.endswith(b"\n"):
        found.append(f"{path}:{len(lines)}: no newline at the end")
    if suffix in CODE and len(lines) - 1 > LINES:
        found.append(f"{path}:{LINES + 1}: more than {LINES} lines ({len(lines) - 1}): split it")
    for number, line in enumerate(lines, 1):
        if suffix in WIDTH_CHECKED and len(line) > COLUMNS:
            found.append(f"{path}:{number}: {len(line)} columns, more than {COLUMNS}")
        if "\t" in line or "\r" in line:
            found.append(f"{path}:{number}: tab or carriage return")
        if line != line.rstrip(" "):
            found.append(f"{path}:{number}: space at the end")
        for what, pattern, folder, suffixes in WORDS:
            if suffixes and suffix not in suffixes or not path.startswith(folder):
                continue
            if (what, path) in EXEMPT:
                continue
            if re.search(pattern, line):
                found.append(f"{path}:{number}: {what}")
    return found


SEEDED = [
    ("src/a.cc", b"// na\xc3\xafve\n"),
    ("src/a.cc", b"int a;"),
    ("src/a.cc", b"x" * 101 + b"\n"),
    ("src/a.h", b"\n" * 301),
    ("src/a.cc", b"\tint a;\n"),
    ("src/a.cc", b"int a; \n"),
    ("src/a.cc", b"// TO" b"DO: later\n"),
    ("tests/a.cc", b"// FIX" b"ME\n"),
    ("src/a.h", b"using namespace std;\n"),
    ("src/a.cc", b"std::cerr << 1;\n"),
    ("src/a.cc", b"printf(\"x\");\n"),
    ("src/a.cc", b"auto x = std::getenv(\"A\");\n"),
    ("src/a.cc", b"std::abort();\n"),
    ("docs/a.md", b"see /ho" b"me/me/x\n"),
]
ALLOWED = [
    ("src/a.cc", b"x" * 99 + b"\n// TO" b"DO(#12): later\n"),
    ("tools/a.cc", b"std::cout << 1; std::getenv(\"A\");\n"),
    ("docs/a.md", b"x" * 200 + b"\n"),
    ("src/comm/nccl/library.cc", b"std::getenv(\"A\");\n"),
]


def self_test():
    lines = [f"not found: {data!r}" for path, data in SEEDED if len(violations_of(path, data)) != 1]
    return lines + [f"allowed, but reported: {line}"
                    for path, data in ALLOWED for line in violations_of(path, data)]


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    if arguments == ["--self-test"]:
        lines = self_test()
        summary = f"lint_text self-test: {len(SEEDED)} seeded violations found"
    else:
        lines = [line for path in arguments
                 for line in violations_of(path, pathlib.Path(path).read_bytes())]
        summary = f"lint_text: {len(arguments)} files"
    for line in lines:
        print(line)
    if not lines:
        print(summary)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
