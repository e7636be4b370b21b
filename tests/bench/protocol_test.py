#!/usr/bin/env python3
"""Real arms of the command line on the CPU: protocol_test.py LONGSPAN."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "harness"))

import problem as problems  # noqa: E402
from process import ArmFailed, ArmProcess  # noqa: E402

LONGSPAN = os.path.abspath(sys.argv.pop(1))
TEXT = "dtype=f32 heads=4/2 dim=16 lengths=90,40 mask=causal"


class Protocol(unittest.TestCase):
    def served(self, *flags):
        arm = ArmProcess([LONGSPAN, "bench", "--serve", "--problem", TEXT, *flags])
        self.addCleanup(arm.end)
        return arm

    def test_every_command(self):
        arm = self.served("--ranks", "2", "--graph")
        ready = arm.ready(60)
        self.assertEqual((ready["ranks"], ready["gpus"]), (2, 0))
        self.assertEqual(len(ready["audit"]["peak_bytes"]["allocated"]), 2)
        self.assertGreater(sum(ready["audit"]["attend_launches"]), 0)
        self.assertGreater(arm.ask("warm 0.01", 60)["iterations"], 0)
        timed = arm.ask("round 1 3", 60)
        for times in (timed["forward_us"], timed["backward_us"], timed["host_us"]["forward"]):
            self.assertEqual(len(times), 3)
            self.assertGreater(min(times), 0)
        self.assertIn("CUDA", arm.ask("graph 1 3", 60)["reason"])
        check = arm.ask("check", 60)
        self.assertTrue(check["pass"])
        self.assertLess(max(check["relative_rms"].values()), 1e-5)
        arm.end()
        self.assertEqual(arm.process.returncode, 0)

    def test_flops_are_those_of_the_schedules(self):
        arm = self.served()
        counted = arm.ready(60)["audit"]["flops_of_rank_0"]
        arm.end()
        for direction in ("forward", "backward"):
            self.assertEqual(counted[direction], problems.flops(problems.parse(TEXT), direction))

    def test_forward_alone(self):
        arm = self.served("--backward", "none")
        self.assertIsNone(arm.ready(60)["audit"]["backward"])
        self.assertIsNone(arm.ask("round 0 2", 60)["backward_us"])
        arm.end()

    def test_refusals_are_answers(self):
        with self.assertRaisesRegex(ArmFailed, "declines"):
            self.served("--provider", "require:cudnn").ready(60)
        with self.assertRaisesRegex(ArmFailed, "bench times ranks of one process"):
            self.served("--communicator", "mpi").ready(60)
        for line in ("round 1", "round 1 0", "warm", "dance"):
            arm = self.served()
            arm.ready(60)
            with self.assertRaisesRegex(ArmFailed, "is needed"):
                arm.ask(line, 60)


class Program(unittest.TestCase):
    def test_at_once(self):
        run = subprocess.run(
            [LONGSPAN, "bench", "--problem", TEXT, "--warm", "0", "--warmup", "0",
             "--iterations", "2", "--graph", "--json", "-"],
            capture_output=True, text=True, check=True)
        report = json.loads(run.stdout)
        self.assertEqual(report["status"], "pass")
        self.assertEqual(len(report["round"]["backward_us"]), 2)
        self.assertIn("float64 check", run.stderr)
        self.assertIn("no graph: ", run.stderr)

    def test_two_arms_take_turns(self):
        with tempfile.TemporaryDirectory() as folder:
            out, cases = pathlib.Path(folder, "rows.jsonl"), pathlib.Path(folder, "cases.jsonl")
            plot = pathlib.Path(folder, "plot.svg")
            cases.write_text(json.dumps({"case": "small", "ranks": 1, "problem": TEXT}) + "\n")
            flags = ["--device", "cpu", "--longspan", LONGSPAN, "--warm-seconds", "0",
                     "--iterations", "5", "--warmup", "1", "--out", out, "--cases", cases]
            subprocess.run([sys.executable, ROOT / "bench/run.py", *flags, "--arms",
                            "cpu/tiled,cpu/reference"], check=True)
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            self.assertEqual(len(rows), 6)
            self.assertEqual({row["status"] for row in rows}, {"pass"})
            subprocess.run([sys.executable, ROOT / "bench/check_rows.py", out], check=True)
            made = subprocess.run([sys.executable, ROOT / "bench/table.py", out, "--plot", plot],
                                  check=True, capture_output=True, text=True)
            self.assertIn("`cpu/tiled`", made.stdout)
            self.assertIn("<rect", plot.read_text())


if __name__ == "__main__":
    unittest.main()
