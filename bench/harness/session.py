"""One case: arms as live processes that take turns in balanced orders."""

import dataclasses
import os
import time

import problem as problems
import ratios
import telemetry
from arms import YARDSTICK, UnknownArm, make_arm
from orders import balanced_orders
from process import ArmFailed, ArmProcess

NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0"}


@dataclasses.dataclass(frozen=True)
class Settings:
    longspan: str = "build/release/longspan"
    prepared: str = ""  # store of prepared kernels for longspan's arms
    device: str = "cuda"
    direction: str = "both"  # or forward
    cycles: int = 1  # of all balanced orders
    fresh: str = "order"  # processes are started again for each order, or once a case
    warm_seconds: float = 3
    warmup: int = 5
    iterations: int = 50
    slice_seconds: float = 0.5  # of timed work at most, but five iterations at least
    graph: bool = False
    check: bool = True
    check_flops: float = 1e13  # longer problems are checked at half their lengths, and so on
    yardstick: bool = True
    start_timeout: float = 300
    timeout: float = 300


@dataclasses.dataclass
class ArmRecord:
    """What one arm did in a case. `rounds` and `graphs` hold an answer per round."""

    name: str
    ranks: int = 0
    processes: int = 0
    ready: dict = None
    check: dict = None
    warm: dict = None
    rounds: list = dataclasses.field(default_factory=list)
    graphs: list = dataclasses.field(default_factory=list)
    spans: list = dataclasses.field(default_factory=list)
    failure: str = None
    libraries: list = dataclasses.field(default_factory=list)
    complaints: list = dataclasses.field(default_factory=list)

    @property
    def alive(self):
        return self.failure is None


@dataclasses.dataclass
class CaseRecord:
    name: str
    problem: str
    ranks: int
    checked_problem: str = None
    arms: list = dataclasses.field(default_factory=list)
    yardstick: ArmRecord = None
    orders: list = dataclasses.field(default_factory=list)  # of the arms that were timed
    iterations: int = 0
    foreign: int = None
    samples: list = dataclasses.field(default_factory=list)
    unstable: list = dataclasses.field(default_factory=list)


