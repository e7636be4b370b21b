"""Power, clocks, temperature and limits of the GPUs while arms take turns."""

import collections
import os
import shutil
import subprocess
import threading
import time

QUERY = (
    "uuid,power.draw,power.limit,clocks.sm,clocks.mem,temperature.gpu,"
    "clocks_event_reasons.active,utilization.gpu"
)
INTERVAL_MS = 100
# Reasons to throttle that make a measurement worthless. Capping power is none: it is how these
# chips run under load.
BAD_REASONS = {0x08: "hardware slowdown", 0x20: "software thermal slowdown",
               0x40: "hardware thermal slowdown", 0x80: "power brake"}
MOST_DEGREES = 15  # spread of a GPU's temperature within a window
MOST_YARDSTICK_SPREAD = 1.1  # fastest over slowest round of the yardstick

Sample = collections.namedtuple("Sample", "at uuid power limit sm_mhz mem_mhz degrees reasons busy")


def parse_sample(line, at):
    """None for a line with a field that this GPU does not report."""
    words = [word.strip() for word in line.split(",")]
    try:
        power, limit, sm, memory, degrees = (float(word) for word in words[1:6])
        return Sample(at, words[0], power, limit, sm, memory, degrees, int(words[6], 16),
                      float(words[7]))
    except (ValueError, IndexError):
        return None


def visible_gpus():
    """Flags of nvidia-smi for the GPUs that CUDA programs see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ["-i", visible] if visible else []


def foreign_processes(own):
    """Compute processes beyond `own` (a number: containers see other pids); None: not visible."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", *visible_gpus(), "--query-compute-apps=pid,gpu_uuid",
               "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    pids = {line.split(",")[0] for line in listed.stdout.splitlines() if line.strip()}
    return max(0, len(pids) - own) if pids else None


class Telemetry:
    """Samples in the background from the start to close(). Without nvidia-smi it has none."""

    def __init__(self):
        self.samples = []
        self.process = None
        if shutil.which("nvidia-smi") is None:
            return
        command = ["nvidia-smi", *visible_gpus(), f"--query-gpu={QUERY}",
                   "--format=csv,noheader,nounits", "-lms", str(INTERVAL_MS)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            sample = parse_sample(line, time.monotonic())
            if sample is not None:
                self.samples.append(sample)

    def window(self, spans):
        """Samples inside any of the (begin, end) spans of time.monotonic()."""
        return [s for s in list(self.samples) if any(b <= s.at <= e for b, e in spans)]

    def close(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def summary(samples):
    """Least, mean and most of what was sampled; {"samples": 0} of nothing."""
    out = {"samples": len(samples)}
    for field in ("power", "sm_mhz", "mem_mhz", "degrees") if samples else ():
        values = [getattr(sample, field) for sample in samples]
        out[field] = [min(values), round(sum(values) / len(values), 1), max(values)]
    if samples:
        reasons = 0
        for sample in samples:
            reasons |= sample.reasons
        out["reasons"] = hex(reasons)
        out["power_limits"] = sorted({sample.limit for sample in samples})
    return out


def unstable_reasons(samples, foreign, yardstick_spread):
    """Why figures taken meanwhile cannot be trusted; empty: they can."""
    found = []
    reasons = 0
    for sample in samples:
        reasons |= sample.reasons
    found += [text for bit, text in BAD_REASONS.items() if reasons & bit]
    for uuid in sorted({sample.uuid for sample in samples}):
        mine = [sample for sample in samples if sample.uuid == uuid]
        degrees = [sample.degrees for sample in mine]
        if max(degrees) - min(degrees) > MOST_DEGREES:
            found.append(f"temperature from {min(degrees):.0f} to {max(degrees):.0f} C")
        if len({sample.limit for sample in mine}) > 1:
            found.append("the power limit changed")
    if foreign:
        found.append(f"{foreign} foreign processes on the GPU")
    if yardstick_spread is not None and yardstick_spread > MOST_YARDSTICK_SPREAD:
        found.append(f"the yardstick's rounds differ by a factor of {yardstick_spread:.2f}")
    return found
