"""Objects of compiled kernels, and the shared object made of them."""

import hashlib
import json
import pathlib
import re
import subprocess

from ._errors import Refused
from ._packages import runtime_library, tvm_ffi_library

FORMAT = 3  # of manifests and of store.json


def checksum_of(manifest: dict) -> str:
    """Of all fields but "checksum", as text with names in order and without spaces."""
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _signature(path: pathlib.Path, symbol: str) -> str:
    """An entry that is called without arguments refuses, and says which parameters it has."""
    import cutlass.cute as cute

    entry = getattr(cute.runtime.load_module(str(path), enable_tvm_ffi=True), symbol)
    try:
        entry()
    except TypeError as error:
        found = re.search(r"`\w+\((.*)\)`", str(error))
        if found:
            return found.group(1)
        raise Refused(f"{symbol} describes itself in words that are unknown: {error}") from None
    raise Refused(f"{symbol} accepts a call without arguments")


def export(folder: pathlib.Path, name: str, role: str, known_list: str, compiled) -> dict:
    """Writes the object of one kernel, and returns the entry's part of the manifest."""
    symbol = f"{name}_{role}"
    path = folder / f"{symbol}.o"
    # Objects of one kernel class share every other name.
    compiled.export_to_c(
        object_file_path=str(path), function_name=symbol, export_only_tvm_ffi_symbols=True
    )
    return {
        "role": role,
        "symbol": symbol,
        "list": known_list,
        "signature": _signature(path, symbol),
    }


def link(folder: pathlib.Path, library: pathlib.Path) -> dict:
    """Links all objects of a folder against the run time that is installed here, and returns the
    library's part of the manifest. Nothing of that run time becomes part of it."""
    command = ["cc", "-shared", "-o", str(library), *sorted(map(str, folder.glob("*.o")))]
    for needed in (runtime_library(), tvm_ffi_library()):
        command += [f"-L{needed.parent}", f"-l{needed.stem.removeprefix('lib')}"]
    try:
        done = subprocess.run([*command, "-Wl,--no-undefined"], capture_output=True, text=True)
    except FileNotFoundError:
        raise Refused("cc is not installed: it links the objects; install a C compiler") from None
    if done.returncode != 0:
        raise Refused(f"{library.name} could not be linked: {done.stderr.strip()}")
    checksum = hashlib.sha256(library.read_bytes()).hexdigest()
    return {"file": library.name, "sha256": checksum}
