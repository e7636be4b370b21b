#!/usr/bin/env python3
"""Runs the host benchmarks and writes their figures as JSON lines with the machine they hold for.

usage: host_rows.py BUILD_DIR OUTPUT.jsonl [--rounds N]

BUILD_DIR holds bench/bench_cpu_attention and bench/bench_host_overhead. One row per case and arm,
with the fields of docs/performance.md. Run it on a machine that does nothing else.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

ATTENTION = "dtype=f32 heads=8/8 dim=128 lengths=4096 mask=causal"
ATTENTION_FLOPS = {"forward": 4 * 128, "backward": 10 * 128}  # per visible pair and query head
VISIBLE_PAIRS = 4096 * 4097 / 2
HEADS = 8


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def fingerprint():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
        model = next((line.split(":")[1].strip() for line in cpuinfo if "model name" in line), "?")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "compiler": output_of("c++", "--version").splitlines()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": os.getloadavg()[0],
    }


def benchmark(program, *flags):
    """google-benchmark's own rows."""
    path = pathlib.Path(f"{program}.json")
    command = [program, f"--benchmark_out={path}", "--benchmark_out_format=json", *flags]
    subprocess.run(command, check=True, stdout=sys.stderr)
    rows = json.loads(path.read_text())["benchmarks"]
    path.unlink()
    return rows


def attention_rows(row):
    sgemm = row["sgemm_gflops"]
    yield {"case": "sgemm 4096^3", "arm": "openblas", "tflops": sgemm / 1e3}
    for direction, flops in ATTENTION_FLOPS.items():
        rate = row[f"{direction}_gflops"]
        yield {
            "case": "cpu attention",
            "problem": ATTENTION,
            "direction": direction,
            "arm": "cpu/tiled",
            "ranks": 1,
            "gpus": 0,
            "median_us": flops * VISIBLE_PAIRS * HEADS / rate / 1e3,
            "tflops": rate / 1e3,
            "sgemm_fraction": row[f"{direction}_percent"] / 100,
        }


def overhead_rows(rows):
    to_us = {"ns": 1e-3, "us": 1, "ms": 1e3}
    for row in rows:
        if row.get("run_type") == "aggregate" and row.get("aggregate_name") != "median":
            continue
        yield {
            "case": row["run_name"],
            "arm": "longspan",
            "ranks": 8 if "build" in row["run_name"] else 1,
            "gpus": 0,
            "median_us": row["real_time"] * to_us[row["time_unit"]],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    common = {
        "run_id": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
        "commit": output_of("git", "rev-parse", "HEAD"),
    }
    machine = fingerprint()
    programs = arguments.build / "bench"
    attention = benchmark(f"{programs}/bench_cpu_attention", f"--rounds={arguments.rounds}")
    overhead = benchmark(
        f"{programs}/bench_host_overhead",
        "--benchmark_repetitions=5",
        "--benchmark_report_aggregates_only=true",
    )
    rows = [*attention_rows(attention[0]), *overhead_rows(overhead)]
    with open(arguments.output, "w", encoding="ascii") as file:
        for row in rows:
            file.write(json.dumps({**common, **row, "fingerprint": machine}) + "\n")


if __name__ == "__main__":
    main()
