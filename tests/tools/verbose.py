"""What --verbose adds to standard error, and that nothing else changes."""

PROBLEM = "dtype=f32 heads=4/2 dim=8 lengths=30,2 mask=causal"


def tells_what_is_chosen(tool):
    for command in (["run", "--ranks", 2], ["explain", "--ranks", 2]):
        arguments = [*command, "--problem", PROBLEM, "--provider", "prefer:cudnn"]
        quiet = tool(*arguments)
        told = tool(*arguments, "--verbose")
        tool.expect(quiet.code == told.code == 0, f"{quiet.err} / {told.err}")
        tool.expect("rank 0:" not in quiet.err, quiet.err)
        for part in (
            "longspan: info: rank 1: partition ",
            "longspan: warning: rank 0: forward strategy ",
            "preferred cudnn declined",
            "plans built",
            "prepared in ",
        ):
            tool.expect(part in told.err, f"{command}: no '{part}' in: {told.err}")


def keeps_standard_output_clean(tool):
    report = tool.expect_pass(["run", "--problem", PROBLEM, "--verbose"])
    tool.expect(report["ranks"] == 1, str(report))


def tells_of_a_lost_rank(tool):
    arguments = ("run", "--problem", PROBLEM, "--ranks", 2, "--fail-rank", 1, "--deadline", 1)
    run = tool(*arguments, "--verbose")
    tool.expect(run.code == 3, f"{run.code}: {run.err}")
    tool.expect("longspan: error: rank 0: gives up, peer_lost" in run.err, run.err)


def cases():
    return [tells_what_is_chosen, keeps_standard_output_clean, tells_of_a_lost_rank]
