#!/usr/bin/env python3
"""The harness of bench/ without a GPU: orders, figures, sessions with fake arms, row rules."""

import copy
import itertools
import pathlib
import sys
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "harness")]

import arms  # noqa: E402
import check_rows  # noqa: E402
import orders  # noqa: E402
import problem as problems  # noqa: E402
import ratios  # noqa: E402
import run  # noqa: E402
import table  # noqa: E402
import telemetry  # noqa: E402
from checker import violations  # noqa: E402
from drawing import draw  # noqa: E402
from rows import FIELDS, rows  # noqa: E402
from session import Case, Settings  # noqa: E402

TEXT = "dtype=f32 heads=4/2 dim=8 lengths=64 mask=causal"
FAKE = str(pathlib.Path(__file__).resolve().parent / "fake_arm.py")
COMMON = {"run_id": "r", "commit": "c", "fingerprint": {"gpus": []}}


class NoMeter:
    def window(self, _spans):
        return []


def measured(arm_names, **changes):
    """Rows and record of a case of fake arms."""
    settings = Settings(longspan=FAKE, device="cpu", fresh="case", warm_seconds=0, warmup=1,
                        iterations=3, yardstick=False, **changes)
    record = Case("case", TEXT, 1, arm_names, settings, lambda text: None).run(NoMeter())
    return list(rows(record, settings, COMMON)), record


def of(made, arm, direction):
    return next(r for r in made if r["arm"] == arm and r["direction"] == direction)


