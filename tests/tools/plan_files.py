"""Plans in files: saved by explain and run, run again, refused where they do not fit."""

import os

PROBLEM = "dtype=bf16 heads=4/4 dim=8 lengths=30,21 mask=causal dropout=0.2"


def saved(tool, *flags):
    file = tool.path("plan.json")
    run = tool("explain", "--problem", PROBLEM, "--save-plan", file, *flags)
    tool.expect(run.code == 0, run.err)
    return file


def a_plan_is_run_as_it_was_chosen(tool):
    file = saved(tool, "--ranks", 4, "--nodes", 2, "--forward", "hybrid", "--backward",
                 "head_parallel", "--partition", "striped", "--provider", "forward=off:cpu/tiled")
    again = tool.path("again.json")
    report = tool.expect_pass(["run", "--plan", file, "--save-plan", again, "--seed", 3])
    tool.expect(report["ranks"] == 4, str(report["ranks"]))
    tool.expect(report["forward"]["strategy"] == "hybrid", str(report["forward"]))
    tool.expect(report["forward"]["provider"] == "cpu/reference", str(report["forward"]))
    tool.expect(report["backward"]["strategy"] == "head_parallel", str(report["backward"]))
    with open(file, "rb") as one, open(again, "rb") as other:
        tool.expect(one.read() == other.read(), "a run saves another plan than it was given")
    told = tool("run", "--plan", file, "--verbose")
    tool.expect("strategy hybrid (recorded), provider cpu/reference (recorded)" in told.err,
                told.err)


def tensors_come_from_a_file(tool):
    file = saved(tool, "--ranks", 2)
    tensors = tool.path("tensors.safetensors")
    tool.expect_pass(["run", "--plan", file, "--output", tensors])
    tool.expect_pass(["run", "--plan", file, "--input", tensors])
    other = tool.path("other.safetensors")
    problem = PROBLEM.replace("causal", "causal window=4,0")
    tool.expect_pass(["run", "--problem", problem, "--output", other])
    tool.expect_refused(["run", "--plan", file, "--input", other], "is of the problem",
                        "window=4,0")


def forward_alone(tool):
    file = saved(tool, "--backward", "none")
    report = tool.expect_pass(["run", "--plan", file])
    tool.expect(report["backward"] is None, str(report["backward"]))


def promises_come_with_the_plan(tool):
    file = tool.path("plan.json")
    problem = PROBLEM + " device_lengths=true align=bottom_right"
    tool.expect_pass(["explain", "--problem", problem, "--ranks", 2, "--promise", "uniform_lengths",
                      "--save-plan", file])
    tool.expect_pass(["run", "--plan", file])


def what_does_not_fit_is_refused(tool):
    file = saved(tool, "--ranks", 2)
    run = ["run", "--plan", file]
    tool.expect_refused([*run, "--problem", PROBLEM], "has its own problem; drop one of them")
    tool.expect_refused([*run, "--ranks", 3], "the plan is of 2 ranks; there are 3 here")
    tool.expect_refused([*run, "--ranks", 2, "--nodes", 2],
                        "lie on nodes 0,0; here they lie on 0,1")
    tool.expect_refused([*run, "--head-slices", 2], "head_slices is 2 here and 1 in the plan")
    tool.expect_refused(["run", "--plan", ""], "--plan is empty")
    tool.expect_refused(["run", "--plan", tool.path("none.json")], "none.json' cannot be read")
    tool.expect_refused(["run", "--plan", tool.folder], "cannot be read")


def damaged_files_are_refused(tool):
    file = saved(tool)
    with open(file, "rb") as plan:
        data = plan.read()
    for changed, message in (
        (data[:-1], "no JSON object"),
        (data.replace(b"dropout=0.2", b"dropout=0.3"), "not as they were written"),
        (b"", "a plan of 0 bytes"),
        (b" " * (2**24 + 5), "has from 1 to 16777216"),
        (data.replace(b'"format":1', b'"format":2'), "format is 2; this library reads 1"),
    ):
        with open(file, "wb") as plan:
            plan.write(changed)
        tool.expect_refused(["run", "--plan", file], "plan.json'", message)


def a_declined_problem_leaves_no_file(tool):
    file = tool.path("declined.json")
    run = tool("explain", "--problem", PROBLEM + " fp8=current", "--save-plan", file)
    tool.expect(run.code == 2 and not os.path.exists(file), f"{run.code}: {run.err}")


def cases():
    return [
        a_plan_is_run_as_it_was_chosen,
        tensors_come_from_a_file,
        forward_alone,
        promises_come_with_the_plan,
        what_does_not_fit_is_refused,
        damaged_files_are_refused,
        a_declined_problem_leaves_no_file,
    ]
