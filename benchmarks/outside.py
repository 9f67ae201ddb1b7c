"""Our certified interval beside what others publish and compute: `make outside` writes OUTSIDE.md.

    python benchmarks/outside.py

Values of others are facts: numbers that their own tests expect, closed forms, and what dp-accounting answers here. An
exact value must lie in our interval, and a valid upper bound at or above its lower end. An approximation may lie
anywhere.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dp_accounting import dp_event, pld, rdp
from scipy import optimize, stats

from results import environment, show_table, write_section
from tacit.accounting import Event, Gaussian, Laplace, curve

PAGE = Path(__file__).with_name("OUTSIDE.md")
COLUMNS = ["setting", "δ", "whose", "what it is", "theirs", "ours, lower", "ours, upper", "verdict"]
EXACT, UPPER, LOWER, APPROXIMATE = "exact", "upper bound", "lower bound", "approximation"
# Printed values have so many digits; closed forms are solved that far.
_DIGITS = 1e-9


@dataclass(frozen=True)
class Question:
    """An event of ours, and the same one for dp-accounting."""

    name: str
    event: Event
    theirs: dp_event.DpEvent
    delta: float


@dataclass(frozen=True)
class Answer:
    """What somebody says about it."""

    by: str
    kind: str
    epsilon: float


def gaussian(multiplier: float, rate: float, steps: int, delta: float) -> Question:
    """Sampled Gaussian steps."""
    inside: dp_event.DpEvent = dp_event.GaussianDpEvent(multiplier)
    ours: Event = Gaussian(multiplier)
    if rate < 1:
        inside, ours = dp_event.PoissonSampledDpEvent(rate, inside), Gaussian(multiplier).sampled(rate)
    name = f"Gaussian {multiplier:g}, rate {rate:.4g}, {steps:,} steps"
    return Question(name, ours * steps, dp_event.SelfComposedDpEvent(inside, steps), delta)


def laplace(multiplier: float, steps: int, delta: float) -> Question:
    """Laplace releases."""
    theirs = dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(multiplier), steps)
    return Question(f"Laplace {multiplier:g}, {steps:,} times", Laplace(multiplier) * steps, theirs, delta)


def mixed(delta: float) -> Question:
    """Different mechanisms together."""
    one, two = gaussian(2.0, 0.05, 300, delta), laplace(20.0, 10, delta)
    return Question(
        f"{one.name}; {two.name}", one.event + two.event, dp_event.ComposedDpEvent([one.theirs, two.theirs]), delta
    )


def exact_gaussian(multiplier: float, steps: int, delta: float) -> float:
    """The epsilon of unsampled Gaussian releases (Balle, Wang 2018), solved for by bisection."""
    mu = math.sqrt(steps) / multiplier

    def excess(epsilon: float) -> float:
        first, second = stats.norm.logcdf(mu / 2 - epsilon / mu), stats.norm.logcdf(-mu / 2 - epsilon / mu)
        return math.exp(first) - math.exp(epsilon + second) - delta

    return float(optimize.brentq(excess, 0, 50, xtol=1e-14, rtol=1e-14))


# What the tests of Opacus expect of multiplier 1.5, rate 0.04 and 90 epochs: by Rényi orders, by privacy random
# variables, and by the central limit theorem, which is no bound.
OPACUS = (Answer("Opacus, RDP", UPPER, 7.32911117143), Answer("Opacus, PRV", UPPER, 6.777395712150674),
          Answer("Opacus, GDP", APPROXIMATE, 6.595))  # fmt: skip


def list_questions() -> Iterator[tuple[Question, tuple[Answer, ...]]]:
    """All questions with the answers that are published."""
    yield gaussian(1.5, 0.04, int(90 // 0.04), 1e-5), OPACUS
    for multiplier, steps, delta in ((100.0, 10_000, 1e-5), (1.0, 1, 1e-5), (5.0, 100, 1e-8)):
        closed = Answer("closed form (Balle, Wang 2018)", EXACT, exact_gaussian(multiplier, steps, delta))
        yield gaussian(multiplier, 1.0, steps, delta), (closed,)
    for question in (
        gaussian(1.1, 256 / 60_000, 3_000, 1e-5),
        gaussian(0.7, 0.01, 400, 1e-6),
        gaussian(4.0, 0.3, 50, 1e-5),
    ):
        yield question, ()
    yield laplace(10.0, 50, 1e-6), ()
    yield mixed(1e-6), ()


def ask_dp_accounting(question: Question) -> Iterator[Answer]:
    """Both directions of PLD, and RDP, at the discretisation that it has by default."""
    kinds: dict[str, Callable[[], float]] = {
        UPPER: lambda: _by_distribution(question, is_upper=True),
        LOWER: lambda: _by_distribution(question, is_upper=False),
    }
    for kind, answer in kinds.items():
        yield Answer("dp-accounting, PLD", kind, answer())
    accountant = rdp.RdpAccountant()
    accountant.compose(question.theirs)
    yield Answer("dp-accounting, RDP", UPPER, float(accountant.get_epsilon(question.delta)))


def _by_distribution(question: Question, *, is_upper: bool) -> float:
    return float(_distribution(question.theirs, is_upper).get_epsilon_for_delta(question.delta))


def _distribution(event: dp_event.DpEvent, is_upper: bool) -> pld.privacy_loss_distribution.PrivacyLossDistribution:
    made = pld.privacy_loss_distribution
    how = {"pessimistic_estimate": is_upper, "value_discretization_interval": 1e-4}
    # Only the older of its two algorithms gives lower bounds.
    how["use_connect_dots"] = is_upper
    match event:
        case dp_event.ComposedDpEvent(events=events):
            first, *others = (_distribution(each, is_upper) for each in events)
            for other in others:
                first = first.compose(other)
            return first
        case dp_event.SelfComposedDpEvent(event=inside, count=count):
            return _distribution(inside, is_upper).self_compose(count)
        case dp_event.PoissonSampledDpEvent(sampling_probability=rate, event=inside):
            return made.from_gaussian_mechanism(inside.noise_multiplier, sampling_prob=rate, **how)
        case dp_event.GaussianDpEvent(noise_multiplier=multiplier):
            return made.from_gaussian_mechanism(multiplier, **how)
        case dp_event.LaplaceDpEvent(noise_multiplier=multiplier):
            return made.from_laplace_mechanism(multiplier, **how)
    raise SystemExit(f"{event} has no distribution here.")


def judge(answer: Answer, lower: float, upper: float) -> str:
    """Whether the two contradict each other."""
    slack = _DIGITS * upper
    if answer.kind == APPROXIMATE:
        side = "too small" if answer.epsilon < lower else "not below ours"
        return f"{side}; an approximation proves nothing"
    if answer.kind == UPPER:
        return "agrees" if answer.epsilon >= lower - slack else "CONTRADICTS"
    if answer.kind == LOWER:
        return "agrees" if answer.epsilon <= upper + slack else "CONTRADICTS"
    return "agrees" if lower - slack <= answer.epsilon <= upper + slack else "CONTRADICTS"


def list_rows() -> Iterator[list[str]]:
    """Every answer beside our interval."""
    for question, published in list_questions():
        lower, upper = curve(question.event).epsilon_bounds(question.delta)
        for answer in (*published, *ask_dp_accounting(question)):
            print(question.name, answer, flush=True)
            yield [
                question.name, f"{question.delta:g}", answer.by, answer.kind, f"{answer.epsilon:.8g}",
                f"{lower:.10g}", f"{upper:.10g}", judge(answer, lower, upper),
            ]  # fmt: skip


def main() -> None:
    """Ask everybody, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE, help="a page other than OUTSIDE.md")
    options = parser.parse_args()
    rows = list(list_rows())
    bad = sum(row[-1] == "CONTRADICTS" for row in rows)
    summary = f"{len(rows)} values of others, {bad} contradictions."
    title = "## Accounting: our certified interval beside values of others"
    section = "\n\n".join([title, environment(["tacit", "dp-accounting"]), summary, show_table([COLUMNS, *rows])])
    write_section(options.output, "accounting", section)
    if bad:
        raise SystemExit(summary)


if __name__ == "__main__":
    main()
