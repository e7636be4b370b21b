#!/usr/bin/env python3
"""Files and flags that the programs of bench/ cannot use: a line says what, no traceback."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "harness"))

import process  # noqa: E402

CASE = '{"case": "c", "ranks": 1, "problem": "dtype=f32 heads=1/1 dim=8 lengths=8"}\n'
LINES = {
    "broken": ('{"case"\n', ":1 is no JSON"),
    "list": ("\n[1]\n", ":2 is no JSON object"),
    "other": ('{"speed": 1}\n', ":1 has no "),
    "bytes": ("\xff", "cannot be read"),
}


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, text):
        path = self.folder / "lines.jsonl"
        path.write_text(text, encoding="latin-1")
        return path

    def refused(self, program, *arguments, code=2):
        """What the program says; its exit code is `code`."""
        command = [sys.executable, ROOT / "bench" / program, *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, code, run.stderr)
        self.assertNotIn("Traceback", run.stderr)
        return run.stdout + run.stderr

    def test_lines_that_are_no_rows(self):
        for text, part in LINES.values():
            self.assertIn(part, self.refused("table.py", self.file(text)))
        for name in ("broken", "list", "bytes"):
            text, part = LINES[name]
            self.assertIn(part, self.refused("check_rows.py", self.file(text)))
        for program in ("check_rows.py", "table.py"):
            self.assertIn("No such file", self.refused(program, self.folder / "missing"))

    def test_a_broken_rule_has_the_number_of_its_line(self):
        path = self.file('\n\n{"case": "a"}\n')
        self.assertIn(f"{path}:3: a None", self.refused("check_rows.py", path, code=1))

    def test_a_file_without_rows_is_none_of_rows(self):
        self.assertIn("0 rows", self.refused("check_rows.py", self.file("\n"), code=1))

    def test_cases_that_are_none(self):
        common = ("--arms", "longspan", "--out", self.folder / "rows.jsonl", "--device", "cpu")
        cases = {
            **LINES,
            "ranks": (CASE.replace("1,", "0,"), "ranks is 0, at least 1"),
            "ranks of another type": (CASE.replace("1,", '"one",'), "ranks is one"),
            "problem": (CASE.replace("heads=1/1", "heads"), "is no problem text"),
            "problem of another type": (CASE.replace('"dtype', '5, "x": "'), "'5' is no problem"),
        }
        for text, part in cases.values():
            self.assertIn(part, self.refused("run.py", "--cases", self.file(text), *common))
        self.assertIn("nowhere.jsonl", self.refused("run.py", "--cases", "nowhere", *common))

    def test_flags_out_of_range(self):
        common = ("--cases", self.file(CASE), "--arms", "longspan", "--device", "cpu")
        for flags, part in ((["--match", "["], "no regular expression"),
                            (["--iterations", 0], "at least 1"), (["--cycles", 0], "at least 1"),
                            (["--warmup", -1], "at least 0"), (["--budget", "nan"], "at least 0")):
            self.assertIn(part, self.refused("run.py", *common, *flags, "--out", "rows"))
        self.assertIn("No such file", self.refused("run.py", *common, "--out", "/no/such/folder/x"))


    def test_help_needs_no_package(self):
        alone = ("-I", ROOT / "bench" / "python_overhead.py")  # no PYTHONPATH
        help_text = subprocess.run([sys.executable, *alone, "--help"], capture_output=True,
                                   text=True, check=True).stdout
        self.assertIn("--calls", help_text)


class Arms(unittest.TestCase):
    def started(self, program):
        arm = process.ArmProcess([sys.executable, "-c", program])
        arm.patience = 0.2
        self.addCleanup(arm.end)
        return arm

    def test_what_is_no_answer_is_passed_over(self):
        arm = self.started('print("{1}\\n[2]\\n{}\\n{\\"event\\": \\"ready\\"}", flush=True)')
        self.assertEqual(arm.ready(20), {"event": "ready"})

    def test_one_that_closes_its_output_and_stays(self):
        arm = self.started("import os, time; os.close(1); time.sleep(60)")
        with self.assertRaisesRegex(process.ArmFailed, "has not ended"):
            arm.ready(20)


if __name__ == "__main__":
    unittest.main()
