"""Routing tables: measured by bench --calibrate, gone by in the automatic choice."""

import json

CASES = """# Two cases, and one that nobody offers.
dtype=f32 heads=4/2 dim=16 lengths=96 mask=causal
dtype=f32 heads=4/2 dim=16 lengths=96 mask=causal fp8=current

dtype=f32 heads=4/2 dim=16 lengths=64,32 mask=none
"""
PROBLEM = "dtype=f32 heads=4/2 dim=16 lengths=96 mask=causal"
ARMS = ["--arms", "cpu/tiled,cpu/reference"]


def written(tool, name, text):
    file = tool.path(name)
    with open(file, "w", encoding="ascii") as out:
        out.write(text)
    return file


def measured(tool, *flags):
    file = tool.path("table.json")
    report = tool.expect_pass(["bench", "--calibrate", file, "--cases",
                               written(tool, "cases.txt", CASES), *ARMS, *flags])
    with open(file, encoding="ascii") as table:
        return file, report, json.load(table)


def times_are_written_as_a_table(tool):
    _, report, table = measured(tool)
    tool.expect(report["rows"] == 4 == len(table["rows"]), str(report))
    tool.expect(len(report["left_out"]) == 1, str(report["left_out"]))
    tool.expect("fp8=current: fewer than two providers" in report["left_out"][0],
                str(report["left_out"]))
    tool.expect(table["fingerprint"]["providers"] == "cpu/tiled, cpu/reference",
                str(table["fingerprint"]))
    for row in table["rows"]:
        tool.expect(set(row["median_us"]) == {"cpu/tiled", "cpu/reference"}, str(row))
    lengths = [row["length"] for row in table["rows"]]
    tool.expect(lengths == [96, 96, 48, 48], str(lengths))


def forward_alone_has_no_rows_of_backward(tool):
    _, report, table = measured(tool, "--backward", "none")
    tool.expect(report["rows"] == 2, str(report))
    tool.expect({row["direction"] for row in table["rows"]} == {"forward"}, str(table["rows"]))


def a_spent_budget_leaves_cases_out(tool):
    cases = written(tool, "cases.txt", CASES)
    tool.expect_refused(["bench", "--calibrate", tool.path("none.json"), "--cases", cases, *ARMS,
                         "--budget", "0"],
                        "3 problems gave no row", "the budget of 0 s was spent; raise --budget",
                        status="declined")


def the_automatic_choice_goes_by_the_table(tool):
    file, _, table = measured(tool)
    table["rows"][0]["median_us"] = {"cpu/tiled": 100, "cpu/reference": 80}
    table["rows"][1]["median_us"] = {"cpu/tiled": 100, "cpu/reference": 400}
    file = written(tool, "changed.json", json.dumps(table))
    for ranks in (1, 3):
        told = tool("explain", "--routing-table", file, "--problem", PROBLEM, "--ranks", ranks)
        for words in ("cpu/reference (measured table: cpu/reference 0.80 of cpu/tiled)",
                      "cpu/tiled (measured table: cpu/tiled 0.25 of cpu/reference)"):
            tool.expect(words in told.out, told.out + told.err)
    report = tool.expect_pass(["run", "--routing-table", file, "--problem", PROBLEM,
                               "--ranks", 2])
    tool.expect(report["forward"]["provider"] == "cpu/reference", str(report["forward"]))


def the_table_until_now_is_audited(tool):
    file, _, table = measured(tool)
    again = measured(tool, "--routing-table", file)[1]
    tool.expect(again["choice"] == {"fastest": 4, "near": 4, "worst": 1}, str(again["choice"]))
    table["rows"][0]["median_us"] = {"cpu/tiled": 100, "cpu/reference": 80}  # which is not so
    file = written(tool, "changed.json", json.dumps(table))
    wrong = measured(tool, "--routing-table", file)[1]
    tool.expect(wrong["choice"]["fastest"] == 3, str(wrong["choice"]))
    tool.expect(wrong["choice"]["worst"] > 1, str(wrong["choice"]))


def what_is_no_table_is_refused(tool):
    file, _, table = measured(tool)
    table["rows"][2]["speed"] = 1
    file = written(tool, "changed.json", json.dumps(table))
    tool.expect_refused(["explain", "--routing-table", file, "--problem", PROBLEM],
                        "changed.json", "row 2 has the unknown field", "speed")
    tool.expect_refused(["explain", "--routing-table", tool.path("none"), "--problem", PROBLEM],
                        "cannot be read")
    tool.expect_refused(["explain", "--routing-table", "/", "--problem", PROBLEM], "Is a directory")
    deep = written(tool, "deep.json", '{"format": ' + "[" * 200000 + "]" * 200000 + "}")
    tool.expect_refused(["explain", "--routing-table", deep, "--problem", PROBLEM], "nested deeper")


def what_calibrate_does_not_take(tool):
    calibrate = ["bench", "--calibrate", tool.path("none.json")]
    tool.expect_refused([*calibrate, "--problem", PROBLEM], "drop --problem")
    tool.expect_refused([*calibrate, "--ranks", 2], "on one rank")
    tool.expect_refused([*calibrate, "--arms", "cpu/fast"], "--arms cpu/fast")
    tool.expect_refused([*calibrate, "--budget", "-1"], "--budget -1")
    tool.expect_refused([*calibrate, "--cases", tool.path("none.txt")], "cannot be read")
    tool.expect_refused([*calibrate, "--cases", "/"], "--cases '/' cannot be read: Is a directory")
    tool.expect_refused([*calibrate, "--cases", written(tool, "empty.txt", "# nothing\n")],
                        "has no problem text")


def cases():
    return [
        times_are_written_as_a_table,
        forward_alone_has_no_rows_of_backward,
        a_spent_budget_leaves_cases_out,
        the_automatic_choice_goes_by_the_table,
        the_table_until_now_is_audited,
        what_is_no_table_is_refused,
        what_calibrate_does_not_take,
    ]
