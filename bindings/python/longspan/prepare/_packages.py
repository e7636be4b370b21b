"""The packages of the engines: which versions, and where their libraries lie."""

import importlib.metadata
import importlib.util
import pathlib

from ._errors import Refused


def _pinned() -> dict[str, dict[str, str]]:
    """packages.txt, which the library is built with too: of each engine the versions by package."""
    pinned: dict[str, dict[str, str]] = {}
    lines = pathlib.Path(__file__).with_name("packages.txt").read_text("ascii").splitlines()
    for line in lines:
        if line.startswith("#"):
            continue
        engines, package, version = line.split()
        for engine in engines.split(","):
            pinned.setdefault(engine, {})[package] = version
    return pinned


PINNED = _pinned()


def pip_line(engine: str) -> str:
    """What to run where packages of the engine are missing."""
    wanted = " ".join(f"{name}=={version}" for name, version in PINNED[engine].items())
    return f"pip install --pre {wanted} torch"


def probe(engine: str) -> dict[str, str]:
    """Versions of the engine's packages, of which nothing is imported. ``Refused`` names the one
    that is missing or of another version, and the line that installs it."""
    for name, version in PINNED[engine].items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = None
        if found != version:
            state = "not installed" if found is None else f"version {found}"
            raise Refused(f"{engine} needs {name} {version}, which is {state}; run: "
                          f"{pip_line(engine)}")
    return dict(PINNED[engine])


def _package_folder(name: str) -> pathlib.Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise Refused(f"the package {name} is not installed; run: {pip_line('fa4')}")
    return pathlib.Path(spec.submodule_search_locations[0])


def tvm_ffi_library() -> pathlib.Path:
    return _package_folder("tvm_ffi") / "lib" / "libtvm_ffi.so"


def runtime_library() -> pathlib.Path:
    """The shared run time of CuTe DSL, for the newest CUDA that the package has it for."""
    folders = sorted(_package_folder("nvidia_cutlass_dsl").glob("cu*/lib/libcute_dsl_runtime.so"))
    if not folders:
        raise Refused(f"nvidia-cutlass-dsl has no libcute_dsl_runtime.so; run: {pip_line('fa4')}")
    return folders[-1]
