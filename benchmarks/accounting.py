"""Accounting beside its peers: the same questions to every tool in one run, how tight and how fast the answers are.

Each tool answers in a process of its own, one question at a time and within a limit of time, so that a hang
or a crash is one cell of a table. Nothing is remembered from one repetition to the next. The tables replace
what stands between this script's two markers in RESULTS.md.
"""

from __future__ import annotations

import argparse
import functools
import gc
import logging
import math
import multiprocessing
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("RESULTS.md")
BEGIN, END = "<!-- accounting: begin -->", "<!-- accounting: end -->"
PACKAGES = ("tacit", "dp-accounting", "opacus", "prv-accountant", "numpy", "scipy", "torch")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Two epsilons closer than this are called equal.
SAME = 1e-9
CACHE = type(functools.lru_cache(lambda: None))
LOADING_LIMIT = 120.0


@dataclass(frozen=True)
class Setting:
    """Poisson-sampled Gaussian steps, and the delta at which their epsilon is asked for."""

    name: str
    multiplier: float
    rate: float
    steps: int
    delta: float
    rate_as: str = ""


WARM_UP = Setting("warm-up", 2.0, 0.02, 100, 1e-4)


@dataclass(frozen=True)
class Target:
    """A budget for a run: which multiplier does it take?"""

    epsilon: float
    rate: float = 256 / 60_000
    steps: int = 14_062
    delta: float = 1e-5


@dataclass(frozen=True)
class Tool:
    """One way to ask for an epsilon, and perhaps for a multiplier."""

    name: str
    package: str
    how: str
    epsilon: Callable[[Setting], Any]
    multiplier: Callable[[Target], float] | None = None


@dataclass(frozen=True)
class Answer:
    """What one tool said to one question and in what median time, or why it said nothing."""

    value: Any = math.nan
    seconds: float = math.nan
    repetitions: int = 0
    failure: str = ""


@dataclass(frozen=True)
class Effort:
    """How long to wait for one answer, how often to ask, and for how many seconds in all before that is enough."""

    limit: float
    repetitions: int
    patience: float


@dataclass(frozen=True)
class Row:
    """One setting: certified bounds and estimate by tacit, and every peer's answer."""

    setting: Setting
    ours: Answer
    estimate: float
    peers: dict[str, Answer]

    @property
    def lower(self) -> float:
        return self.ours.value[0]

    @property
    def upper(self) -> float:
        return self.ours.value[1]

    def excess(self, name: str) -> float:
        """By how much a peer's epsilon exceeds the certified lower bound, relatively."""
        return relative(self.peers[name].value, self.lower)

    @property
    def width(self) -> float:
        """The certified interval, relatively."""
        return relative(self.upper, self.lower)

    def ratio(self, name: str) -> float:
        """A peer's time over that of tacit."""
        return self.peers[name].seconds / self.ours.seconds

    def verdict(self, name: str) -> str:
        """Where a peer's epsilon lies: no valid upper bound is below the certified lower one."""
        answer = self.peers[name]
        if answer.failure:
            return "failed"
        if answer.value < self.lower * (1 - SAME):
            return "too small"
        if answer.value < self.upper * (1 - SAME):
            return "tighter"
        return "equal" if answer.value <= self.upper * (1 + SAME) else "looser"


@dataclass(frozen=True)
class Calibration:
    """One budget: the multiplier that each tool chose, and the certified bounds of the epsilon it really costs."""

    target: Target
    answers: dict[str, Answer]
    costs: dict[str, tuple[float, float]]


def relative(value: float, base: float) -> float:
    """How far a value lies above another, as a share of it."""
    return value / base - 1 if base > 0 else math.inf


def published_settings() -> list[Setting]:
    """The nine settings of Bu, Dong, Long, Su 2020, tables 1 to 4."""
    multipliers = (1.3, 1.1, 0.7, 0.6, 0.55, 0.5)
    steps = (3_516, 14_062, 10_547, 14_531, 15_938, 23_438)
    return [
        *(
            Setting(f"MNIST {index}", multiplier, 256 / 60_000, count, 1e-5, "256/60000")
            for index, (multiplier, count) in enumerate(zip(multipliers, steps, strict=True), start=1)
        ),
        Setting("Adult", 0.55, 256 / 29_305, 2_061, 1e-5, "256/29305"),
        Setting("IMDb", 0.56, 512 / 25_000, 439, 1e-5, "512/25000"),
        Setting("MovieLens", 0.6, 1 / 80, 1_600, 1e-6, "1/80"),
    ]


