"""The tables of accounting.py: how tight and how fast the answers are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from accountants import PEERS, TACIT, Tool
from accounting_answers import Answer
from accounting_questions import Setting, Target
from results import environment, show_table

PACKAGES = ("tacit", "dp-accounting", "opacus", "prv-accountant", "numpy", "scipy", "torch")
# Two epsilons closer than this are called equal.
SAME = 1e-9


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


def report(rows: Sequence[Row], calibrations: Sequence[Calibration]) -> str:
    """The whole section: environment, summary, tables, failures."""
    return "\n\n".join(
        [
            "## Accounting: epsilon and calibration",
            environment(PACKAGES),
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
