"""Our certified interval beside what others publish and compute: `make outside` writes OUTSIDE.md.

    python benchmarks/outside.py

Values of others are facts: numbers that their own tests expect (published.toml), closed forms, and what dp-accounting,
prv-accountant and riskcal answer here; the last two where they are installed. An exact value must lie in our interval,
a valid upper bound at or above its lower end. An approximation may lie anywhere.
"""

from __future__ import annotations

import argparse
import math
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from dp_accounting import dp_event, pld, rdp
from scipy import optimize, stats

from results import environment, show_table, write_section
from tacit.accounting import (
    Adjacency,
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    RandomizedResponse,
    RenyiProfile,
    Truncated,
    curve,
)
from tacit.accounting.losses import Kind, LossAtoms, mixture_atoms
from tacit.accounting.lots import LotEvent
from tacit.accounting.mixture import GaussianMixture

PAGE = Path(__file__).with_name("OUTSIDE.md")
PUBLISHED = Path(__file__).with_name("published.toml")
COLUMNS = ["setting", "asked", "whose", "what it is", "theirs", "ours, lower", "ours, upper", "verdict"]
EXACT, UPPER, LOWER, APPROXIMATE = "exact", "upper bound", "lower bound", "approximation"
NOTE = (
    "One value is taken for an upper bound although its test states it as exact: the Rényi divergence of order 1.5 in "
    "dp-accounting 0.6. Since its commit 0b109e9, at orders that are not whole, it adds the terms of an alternating "
    "series without their signs. The value that the test stated before, 6.5007e-4, is ours, and so is that of a "
    "numerical integral. The approximations by the central limit theorem in Opacus are below the true epsilon."
)
# Printed values have so many digits; closed forms are solved that far.
_DIGITS = 1e-9


@dataclass(frozen=True)
class Question:
    """An event of ours, and the same one for dp-accounting; of sampled Gaussian steps also their three numbers."""

    name: str
    event: Event
    theirs: dp_event.DpEvent
    delta: float
    steps: tuple[float, float, int] | None = None


@dataclass(frozen=True)
class Answer:
    """What somebody says about it, and how accurately they say it."""

    by: str
    kind: str
    value: float
    within: float = 0.0


@dataclass(frozen=True)
class Mixture(LotEvent):
    """A Gaussian release that an example moves by so many times the unit as `weights` says how likely."""

    weights: tuple[float, ...]

    @property
    def largest_mu(self) -> float:
        return (len(self.weights) - 1) / self.inside.multiplier

    def atoms(self, kind: Kind, *, added: bool, tail: float, size: int) -> LossAtoms:
        """By our own cells of such a mixture."""
        return mixture_atoms(GaussianMixture(1 / self.inside.multiplier, self.weights, added), kind, tail, size)


def gaussian(multiplier: float, rate: float, steps: int, delta: float) -> Question:
    """Sampled Gaussian steps."""
    inside: dp_event.DpEvent = dp_event.GaussianDpEvent(multiplier)
    ours: Event = Gaussian(multiplier)
    if rate < 1:
        inside, ours = dp_event.PoissonSampledDpEvent(rate, inside), Gaussian(multiplier).sampled(rate)
    name = f"Gaussian {multiplier:g}, rate {rate:.4g}, {steps:,} steps"
    return Question(name, ours * steps, dp_event.SelfComposedDpEvent(inside, steps), delta, (multiplier, rate, steps))


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


def read_event(parts: list[dict[str, Any]]) -> tuple[str, Event]:
    """What the parts of an entry of published.toml are composed to, and its name."""
    events, names = [], []
    for part in parts:
        multiplier, rate, times = part.get("multiplier", math.nan), part.get("rate", 1.0), part.get("times", 1)
        label, one = f"{part['noise']} {multiplier:.4g}", _read_noise(part)
        if rate < 1 and part["noise"] != "truncated":
            one = one.sampled(rate)
        label = {
            "stated": f"stated ({part.get('epsilon')}, {part.get('delta')})",
            "response": f"randomized response, {part.get('choices')} choices",
        }.get(part["noise"], label)
        extra = [f"rate {rate:g}"] * (rate < 1) + ["one replaced"] * part.get("replaced", False)
        extra += [f"weights {part.get('weights')}"] * ("weights" in part) + [f"{times:,} times"] * (times > 1)
        events.append(one * times)
        names.append(", ".join([label, *extra]))
    return "; ".join(names), reduce(add, events)


def _read_noise(part: dict[str, Any]) -> Event:
    match part:
        case {"noise": "laplace", "multiplier": multiplier}:
            return Laplace(multiplier)
        case {"noise": "mixture", "multiplier": multiplier, "weights": weights}:
            return Mixture(Gaussian(multiplier), tuple(weights))
        case {"noise": "truncated", "multiplier": multiplier, "rate": rate, "most": most, "population": population}:
            return Truncated(Gaussian(multiplier), rate, most, population)
        case {"noise": "stated", "epsilon": epsilon, "delta": delta}:
            return EpsilonDelta(epsilon, delta)
        case {"noise": "response", "epsilon": epsilon, "choices": choices}:
            return RandomizedResponse(epsilon, choices)
        case {"noise": "gaussian", "multiplier": multiplier}:
            return Gaussian(multiplier, Adjacency.REPLACE_ONE if part.get("replaced") else Adjacency.ADD_REMOVE)
    raise SystemExit(f"{part} is no noise that is known here.")


