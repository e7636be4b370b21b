"""Runs the command line as a user does: run_commands.py LONGSPAN GROUP."""

import json
import os
import subprocess
import sys
import tempfile

import bad_input
import calibrations
import hostile_files
import plan_files
import planned
import processes
import results
import score_terms
import side_files
import verbose

GROUPS = {
    "bad_input": bad_input.cases,
    "calibrations": calibrations.cases,
    "hostile_files": hostile_files.cases,
    "plan_files": plan_files.cases,
    "planned": planned.cases,
    "results": results.cases,
    "score_terms": score_terms.cases,
    "side_files": side_files.cases,
    "verbose": verbose.cases,
    "processes": processes.cases,
}


def refuse_constant(name):
    raise ValueError(f"{name} stands in the JSON")


class Run:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    @property
    def json(self):
        """Standard output, which must hold one JSON object alone, without NaN or Infinity."""
        return json.loads(self.out, parse_constant=refuse_constant)


class Tool:
    """Runs the program in a folder of its own and counts what was verified."""

    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        self.checks = 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def __call__(self, *arguments, launcher=(), timeout=120):
        command = [*launcher, self.program, *map(str, arguments)]
        return Run(
            subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
            )
        )

    def expect(self, condition, message):
        self.checks += 1
        if not condition:
            raise AssertionError(message)

    def expect_refused(self, arguments, *parts, status="error", code=2):
        """Once for people and once as JSON: the same message, nothing else on standard output."""
        plain = self(*arguments)
        self.expect(plain.code == code, f"{arguments}: exit code {plain.code}: {plain.err}")
        for part in parts:
            self.expect(part in plain.err, f"{arguments}: no '{part}' in: {plain.err}")
        coded = self(*arguments, "--json", "-")
        self.expect(coded.code == code, f"{arguments} --json -: exit code {coded.code}")
        report = coded.json
        self.expect(report["status"] == status, f"{arguments}: status {report['status']}")
        for part in parts:
            self.expect(
                part in report["message"], f"{arguments}: no '{part}' in {report['message']}"
            )

    def expect_pass(self, arguments):
        run = self(*arguments, "--json", "-")
        self.expect(run.code == 0, f"{arguments}: exit code {run.code}: {run.err}")
        self.expect(run.json["status"] == "pass", f"{arguments}: {run.out}")
        return run.json


def main(program, group):
    failures = 0
    with tempfile.TemporaryDirectory(prefix="longspan-test-") as folder:
        tool = Tool(os.path.abspath(program), folder)
        for case in GROUPS[group]():
            try:
                case(tool)
            except (AssertionError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"FAIL {case.__name__}: {error!r}", flush=True)
        print(f"{group}: {tool.checks} checks, {failures} failed cases")
    return 1 if failures or tool.checks == 0 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
