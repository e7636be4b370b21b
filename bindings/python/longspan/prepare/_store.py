"""Fills a store, several builds at a time."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from ._builds import Build, builds_of
from ._errors import Refused
from ._packages import probe, runtime_library, tvm_ffi_library

__all__ = ["Refused", "prepare"]

_PACKAGE_HOME = pathlib.Path(__file__).parents[__package__.count(".") + 1]


def _make(build: Build, store: pathlib.Path) -> None:
    """In a process of its own, which finds this package where it is."""
    environment = dict(os.environ)
    paths = [str(_PACKAGE_HOME), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    fields = json.dumps(dataclasses.asdict(build))
    command = [sys.executable, "-m", f"{__package__}._worker", str(store), fields]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason was given"]
        raise Refused(f"{build.name}: {lines[-1]}")


def _is_there(build: Build, store: pathlib.Path) -> bool:
    """Whether the store has the build, made by the versions that are installed."""
    path = store / f"{build.name}.json"
    if not path.exists() or not (store / f"{build.name}.so").exists():
        return False
    manifest = json.loads(path.read_text())
    return manifest.get("format") == 1 and manifest.get("versions") == probe(build.engine)


def _write_libraries(store: pathlib.Path, copied: bool) -> None:
    """Says in store.json where the run-time libraries are."""
    paths = {"tvm_ffi": tvm_ffi_library(), "runtime": runtime_library()}
    if copied:
        for key, path in paths.items():
            shutil.copy2(path, store / path.name)
            paths[key] = pathlib.Path(path.name)
    fields = {"format": 1, **{key: str(path) for key, path in paths.items()}}
    (store / "store.json").write_text(json.dumps(fields, indent=1) + "\n")


def prepare(
    problems: Iterable[str],
    out: str | os.PathLike,
    *,
    directions: Sequence[str] = ("forward", "backward"),
    jobs: int = 1,
    with_libraries: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Build]:
    """Makes the builds that the problems need and that the store ``out`` has not, ``jobs`` at a
    time, and tells ``progress`` of each. Returns all builds that the problems need.

    ``Refused``: a package is missing or of another version (with the line that installs it), a
    problem cannot be prepared, or a build failed. Builds that were made stay.
    """
    builds = builds_of(problems, directions)
    for engine in dict.fromkeys(build.engine for build in builds):
        probe(engine)
    store = pathlib.Path(out)
    store.mkdir(parents=True, exist_ok=True)
    todo = [build for build in builds if not _is_there(build, store)]
    progress(f"{len(builds)} builds, {len(builds) - len(todo)} of them are there")
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        running = {pool.submit(_make, build, store): build for build in todo}
        for number, future in enumerate(concurrent.futures.as_completed(running), 1):
            try:
                future.result()
            except Refused:
                pool.shutdown(cancel_futures=True)
                raise
            seconds = time.monotonic() - begun
            progress(f"[{number}/{len(todo)}] {running[future].name} ({seconds:.0f} s)")
    _write_libraries(store, with_libraries)
    return builds