def ask_ours(event: Event, entry: dict[str, Any]) -> tuple[str, float, float]:
    """What the entry asks, and our bounds of it."""
    if "order" in entry:
        found = RenyiProfile.of(event).divergence(entry["order"])
        return f"Rényi divergence of order {entry['order']:g}", found, found
    if "epsilon" in entry:
        return f"δ at ε = {entry['epsilon']:g}", *curve(event).delta_bounds(entry["epsilon"])
    return f"ε at δ = {entry['delta']:g}", *curve(event).epsilon_bounds(entry["delta"])


def list_published() -> Iterator[list[str]]:
    """Every value that the tests of others state, beside ours."""
    for entry in tomllib.loads(PUBLISHED.read_text())["value"]:
        name, event = read_event(entry["parts"])
        asked, lower, upper = ask_ours(event, entry)
        yield _row(
            name, asked, Answer(entry["by"], entry["kind"], entry["value"], entry.get("within", 0.0)), lower, upper
        )


def list_questions() -> Iterator[tuple[Question, tuple[Answer, ...]]]:
    """What libraries are asked here, with closed forms where there are any."""
    yield gaussian(1.5, 0.04, int(90 // 0.04), 1e-5), ()
    # The first and the last are in the tests of prv-accountant too.
    for multiplier, steps, delta in ((100.0, 10_000, 1e-5), (1.0, 1, 1e-5), (5.0, 100, 1e-8), (100.0, 10_001, 1e-9)):
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


def ask_prv_accountant(question: Question) -> Iterator[Answer]:
    """Its lower and upper bound, where the package is installed."""
    try:
        from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant
    except ImportError:
        return
    if question.steps is None:
        return
    multiplier, rate, steps = question.steps
    made = PoissonSubsampledGaussianMechanism(noise_multiplier=multiplier, sampling_probability=rate)
    accountant = PRVAccountant(made, eps_error=0.01, delta_error=question.delta / 1000, max_self_compositions=steps)
    lower, _, upper = accountant.compute_epsilon(delta=question.delta, num_self_compositions=steps)
    yield Answer("prv-accountant", UPPER, float(upper))
    yield Answer("prv-accountant", LOWER, float(lower))


def list_advantages() -> Iterator[list[str]]:
    """The advantage of any attack, by riskcal, where the package is installed."""
    try:
        from riskcal.calibration.dpsgd import get_advantage_for_dpsgd, get_beta_for_dpsgd
    except ImportError:
        return
    # The rates and numbers of steps of its tests.
    for multiplier, rate, steps in ((10.0, 1.0, 1), (1.0, 0.001, 10_000), (2.0, 0.001, 10_000), (0.7, 0.01, 400)):
        question = gaussian(multiplier, rate, steps, 0.5)
        found = curve(question.event)
        theirs = get_advantage_for_dpsgd(noise_multiplier=multiplier, sample_rate=rate, num_steps=steps)
        yield _row(question.name, "advantage", Answer("riskcal", UPPER, float(theirs)), *found.delta_bounds(0.0))
        beta = get_beta_for_dpsgd(multiplier, rate, steps, 0.1)
        low, high = found.tradeoff_bounds(0.1)
        yield _row(
            question.name, "misses at 10 % false alarms", Answer("riskcal", LOWER, float(beta)), float(low), float(high)
        )


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
    slack = _DIGITS * upper + answer.within
    if answer.kind == APPROXIMATE:
        side = "too small" if answer.value < lower else "not below ours"
        return f"{side}; an approximation proves nothing"
    is_high_enough, is_low_enough = answer.value >= lower - slack, answer.value <= upper + slack
    agrees = {UPPER: is_high_enough, LOWER: is_low_enough, EXACT: is_high_enough and is_low_enough}[answer.kind]
    return "agrees" if agrees else "CONTRADICTS"


def _row(name: str, asked: str, answer: Answer, lower: float, upper: float) -> list[str]:
    print(name, asked, answer, flush=True)
    verdict = judge(answer, lower, upper)
    return [name, asked, answer.by, answer.kind, f"{answer.value:.8g}", f"{lower:.10g}", f"{upper:.10g}", verdict]


def list_rows() -> Iterator[list[str]]:
    """Every answer beside our interval."""
    yield from list_published()
    for question, closed in list_questions():
        lower, upper = curve(question.event).epsilon_bounds(question.delta)
        for answer in (*closed, *ask_dp_accounting(question), *ask_prv_accountant(question)):
            yield _row(question.name, f"ε at δ = {question.delta:g}", answer, lower, upper)
    yield from list_advantages()


def main() -> None:
    """Ask everybody, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE, help="a page other than OUTSIDE.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = list(list_rows())
    bad = sum(row[-1] == "CONTRADICTS" for row in rows)
    summary = f"{len(rows)} values of others, {bad} contradictions."
    about = environment(["tacit", "dp-accounting", "prv-accountant", "riskcal"])
    title = "## Accounting: our certified interval beside values of others"
    write_section(
        options.output, "accounting", "\n\n".join([title, about, summary, NOTE, show_table([COLUMNS, *rows])])
    )
    if bad:
        raise SystemExit(summary)


if __name__ == "__main__":
    main()