class Orders(unittest.TestCase):
    def test_up_to_three_arms_all_permutations(self):
        for count in (1, 2, 3):
            names = list("abc"[:count])
            self.assertEqual(sorted(orders.balanced_orders(names)),
                             sorted(map(list, itertools.permutations(names))))

    def test_more_arms_are_balanced(self):
        for count in range(4, 10):
            made = orders.balanced_orders(list(range(count)))
            self.assertEqual(len(made), count if count % 2 == 0 else 2 * count)
            for column in zip(*made):  # each place
                self.assertEqual({column.count(arm) for arm in range(count)},
                                 {len(made) // count})
            after = [pair for order in made for pair in zip(order, order[1:])]
            counts = {after.count(pair) for pair in itertools.permutations(range(count), 2)}
            self.assertEqual(len(counts), 1)

    def test_a_log_is_complete_or_not(self):
        log = orders.balanced_orders(["a", "b", "c"])
        self.assertTrue(orders.is_complete(log * 2, ["a", "b", "c"]))
        self.assertFalse(orders.is_complete(log[:-1], ["a", "b", "c"]))
        self.assertFalse(orders.is_complete([], ["a"]))


class Figures(unittest.TestCase):
    def test_ratio_is_the_median_of_paired_ratios(self):
        # The ratio of the medians would be 2 / 10.
        self.assertEqual(ratios.ratio([1, 2, 30], [2, 10, 15]), 0.5)
        self.assertEqual(ratios.wins([1, 2, 30], [2, 10, 15]), "2/3")
        with self.assertRaises(ValueError):
            ratios.ratio([1], [1, 2])

    def test_pairs_are_those_of_the_band(self):
        masks = ["", "mask=causal", "mask=causal align=bottom_right", "window=3,2",
                 "mask=causal window=4,0", "window=-1,2", "window=0,-1",
                 "window=2,5 align=bottom_right"]
        for mask, (queries, keys) in itertools.product(masks, [(7, 7), (5, 12), (12, 5), (1, 1)]):
            text = f"dtype=f32 heads=1/1 dim=1 lengths={queries} kv_lengths={keys} {mask}"
            problem = problems.parse(text)
            lo, hi = problems.band(problem, queries, keys)
            seen = sum((lo is None or k - q >= lo) and (hi is None or k - q <= hi)
                       for q in range(queries) for k in range(keys))
            self.assertEqual(problems.visible_pairs(problem), seen, text)

    def test_flops_follow_the_convention(self):
        problem = problems.parse("dtype=bf16 heads=4/2 dim=8 lengths=2,3 dim_v=4")
        self.assertEqual(problems.flops(problem, "forward"), 2 * 12 * 13 * 4)
        self.assertEqual(problems.flops(problem, "backward"), 2 * 32 * 13 * 4)

    def test_long_problems_are_checked_on_short_ones(self):
        text = "dtype=bf16 heads=1/1 dim=1 lengths=64,32 mask=none window=9,0"
        self.assertEqual(problems.small_enough(text, 1e9), text)
        short = text.replace("64,32", "16,8")
        self.assertEqual(
            problems.small_enough(text, problems.flops(problems.parse(short), "both")), short)
        self.assertEqual(problems.small_enough(text, 1), text.replace("64,32", "8,4"))

    def test_cases_are_problems(self):
        for name in ("headline", "two_gpus"):
            cases = run.read_cases(name)
            self.assertEqual(len({case["case"] for case in cases}), len(cases))
            for case in cases:
                problem = problems.parse(case["problem"])
                self.assertGreater(problems.visible_pairs(problem), 0)
                self.assertEqual(problem.other, {})


class Arms(unittest.TestCase):
    def command(self, name):
        arm = arms.make_arm(name, TEXT, 2, "cuda", "both", "longspan", False)
        return " ".join(arm.command), arm.ranks

    def test_names_of_the_conventions(self):
        for name in ("longspan", "longspan:ring:peer", "hopper", "hopper:x", "cudnn",
                     "prepared:fa4", *arms.PEER_ARMS):
            self.command(name)
        self.assertIn("--forward ring --backward ring --communicator peer",
                      self.command("longspan:ring:peer")[0])
        self.assertEqual(self.command("cudnn@1")[1], 1)
        self.assertIn("--communicator peer --head-slices 2 --provider require:hopper",
                      self.command("longspan:ring:peer:2:hopper")[0])
        self.assertIn("--backward ring --provider require:hopper",
                      self.command("longspan:ring:::hopper")[0])
        self.assertNotIn("--head-slices", self.command("longspan:ring:peer:hopper")[0])

    def test_a_store_is_named_to_longspans_arms_alone(self):
        for name, there in (("prepared:fa4", True), ("longspan", True), ("fa4", False)):
            arm = arms.make_arm(name, TEXT, 1, "cuda", "both", "longspan", False, "store")
            self.assertEqual("--prepared store" in " ".join(arm.command), there)
        self.assertIn("--provider require:prepared ", self.command("prepared:fa4")[0] + " ")

    def test_unknown_names_are_refused(self):
        for name in ("cudnn@", "cudnn@0", "cudnn@two", "longspan:star",
                     "longspan:ring:peer:2:x", "longspan:ring:peer:hopper:2",
                     "longspan:ring:peer:2:hopper:x", "tensorflow"):
            with self.assertRaises(arms.UnknownArm):
                self.command(name)


class Sessions(unittest.TestCase):
    def test_rows_of_three_arms(self):
        made, record = measured(["longspan", "cpu/slow", "cpu/fast"])
        self.assertEqual(len(record.orders), 6)
        self.assertEqual(violations(made), [])
        row = of(made, "longspan", "both")
        self.assertEqual(row["median_us"], 3 * 103.5)
        self.assertEqual(row["wins"], {"cpu/slow": "6/6", "cpu/fast": "0/6"})
        self.assertAlmostEqual(row["ratio_to"]["cpu/slow"], 103.5 / 203.5, places=4)
        self.assertEqual(row["host_us"], 12)
        self.assertEqual(row["extra_bytes"], 64)

    def test_a_check_on_a_shorter_problem_has_processes_of_its_own(self):
        made, record = measured(["longspan", "cpu/wrong"], check_flops=1)
        self.assertEqual(violations(made), [])
        self.assertEqual(record.checked_problem, TEXT.replace("64", "4"))
        row = of(made, "longspan", "both")
        self.assertEqual(row["problem"], TEXT)
        self.assertEqual([r["status"] for r in made if r["arm"] == "cpu/wrong"], ["failed"])

    def test_fresh_processes_for_each_order(self):
        settings = Settings(longspan=FAKE, device="cpu", warm_seconds=0, warmup=0, iterations=2,
                            yardstick=False)
        record = Case("case", TEXT, 1, ["cpu/slow", "cpu/fast"], settings,
                      lambda text: None).run(NoMeter())
        first = [answer["forward_us"][0] for answer in record.arms[0].rounds]
        self.assertEqual(first, [201, 201])  # each process counts its own rounds

    def test_arms_that_fail_are_rows_too(self):
        made, record = measured(["longspan", "cpu/slow", "cpu/wrong", "cpu/refuses", "cpu/dies",
                                 "tensorflow", "missing:program"])
        self.assertEqual(violations(made), [])
        failed = {row["arm"]: row["message"] for row in made if row["status"] == "failed"}
        self.assertIn("wrong results", failed["cpu/wrong"])
        self.assertIn("dim 999", failed["cpu/refuses"])
        self.assertIn("out of luck", failed["cpu/dies"])
        self.assertIn("no arm has this name", failed["tensorflow"])
        self.assertEqual(record.orders, [["cpu/slow", "longspan"], ["longspan", "cpu/slow"]])
        self.assertEqual(of(made, "cpu/wrong", "both")["relative_rms"]["o"], 1)

    def test_a_program_that_is_missing(self):
        made, _ = measured(["torch_sdpa_cudnn"])
        self.assertEqual([row["status"] for row in made], ["failed"])

    def test_table_and_drawing(self):
        made, _ = measured(["longspan", "cpu/slow", "cpu/wrong"])
        text = table.table(made)
        self.assertEqual(len(text.splitlines()), 2 + len(made))
        self.assertIn("failed: wrong results", text)
        self.assertEqual(draw(made).count("<rect"), 1 + 6)
        self.assertIn("</svg>", draw([]))


# Rows that other programs wrote, with fewer fields: google-benchmark's, python_overhead.py.
OTHER_PROGRAMS = ("host.jsonl", "h200_python.jsonl")


class KeptRows(unittest.TestCase):
    def test_they_keep_the_rules(self):
        for path in (ROOT / "bench" / "results").glob("*.jsonl"):
            if path.name not in OTHER_PROGRAMS:
                self.assertEqual(violations(check_rows.read_rows(path)), [], path.name)


class Checker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made, _ = measured(["longspan", "cpu/slow"])

    def rules(self, **changes):
        """What is broken once a row is changed; a callable changes a copy of the field."""
        made = copy.deepcopy(self.made)
        for name, value in changes.items():
            made[2][name] = value(made[2][name]) if callable(value) else value
        return [rule for _, rule in violations(made)]

    def test_good_rows(self):
        self.assertEqual(self.rules(), [])

    def test_each_field_is_needed(self):
        for name in FIELDS:
            made = copy.deepcopy(self.made)
            del made[0][name]
            self.assertIn((0, f"no field {name}"), violations(made))

    def test_bad_rows(self):
        self.assertEqual(self.made[2]["direction"], "both")
        bad = {
            "median": {"median_us": 1.0},
            "NaN": {"median_us": float("nan")},
            "infinite": {"host_us": float("inf")},
            "rounds of another type": {"round_us": "fast"},
            "ratios of another type": {"ratio_to": 5},
            "audit of another type": {"audit": 5},
            "negative": {"host_us": -1},
            "no rounds": {"round_us": []},
            "rate": {"tflops": 1e9},
            "bytes": {"extra_bytes": -5},
            "unchecked": {"relative_rms": None},
            "check of another problem": {"checked_problem": TEXT.replace("causal", "none")},
            "check of nothing": {"checked_problem": None},
            "error of dq missing": {"relative_rms": lambda e: {"o": e["o"]}},
            "error not finite": {"relative_rms": lambda e: {**e, "o": None}},
            "no wall": {"wall_us": None},
            "graph without a reason": {"graph_reason": ""},
            "peaks of one rank missing": {"peak_bytes": {"allocated": [], "reserved": [1]}},
            "no audit": {"audit": None},
            "no telemetry on a GPU": {"gpus": 1},
            "stable and not": {"unstable": ["thermal"]},
            "an order missing": {"orders": lambda log: log[:1]},
            "no orders": {"orders": []},
            "ratio of medians": {"ratio_to": {"cpu/slow": 0.1}},
            "wins": {"wins": {"cpu/slow": "0/2"}},
            "ratio left out": {"ratio_to": {}},
            "direction": {"direction": "sideways"},
            "status": {"status": "great"},
            "failed without words": {"status": "failed", "message": ""},
            "no commit": {"commit": ""},
            "fraction without a yardstick": {"cublas_fraction": 0.5},
        }
        for what, changes in bad.items():
            with self.subTest(what):
                self.assertNotEqual(self.rules(**changes), [])


class Stability(unittest.TestCase):
    LINE = "GPU-1, 650.5, 700.00, 1500, 3201, 60, 0x0000000000000004, 100"

    def samples(self, **changes):
        first = telemetry.parse_sample(self.LINE, 1.0)
        return [first, first._replace(at=2.0, **changes)]

    def test_looks_at_the_gpus_that_cuda_sees(self):
        with unittest.mock.patch.dict("os.environ", {"CUDA_VISIBLE_DEVICES": "1,3"}):
            self.assertEqual(telemetry.visible_gpus(), ["-i", "1,3"])
        with unittest.mock.patch.dict("os.environ", {"CUDA_VISIBLE_DEVICES": ""}):
            self.assertEqual(telemetry.visible_gpus(), [])

    def test_samples_are_read(self):
        sample = telemetry.parse_sample(self.LINE, 1.0)
        self.assertEqual((sample.power, sample.sm_mhz, sample.reasons), (650.5, 1500, 4))
        self.assertIsNone(telemetry.parse_sample("GPU-1, [N/A], 700, 1, 1, 60, 0x0, 100", 0))
        self.assertEqual(telemetry.summary([sample])["degrees"], [60, 60.0, 60])
        self.assertEqual(telemetry.summary([]), {"samples": 0})

    def test_the_gate(self):
        self.assertEqual(telemetry.unstable_reasons(self.samples(), 0, 1.05), [])
        for changes, foreign, spread in (({"reasons": 0x40}, 0, 1), ({"degrees": 90.0}, 0, 1),
                                         ({"limit": 500.0}, 0, 1), ({}, 2, 1), ({}, None, 1.5)):
            found = telemetry.unstable_reasons(self.samples(**changes), foreign, spread)
            self.assertEqual(len(found), 1, changes)


if __name__ == "__main__":
    unittest.main()
