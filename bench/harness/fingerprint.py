"""What a row's figures hold for: machine, drivers, program, harness."""

import hashlib
import os
import pathlib
import platform
import shutil
import subprocess

from telemetry import visible_gpus

HERE = pathlib.Path(__file__).resolve().parent


def output_of(*command):
    """First line of a program's output; None where it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.strip().splitlines()[0] if run.returncode == 0 and run.stdout else None


def sha256(*paths):
    digest = hashlib.sha256()
    for path in paths:
        digest.update(pathlib.Path(path).read_bytes())
    return digest.hexdigest()


def processor():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return next(line.split(":")[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()


def gpus():
    listed = "index,name,uuid,driver_version,power.limit,vbios_version"
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", *visible_gpus(), f"--query-gpu={listed}", "--format=csv,noheader"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [line.strip() for line in lines.splitlines() if line.strip()]


def commit():
    """Of the tree that the harness lies in; "unknown" outside of a clone."""
    command = ["git", "-C", str(HERE), "rev-parse", "HEAD"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else "unknown"


def fingerprint(longspan):
    sources = sorted([*HERE.glob("*.py"), *HERE.parent.glob("peers/*.py")])
    return {
        "gpus": gpus(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "nvcc": output_of("nvcc", "--version"),
        "longspan_sha256": sha256(longspan) if pathlib.Path(longspan).is_file() else None,
        "harness_sha256": sha256(*sources),
    }
