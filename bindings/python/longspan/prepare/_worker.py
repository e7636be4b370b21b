"""Makes one build, in a process of its own: packages read the environment when they are imported.

``python -m longspan.prepare._worker STORE JSON``, the JSON with the fields of the build.
"""

import dataclasses
import importlib
import json
import pathlib
import sys
import tempfile

from ._builds import Build
from ._errors import Refused
from ._objects import FORMAT, checksum_of, link
from ._packages import probe

_FROST_ONLY = ("heads_q", "heads_kv", "tokens_q", "tokens_k", "lengths")


def _serves(build: Build) -> dict:
    fields = dataclasses.asdict(build)
    del fields["engine"]
    if build.engine != "frost":
        for key in _FROST_ONLY:
            del fields[key]
    return fields


def make(build: Build, store: pathlib.Path) -> None:
    """Writes the shared object, then its manifest: a build without one is not there."""
    versions = probe(build.engine)
    engine = importlib.import_module(f"._{build.engine}", __package__)
    with tempfile.TemporaryDirectory(dir=store, prefix=".") as folder:
        parts = engine.export_build(build, pathlib.Path(folder))
        library = pathlib.Path(folder) / f"{build.name}.so"
        linked = link(pathlib.Path(folder), library)
        library.replace(store / library.name)
    manifest = {
        "format": FORMAT,
        "name": build.name,
        "engine": build.engine,
        "architecture": "sm_90a",
        "versions": versions,
        "library": linked,
        "serves": _serves(build),
        **parts,
    }
    manifest["checksum"] = checksum_of(manifest)
    path = store / f"{build.name}.json"
    path.with_suffix(".json.new").write_text(json.dumps(manifest, indent=1) + "\n")
    path.with_suffix(".json.new").replace(path)


def main() -> int:
    try:
        make(Build(**json.loads(sys.argv[2])), pathlib.Path(sys.argv[1]))
    except Refused as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