def hard_settings() -> list[Setting]:
    """The edges, where accountants lose digits, time or the answer."""
    return [
        Setting("tiny epsilon", 100.0, 1e-3, 1_000, 1e-5),
        Setting("delta 1e-15, long run", 1.0, 1e-3, 1_000_000, 1e-15),
        Setting("delta 1e-15, MNIST 2", 1.1, 256 / 60_000, 14_062, 1e-15, "256/60000"),
        Setting("rate 1e-6, long run", 0.5, 1e-6, 1_000_000, 1e-5),
        Setting("rate 1e-6, little noise", 0.3, 1e-6, 1_000, 1e-5),
        Setting("one step", 1.0, 0.01, 1, 1e-5),
        Setting("rate 1", 10.0, 1.0, 100, 1e-5),
        Setting("large epsilon", 0.3, 0.01, 1_000, 1e-5),
    ]


# Packages are loaded where they are used: each in its own process, before any clock runs.


def tacit_curve(setting: Setting) -> Any:
    """The privacy curve, from scratch."""
    from tacit.accounting import Gaussian, curve

    return curve(Gaussian(setting.multiplier).sampled(setting.rate) * setting.steps)


def tacit_epsilon(setting: Setting) -> tuple[float, float]:
    """Both certified bounds."""
    return tacit_curve(setting).epsilon_bounds(setting.delta)


def tacit_estimate(setting: Setting) -> float:
    """The point estimate: not part of the time, since the bounds do without."""
    return tacit_curve(setting).epsilon_estimate(setting.delta)


def tacit_multiplier(target: Target) -> float:
    """The smallest certified multiplier."""
    from tacit.accounting import multiplier_for

    return multiplier_for(epsilon=target.epsilon, delta=target.delta, rate=target.rate, steps=target.steps)


def dp_accounting_run(multiplier: float, rate: float, steps: int) -> Any:
    """The same steps as dp-accounting describes them."""
    import dp_accounting

    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def dp_accounting_epsilon(accountant: str, setting: Setting) -> float:
    """The upper bound of a dp-accounting accountant with its defaults."""
    from dp_accounting import pld, rdp

    made = pld.PLDAccountant() if accountant == "pld" else rdp.RdpAccountant()
    made.compose(dp_accounting_run(setting.multiplier, setting.rate, setting.steps))
    return made.get_epsilon(setting.delta)


def dp_accounting_multiplier(target: Target) -> float:
    """dp-accounting's search with its PLD accountant and its own bracket."""
    from dp_accounting import calibrate_dp_mechanism, pld

    def run(multiplier: float) -> Any:
        return dp_accounting_run(multiplier, target.rate, target.steps)

    return calibrate_dp_mechanism(pld.PLDAccountant, run, target.epsilon, target.delta, tol=1e-4)


def opacus_epsilon(mechanism: str, setting: Setting) -> float:
    """What an Opacus accountant reports after these steps."""
    from opacus.accountants import create_accountant

    accountant = create_accountant(mechanism)
    accountant.history = [(setting.multiplier, setting.rate, setting.steps)]
    return accountant.get_epsilon(setting.delta)


def opacus_multiplier(mechanism: str, target: Target) -> float:
    """Opacus's search with its default tolerance (0.01 in epsilon)."""
    from opacus.accountants.utils import get_noise_multiplier

    return get_noise_multiplier(
        target_epsilon=target.epsilon,
        target_delta=target.delta,
        sample_rate=target.rate,
        steps=target.steps,
        accountant=mechanism,
    )


def prv_epsilon(setting: Setting) -> float:
    """The upper bound of prv-accountant; its error in delta is the thousandth that it recommends."""
    from prv_accountant.dpsgd import DPSGDAccountant

    accountant = DPSGDAccountant(setting.multiplier, setting.rate, setting.steps, delta_error=setting.delta / 1000)
    return accountant.compute_epsilon(setting.delta, setting.steps)[2]


