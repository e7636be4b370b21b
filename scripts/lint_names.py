#!/usr/bin/env python3
"""Checks that no two files define a class of one name in one namespace: the linker would take the
inline functions of either for both.

usage: lint_names.py [ROOT]        lints src/, include/ and tools/ of ROOT (default: this tree)
       lint_names.py --self-test   checks that a seeded clash is found and that look-alikes are not
"""

import collections
import pathlib
import re
import sys
import tempfile

OPENS = re.compile(r"namespace ([\w:]*)\s*\{")
CLOSES = re.compile(r"\}  // namespace")
DEFINES = re.compile(r"(?:struct|class) (?:alignas\(\w+\) )?([A-Z]\w+)(?: final)?(?: :[^;]*|\s*)\{")


def definitions(path):
    """Qualified names of the classes that a file defines outside of others."""
    spaces = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if opened := OPENS.match(line):
            spaces.append(opened.group(1) or f"<{path}>")
        elif CLOSES.match(line) and spaces:
            spaces.pop()
        elif defined := DEFINES.match(line):
            yield "::".join([*spaces, defined.group(1)])


def clashes(root):
    places = collections.defaultdict(set)
    for folder in ("src", "include", "tools"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cuh", ".cc", ".cu"):
                for name in definitions(path):
                    places[name].add(str(path.relative_to(root)))
    return {name: files for name, files in places.items() if len(files) > 1}


def self_test():
    texts = {
        "src/a.h": "namespace x {\nstruct Same {\n};\nstruct Other;\n}  // namespace x\n",
        "src/b.h": "namespace x {\nclass Same final : public Base {\n};\n}  // namespace x\n",
        "src/c.cc": "namespace x {\nnamespace {\nstruct Same {\n};\n}  // namespace\n"
                    "}  // namespace x\n",
        "src/d.h": "namespace y {\nstruct Same {\n};\n}  // namespace y\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in texts.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = clashes(root)
    if found != {"x::Same": {"src/a.h", "src/b.h"}}:
        sys.exit(f"lint_names self-test: found {found}")
    print("lint_names self-test: the seeded clash found")


def main(words):
    if words == ["--self-test"]:
        return self_test()
    root = pathlib.Path(words[0] if words else __file__).resolve()
    found = clashes(root if words else root.parent.parent)
    for name, files in sorted(found.items()):
        print(f"{name} is defined in {' and '.join(sorted(files))}: give one another name")
    if found:
        sys.exit(1)
    print("lint_names: every class has a name of its own")


if __name__ == "__main__":
    main(sys.argv[1:])
