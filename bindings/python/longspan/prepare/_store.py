"""Fills a store, several builds at a time."""

import concurrent.futures
import dataclasses
import hashlib
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
from ._objects import FORMAT, checksum_of
from ._packages import PINNED, probe, runtime_library, tvm_ffi_library

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
    """Whether the store has the build, whole, made by the versions that are installed."""
    try:
        manifest = json.loads((store / f"{build.name}.json").read_bytes())
        checksum = hashlib.sha256((store / f"{build.name}.so").read_bytes()).hexdigest()
        made_of = manifest["format"], manifest["versions"], manifest["library"]["sha256"]
        as_written = manifest["checksum"] == checksum_of(manifest)
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return as_written and made_of == (FORMAT, probe(build.engine), checksum)


def _made_by(path: pathlib.Path) -> tuple | None:
    """Format, engine and versions that a manifest names; nothing where the file is none."""
    try:
        manifest = json.loads(path.read_bytes())
        return manifest["format"], str(manifest["engine"]), manifest["versions"]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _remove_stale(store: pathlib.Path, progress: Callable[[str], None]) -> None:
    """Builds of another format or other versions, with which the library would refuse the whole
    store."""
    for path in sorted(store.glob("*.json")):
        made_by = _made_by(path)
        if made_by is None or made_by == (FORMAT, made_by[1], PINNED.get(made_by[1])):
            continue
        path.unlink()
        path.with_suffix(".so").unlink(missing_ok=True)
        progress(f"removed {path.stem}, which other versions made")


def _open_store(out: str | os.PathLike) -> pathlib.Path:
    if not os.fspath(out):
        raise Refused("the store has no name: name a folder")
    store = pathlib.Path(out)
    store.mkdir(parents=True, exist_ok=True)
    return store


def _write_libraries(store: pathlib.Path, copied: bool) -> None:
    """Says in store.json where the run-time libraries are. A store that has copies keeps them, as
    they are installed now."""
    paths = {"tvm_ffi": tvm_ffi_library(), "runtime": runtime_library()}
    for key, path in paths.items():
        copy = store / path.name
        if copied or copy.exists():
            fresh = copy.with_suffix(".new")
            shutil.copy2(path, fresh)
            fresh.replace(copy)
            paths[key] = pathlib.Path(path.name)
    fields = {"format": FORMAT, **{key: str(path) for key, path in paths.items()}}
    fresh = store / "store.new"
    fresh.write_text(json.dumps(fields, indent=1) + "\n")
    fresh.replace(store / "store.json")


def _make_all(
    builds: list[Build], store: pathlib.Path, jobs: int, progress: Callable[[str], None]
) -> None:
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        running = {pool.submit(_make, build, store): build for build in builds}
        for number, future in enumerate(concurrent.futures.as_completed(running), 1):
            try:
                future.result()
            except Refused:
                pool.shutdown(cancel_futures=True)
                raise
            seconds = time.monotonic() - begun
            progress(f"[{number}/{len(builds)}] {running[future].name} ({seconds:.0f} s)")


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
    time, and tells ``progress`` of each. Returns all builds that the problems need. Builds of other
    versions of the packages or of longspan, which no problem can use any more, are removed.

    ``Refused``: a package is missing or of another version (with the line that installs it), a
    problem cannot be prepared, the store cannot be written, or a build failed. Builds that were
    made stay, and the store has them.
    """
    if jobs < 1:
        raise Refused(f"jobs is {jobs}: at least 1 is needed")
    builds = builds_of(problems, directions)
    for engine in dict.fromkeys(build.engine for build in builds):
        probe(engine)
    try:
        store = _open_store(out)
        _write_libraries(store, with_libraries)
        _remove_stale(store, progress)
    except OSError as error:
        raise Refused(f"{out} cannot be a store: {error.strerror}; name another folder") from None
    todo = [build for build in builds if not _is_there(build, store)]
    progress(f"{len(builds)} builds, {len(builds) - len(todo)} of them are there")
    _make_all(todo, store, jobs, progress)
    return builds