TACIT = Tool("tacit", "tacit", "certified lower and upper bound", tacit_epsilon, tacit_multiplier)
PEERS = (
    Tool(
        "dp-accounting PLD",
        "dp_accounting",
        "upper bound, discretisation 1e-4 (its default); calibration with `tol=1e-4` and its default bracket",
        functools.partial(dp_accounting_epsilon, "pld"),
        dp_accounting_multiplier,
    ),
    Tool(
        "dp-accounting RDP",
        "dp_accounting",
        "upper bound, default orders",
        functools.partial(dp_accounting_epsilon, "rdp"),
    ),
    Tool(
        "Opacus PRV",
        "opacus",
        "upper bound, `eps_error=0.01` (its default); calibration with its default tolerance of 0.01 in epsilon",
        functools.partial(opacus_epsilon, "prv"),
        functools.partial(opacus_multiplier, "prv"),
    ),
    Tool(
        "Opacus RDP",
        "opacus",
        "upper bound, default orders; calibration with its default tolerance of 0.01 in epsilon",
        functools.partial(opacus_epsilon, "rdp"),
        functools.partial(opacus_multiplier, "rdp"),
    ),
    Tool("Opacus GDP", "opacus", "approximation by a limit, not a bound", functools.partial(opacus_epsilon, "gdp")),
    Tool(
        "prv-accountant",
        "prv_accountant",
        "upper bound, `eps_error=0.1` (its default), `delta_error=delta/1000`",
        prv_epsilon,
    ),
)


def forget(package: str) -> None:
    """Empty every function cache of a package, so that each repetition starts from nothing."""
    for thing in gc.get_objects():
        if type(thing) is CACHE and str(thing.__module__).partition(".")[0] == package:
            thing.cache_clear()
    gc.collect()


def serve(package: str, questions: Connection) -> None:
    """Answer questions until told to stop: (True, value, seconds) or (False, reason, seconds)."""
    warnings.simplefilter("ignore")
    logging.disable()
    while (question := questions.recv()) is not None:
        ask, argument = question
        forget(package)
        start = time.perf_counter()
        try:
            reply = (True, ask(argument))
        except Exception as error:
            reply = (False, f"{type(error).__name__}: {' '.join(str(error).split())}")
        questions.send((*reply, time.perf_counter() - start))