class Case:
    """Runs one case. An arm that fails is recorded with its message and leaves the turns."""

    def __init__(self, name, problem, ranks, arm_names, settings, log):
        self.settings = settings
        self.log = log
        self.record = CaseRecord(name, problem, ranks)
        self.live = {}
        for arm_name in dict.fromkeys(arm_names):
            self.record.arms.append(self._known(arm_name))
        if settings.yardstick:
            self.record.yardstick = self._known(YARDSTICK + "@1")

    def _known(self, name):
        record = ArmRecord(name)
        try:
            arm = self._arm(name, self.record.problem)
            record.ranks, record.processes = arm.ranks, arm.processes
        except UnknownArm as error:
            self._fail(record, str(error))
        return record

    def _arm(self, name, problem):
        s = self.settings
        return make_arm(name, problem, self.record.ranks, s.device, s.direction, s.longspan,
                        s.graph, s.prepared)

    def _all(self):
        yardstick = [self.record.yardstick] if self.record.yardstick else []
        return [arm for arm in [*yardstick, *self.record.arms] if arm.alive]

    def _fail(self, arm, message):
        arm.failure = message
        arm.rounds, arm.graphs = [], []
        self.log(f"{self.record.name}: {arm.name}: {message}")
        process = self.live.pop(arm.name, None)
        if process is not None:
            process.end()

    def _ask(self, arm, line):
        """The answer, or None after the arm has failed."""
        begin = time.monotonic()
        answer = self._try(arm, lambda process: process.ask(line, self.settings.timeout))
        arm.spans.append((begin, time.monotonic()))
        return answer

    def _try(self, arm, action):
        try:
            return action(self.live[arm.name])
        except ArmFailed as error:
            self._fail(arm, str(error))
            return None

    def start(self, problem=None):
        """All arms at once: none is timed yet."""
        environment = {**os.environ, **NO_MULTICAST}
        for arm in self._all():
            try:
                command = self._arm(arm.name, problem or self.record.problem).command
                self.live[arm.name] = ArmProcess(command, environment)
            except ArmFailed as error:
                self._fail(arm, str(error))
        for arm in self._all():
            arm.ready = self._try(arm, lambda process: process.ready(self.settings.start_timeout))

    def stop(self):
        for arm in self._all():
            if arm.name in self.live:
                arm.libraries = self.live[arm.name].libraries()
                arm.complaints = self.live[arm.name].end()
        self.live = {}

    def check(self):
        """All arms at once, as at the start."""
        checkable = problems.small_enough(self.record.problem, self.settings.check_flops)
        self.record.checked_problem = checkable
        self.start(checkable)
        checked = [arm for arm in self.record.arms if arm.alive]
        for arm in checked:
            self._try(arm, lambda process: process.send("check"))
        for arm in checked:
            if arm.alive:
                arm.check = self._try(
                    arm, lambda process: process.receive("check", self.settings.timeout))
            if arm.alive and not arm.check["pass"]:
                failed = "; ".join(arm.check["failed"])
                self._fail(arm, f"wrong results, so not timed: {failed}")
        if checkable != self.record.problem:
            self.stop()

    def warm(self):
        for arm in self._all():
            arm.warm = self._ask(arm, f"warm {self.settings.warm_seconds}")

    def choose_iterations(self):
        """One number for all arms, by the slowest."""
        slowest = max((arm.warm["median_us"] for arm in self.record.arms if arm.alive), default=1)
        fitting = int(self.settings.slice_seconds * 1e6 / max(slowest, 1e-3))
        least = min(5, self.settings.iterations)
        self.record.iterations = max(least, min(self.settings.iterations, fitting))

    def _long_slice(self, yardstick):
        """As long as a slice may be: in short bursts the clocks are higher than in the long run."""
        fitting = int(self.settings.slice_seconds * 1e6 / yardstick.warm["median_us"])
        return f"0 {max(5, fitting)}"

    def round(self, order):
        """Every arm once. A round in which an arm fails counts for none of them."""
        slice_text = f"{self.settings.warmup} {self.record.iterations}"
        answers, replays = {}, {}
        yardstick = self.record.yardstick
        turns = ([yardstick] if yardstick and yardstick.alive else []) + order
        for arm in turns:
            work = self._long_slice(arm) if arm is yardstick else slice_text
            answers[arm.name] = self._ask(arm, f"round {work}")
            if arm.alive and self.settings.graph and arm is not yardstick:
                replays[arm.name] = self._ask(arm, f"graph {slice_text}")
            if not arm.alive:
                return False
        for arm in turns:
            arm.rounds.append(answers[arm.name])
            if arm.name in replays:
                arm.graphs.append(replays[arm.name])
        self.record.orders.append([arm.name for arm in order])
        return True

    def turns(self):
        """All rounds; again with the arms that are left when one fails on the way."""
        for arm in self._all():
            arm.rounds, arm.graphs, arm.spans = [], [], []
        self.record.orders = []
        alive = [arm for arm in self.record.arms if arm.alive]
        orders = balanced_orders(sorted(arm.name for arm in alive)) * self.settings.cycles
        by_name = {arm.name: arm for arm in alive}
        for i, names in enumerate(orders if alive else []):
            if i > 0 and self.settings.fresh == "order":
                self.stop()
                self.start()
                self.warm()
            if any(not arm.alive for arm in alive):
                return self.turns()
            if not self.round([by_name[name] for name in names]):
                return self.turns()
        return None

    def run(self, meter):
        try:
            if self.settings.check:
                self.check()
            if not self.live:
                self.start()
            self.warm()
            self.choose_iterations()
            if self.settings.device != "cpu":
                own = sum(arm.processes for arm in self._all())
                self.record.foreign = telemetry.foreign_processes(own)
            self.turns()
        finally:
            self.stop()
        self._judge(meter)
        return self.record

    def _judge(self, meter):
        spans = [span for arm in self.record.arms for span in arm.spans]
        self.record.samples = meter.window(spans)
        yardstick = self.record.yardstick
        spread = None
        if yardstick and yardstick.rounds:
            spread = ratios.spread([ratios.median(r["forward_us"]) for r in yardstick.rounds])
        self.record.unstable = telemetry.unstable_reasons(
            self.record.samples, self.record.foreign, spread
        )
        if yardstick and not yardstick.alive:
            self.record.unstable.append(f"no yardstick: {yardstick.failure}")