class Worker:
    """A tool in a process of its own, replaced when it dies or is too slow."""

    def __init__(self, package: str, warm_up: Callable[[Setting], Any]) -> None:
        self.package = package
        self.warm_up = warm_up
        self.process: Any = None
        self.questions: Any = None

    def ask(self, question: Callable[[Any], Any], argument: object, limit: float) -> Answer:
        """One question, once; a new process first answers another one, so that its packages are loaded."""
        if self.process is None:
            self._start()
            first = self._exchange(self.warm_up, WARM_UP, LOADING_LIMIT)
            if self.process is None:
                return first
        return self._exchange(question, argument, limit)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.questions, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(self.package, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def _exchange(self, question: Callable[[Any], Any], argument: object, limit: float) -> Answer:
        try:
            self.questions.send((question, argument))
            if not self.questions.poll(limit):
                self.stop()
                return Answer(seconds=limit, failure="timeout")
            fine, value, seconds = self.questions.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            self.stop()
            return Answer(failure=f"process died with exit code {code}")
        if fine and not _is_finite(value):
            fine, value = False, f"answered {value}"
        return Answer(value, seconds, 1) if fine else Answer(seconds=seconds, failure=value)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.questions.close()
        self.process = None


def _is_finite(value: Any) -> bool:
    return all(map(math.isfinite, value)) if isinstance(value, tuple) else math.isfinite(value)


def measure(worker: Worker, question: Callable[[Any], Any], argument: object, effort: Effort) -> Answer:
    """Ask until there are enough repetitions or patience runs out; the median time counts."""
    answers: list[Answer] = []
    while len(answers) < effort.repetitions and sum(a.seconds for a in answers) <= effort.patience:
        answer = worker.ask(question, argument, effort.limit)
        if answer.failure:
            return answer
        answers.append(answer)
    return Answer(answers[-1].value, statistics.median(a.seconds for a in answers), len(answers))


def run(settings: Sequence[Setting], targets: Sequence[Target], effort: Effort) -> tuple[list[Row], list[Calibration]]:
    """Every question to every tool."""
    # One process per package, so that opacus loads torch once.
    workers = {tool.package: Worker(tool.package, tool.epsilon) for tool in reversed((TACIT, *PEERS))}
    try:
        rows = [compare_epsilon(setting, workers, effort) for setting in settings]
        return rows, [compare_multiplier(target, workers, effort) for target in targets]
    finally:
        for worker in workers.values():
            worker.stop()


def compare_epsilon(setting: Setting, workers: dict[str, Worker], effort: Effort) -> Row:
    """One setting, all tools, one after the other."""
    ours = measure(workers["tacit"], tacit_epsilon, setting, effort)
    if ours.failure:
        raise SystemExit(f"tacit failed at {setting}: {ours.failure}")
    estimate = workers["tacit"].ask(tacit_estimate, setting, effort.limit).value
    print(f"{setting.name}: {ours.value} in {show_seconds(ours.seconds)}", flush=True)
    peers = {}
    for tool in PEERS:
        peers[tool.name] = answer = measure(workers[tool.package], tool.epsilon, setting, effort)
        print(f"  {tool.name}: {answer.failure or answer.value} in {show_seconds(answer.seconds)}", flush=True)
    return Row(setting, ours, estimate, peers)


def compare_multiplier(target: Target, workers: dict[str, Worker], effort: Effort) -> Calibration:
    """One budget, all tools that calibrate, and what each multiplier costs by certified bounds."""
    answers, costs = {}, {}
    for tool in (TACIT, *PEERS):
        if tool.multiplier is None:
            continue
        answer = measure(workers[tool.package], tool.multiplier, target, effort)
        answers[tool.name] = answer
        print(f"epsilon {target.epsilon:g} by {tool.name}: {answer.failure or answer.value}", flush=True)
        if not answer.failure:
            reached = Setting("calibrated", answer.value, target.rate, target.steps, target.delta)
            costs[tool.name] = workers["tacit"].ask(tacit_epsilon, reached, effort.limit).value
    return Calibration(target, answers, costs)


def report(rows: Sequence[Row], calibrations: Sequence[Calibration]) -> str:
    """The whole section: environment, summary, tables, failures."""
    return "\n\n".join(
        [
            "## Accounting: epsilon and calibration",
            environment(),
            "### Summary",
            summary(rows, calibrations),
            "### Certified epsilon by tacit",
            own_table(rows),
            "### Epsilon by peers",
            "In brackets: relative excess over tacit's certified lower bound. **Too small** means below that "
            "bound: the number under-reports the loss. *Tighter* means at or above it, and below tacit's upper bound.",
            epsilon_table(rows),
            "### Time by peers",
            "In brackets: how many times as long as tacit took for both bounds (below 1: the peer is faster).",
            time_table(rows),
            "### Calibration",
            f"The multiplier for an epsilon at {show_target(calibrations[0].target)}. What it costs is tacit's "
            "certified upper bound; what is left is the share of the budget not used.",
            calibration_table(calibrations),
            "### No answer",
            failures(rows, calibrations),
            "### How it was asked",
            how(rows),
        ]
    )


def environment() -> str:
    """Where the numbers come from, without naming the machine."""
    packages = ", ".join(f"{package} {_version(package)}" for package in PACKAGES)
    threads = ", ".join(f"{name}={os.environ.get(name, 'unset')}" for name in THREADS)
    facts = (
        f"Date: {date.today().isoformat()}",
        f"CPU: {_cpu()}, {os.cpu_count()} cores",
        f"Python: {platform.python_version()} on {platform.system()}",
        f"Packages: {packages}",
        f"Threads: {threads}",
    )
    return "\n".join(f"- {fact}" for fact in facts)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from source"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def summary(rows: Sequence[Row], calibrations: Sequence[Calibration]) -> str:
    """Counts of verdicts and spread of time ratios, a line per peer, then what stands out."""
    table = [
        (
            "peer",
            "answers",
            "tacit tighter",
            "equal",
            "peer tighter",
            "peer too small",
            "excess: median, largest",
            "time / tacit: least, median",
        )
    ]
    for tool in PEERS:
        answered = [row for row in rows if not row.peers[tool.name].failure]
        verdicts = [row.verdict(tool.name) for row in answered]
        above = [row.excess(tool.name) for row in answered if row.verdict(tool.name) != "too small"]
        ratios = [row.ratio(tool.name) for row in answered]
        table.append(
            (
                tool.name,
                f"{len(answered)} of {len(rows)}",
                *(str(verdicts.count(kind)) for kind in ("looser", "equal", "tighter", "too small")),
                f"{show_excess(statistics.median(above))}, {show_excess(max(above))}" if above else "–",
                f"{show_ratio(min(ratios))}, {show_ratio(statistics.median(ratios))}" if ratios else "–",
            )
        )
    lines = [
        tightness_line(rows),
        speed_line(rows, PEERS[0]),
        own_line(rows),
        *calibration_lines(calibrations),
        *silence_lines(rows),
    ]
    return show_table(table) + "\n\n" + "\n".join(f"- {line}" for line in lines)


def tightness_line(rows: Sequence[Row]) -> str:
    """In how many settings no valid peer is tighter, and in which one is."""
    beaten = {row.setting.name: [tool.name for tool in PEERS if row.verdict(tool.name) == "tighter"] for row in rows}
    beaten = {name: peers for name, peers in beaten.items() if peers}
    line = f"Tighter than or equal to every peer's valid bound in {len(rows) - len(beaten)} of {len(rows)} settings"
    if beaten:
        line += "; not in " + "; ".join(f"{name} ({', '.join(peers)})" for name, peers in beaten.items())
    return line + "."


def speed_line(rows: Sequence[Row], peer: Tool) -> str:
    """Where a peer takes ten times as long, and where not."""
    ratios = {row.setting.name: row.ratio(peer.name) for row in rows if not row.peers[peer.name].failure}
    short = [f"{name} ({show_ratio(ratio)})" for name, ratio in ratios.items() if ratio < 10]
    line = f"{peer.name} takes at least 10 times tacit's time in {len(ratios) - len(short)} of {len(ratios)} answers"
    return f"{line}; not in {', '.join(short)}." if short else f"{line}."


def silence_lines(rows: Sequence[Row]) -> Iterable[str]:
    """Which peers gave no answer, and where."""
    for tool in PEERS:
        silent = [row.setting.name for row in rows if row.peers[tool.name].failure]
        if silent:
            yield f"{tool.name} gave no answer to: {'; '.join(silent)}."


def own_line(rows: Sequence[Row]) -> str:
    """The certified intervals and the times of tacit."""
    widest = max(rows, key=lambda row: row.width)
    slowest = max(rows, key=lambda row: row.ours.seconds)
    median = statistics.median(row.ours.seconds for row in rows)
    return (
        f"tacit answered all {len(rows)}: median time {show_seconds(median)}, longest "
        f"{show_seconds(slowest.ours.seconds)} ({slowest.setting.name}); widest interval "
        f"{show_excess(widest.width)} ({widest.setting.name})."
    )


def calibration_lines(calibrations: Sequence[Calibration]) -> Iterable[str]:
    """The time of calibration beside each peer's."""
    for tool in PEERS:
        ratios = [
            one.answers[tool.name].seconds / one.answers["tacit"].seconds
            for one in calibrations
            if tool.name in one.answers and not one.answers[tool.name].failure
        ]
        if ratios:
            yield (
                f"Calibration by {tool.name} takes at least {show_ratio(min(ratios))}, in the median "
                f"{show_ratio(statistics.median(ratios))} tacit's time."
            )


def own_table(rows: Sequence[Row]) -> str:
    """Settings, bounds, time."""
    header = ("setting", "multiplier", "rate", "steps", "delta", "lower", "estimate", "upper", "width", "time")
    return show_table(
        [
            header,
            *(
                (
                    row.setting.name,
                    f"{row.setting.multiplier:g}",
                    row.setting.rate_as or f"{row.setting.rate:g}",
                    f"{row.setting.steps:,}",
                    f"{row.setting.delta:g}",
                    *(f"{value:.8g}" for value in (row.lower, row.estimate, row.upper)),
                    show_excess(row.width),
                    show_seconds(row.ours.seconds),
                )
                for row in rows
            ),
        ]
    )


def epsilon_table(rows: Sequence[Row]) -> str:
    """Every peer's epsilon and its excess."""

    def cell(row: Row, name: str) -> str:
        verdict = row.verdict(name)
        if verdict == "failed":
            return _short(row.peers[name].failure)
        number = f"{row.peers[name].value:.6g} ({show_excess(row.excess(name))})"
        return {"too small": f"**too small** {number}", "tighter": f"*tighter* {number}"}.get(verdict, number)

    return _peer_table(rows, cell)


def time_table(rows: Sequence[Row]) -> str:
    """Every peer's time and its ratio to ours."""

    def cell(row: Row, name: str) -> str:
        answer = row.peers[name]
        if answer.failure:
            return _short(answer.failure)
        return f"{show_seconds(answer.seconds)} ({show_ratio(row.ratio(name))})"

    return _peer_table(rows, cell)


def _peer_table(rows: Sequence[Row], cell: Callable[[Row, str], str]) -> str:
    names = [tool.name for tool in PEERS]
    return show_table(
        [("setting", *names), *((row.setting.name, *(cell(row, name) for name in names)) for row in rows)]
    )


def _short(failure: str) -> str:
    return failure if failure == "timeout" else "failed"


def calibration_table(calibrations: Sequence[Calibration]) -> str:
    """Every budget and tool: the multiplier, its time and what it costs."""
    table = [("budget", "tool", "multiplier", "epsilon it costs", "left", "time", "time / tacit")]
    for one in calibrations:
        for name, answer in one.answers.items():
            budget = f"{one.target.epsilon:g}"
            if answer.failure:
                table.append((budget, name, _short(answer.failure), "–", "–", "–", "–"))
                continue
            cost = one.costs[name]
            over = " **over budget**" if cost[0] > one.target.epsilon * (1 + SAME) else ""
            ratio = answer.seconds / one.answers["tacit"].seconds
            table.append(
                (
                    budget,
                    name,
                    f"{answer.value:.6f}",
                    f"{cost[1]:.6f}{over}",
                    show_excess(1 - cost[1] / one.target.epsilon),
                    show_seconds(answer.seconds),
                    show_ratio(ratio),
                )
            )
    return show_table(table)


def failures(rows: Sequence[Row], calibrations: Sequence[Calibration]) -> str:
    """Every question that a peer did not answer, with its reason word for word."""
    asked = [(row.setting.name, row.peers) for row in rows]
    asked += [(f"multiplier for epsilon {one.target.epsilon:g}", one.answers) for one in calibrations]
    found = [
        (question, name, answer.failure, show_seconds(answer.seconds))
        for question, answers in asked
        for name, answer in answers.items()
        if answer.failure
    ]
    if not found:
        return "Every tool answered every question."
    return show_table([("question", "tool", "reason", "after"), *found])


def how(rows: Sequence[Row]) -> str:
    """The settings of each tool and the repetitions behind the times."""
    lines = []
    for tool in (TACIT, *PEERS):
        answers = [row.ours if tool is TACIT else row.peers[tool.name] for row in rows]
        counts = [answer.repetitions for answer in answers if not answer.failure]
        spread = " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else "no"
        lines.append(f"- {tool.name}: {tool.how}; median of {spread} repetitions")
    return "\n".join(lines)


def show_target(target: Target) -> str:
    """All of a target but its epsilon."""
    return f"delta {target.delta:g}, rate 256/60000, {target.steps:,} steps"


def show_seconds(seconds: float) -> str:
    """Milliseconds below a second."""
    if math.isnan(seconds):
        return "–"
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def show_ratio(ratio: float) -> str:
    """A factor with two digits that matter."""
    return f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.2g}×"


def show_excess(share: float) -> str:
    """Per cent where a reader can see it, else a power of ten."""
    if share == 0:
        return "0"
    if abs(share) < 1e-6:
        return f"{share:+.0e}"
    if share >= 9:
        return f"{1 + share:.0f}-fold"
    return f"{100 * share:+.2g} %" if abs(share) < 0.995 else f"{100 * share:+.0f} %"


def show_table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also aligned as text."""
    safe = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in safe) for column in range(len(safe[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in safe
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def write_section(path: Path, section: str) -> None:
    """Replace what stands between the markers; whatever else is in the file stays."""
    text = path.read_text() if path.exists() else "# Results\n\nWritten by the scripts in this folder: see README.md.\n"
    marked = f"{BEGIN}\n{section}\n{END}"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and not end:
        raise SystemExit(f"{path.name} has {BEGIN} without {END}. Restore the marker, or delete both.")
    path.write_text(f"{before}{marked}{after}" if begin else f"{text.rstrip()}\n\n{marked}\n")


def main() -> None:
    """Measure and write, or with --quick measure a little and print."""
    parser = argparse.ArgumentParser(description="Compare tacit's accounting with its peers.")
    parser.add_argument("--quick", action="store_true", help="four settings, one budget, printed and not written")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one answer may take")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    for name in THREADS:
        os.environ.setdefault(name, "1")
    started = time.perf_counter()
    if chosen.quick:
        settings = [published_settings()[1], *hard_settings()[:3:2], hard_settings()[5]]
        rows, calibrations = run(settings, [Target(3.0)], Effort(min(chosen.limit, 20.0), 5, 0.5))
    else:
        settings = [*published_settings(), *hard_settings()]
        targets = [Target(epsilon) for epsilon in (0.5, 1.0, 3.0, 8.0)]
        rows, calibrations = run(settings, targets, Effort(chosen.limit, 7, 5.0))
    section = report(rows, calibrations)
    if chosen.quick and chosen.output is None:
        print("\n" + section)
    else:
        write_section(chosen.output or RESULTS, section)
    print(f"\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
