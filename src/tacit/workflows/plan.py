"""What a budget buys before any data are read: what `tacit plan` calls.

`plan` compares steps of the automatic recipe, `plan_samplings` samplings and noises of any model.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from tacit import _validate
from tacit.accounting.events import Adjacency
from tacit.accounting.factors import BandPlan, best_band, compare_bands, invert_coefficients, prefix_variances
from tacit.budget import Budget
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SecureSource
from tacit.recipes.recipe import Kind, Recipe, auto
from tacit.stages.bounds import Clip
from tacit.stages.mechanism import Mechanism
from tacit.stages.more_samplings import CyclicPoisson, FixedLots, RandomAllocation, TruncatedPoisson
from tacit.stages.noise import BandedNoise, BufferedNoise, GaussianNoise, InverseBandedNoise, TreeNoise
from tacit.stages.sampling import Poisson, Shuffled
from tacit.training.plan import Plan
from tacit.types import BoundedSum, Noise, Sampling
from tacit.workflows.arguments import warn_about_delta
from tacit.workflows.progress import show_status
from tacit.workflows.settings import resolve_delta
from tacit.workflows.text import Paragraph, Printable

_HEAD = (
    f"{'steps':>8}{'lot size':>10}{'epochs':>10}{'multiplier':>12}{'rate':>10}{'a step':>10}{'in all':>9}{'seconds':>9}"
)
_MEANING = [
    "multiplier: noise on the sum over a lot, as a multiple of the clip norm. rate: the learning rate of the recipe.",
    "a step, in all: signal to noise of one step, and of all steps together. The signal is the largest norm of the "
    "sum over a lot.",
    "More steps at the same total noise follow the gradient better and take longer. * marks the recipe.",
]

# Numbers of steps that a plan compares, and rows on which it measures time.
_OTHER_STEPS = (100, 300, 1_000, 3_000)
_TIMED_ROWS = 512
_SAMPLING_HEAD = f"{'sampling':<18}{'noise':<12}{'multiplier':>10}{'prefix':>8}{'memory':>8}{'ms':>7}  about"
_SAMPLING_MEANING = [
    "multiplier: noise of one release over the clip norm, at this budget.",
    "prefix: noise of the sums that an optimizer adds up, relative to Poisson.",
    "memory: past noise that is kept, in copies of the parameters.",
    "ms: time to draw the noise of a step, per million parameters.",
    "about: add/remove one example, or replace one. Do not compare across.",
]
# Lots are cut this many standard deviations above their mean, which is nearly free.
_DEVIATIONS = 6
_TIMED_NUMBERS = 200_000
# Noise for long runs, without amplification.
_LONG = {"buffered": "BufferedNoise", "inverse": "InverseBandedNoise", "tree": "TreeNoise"}


@dataclass(frozen=True)
class PlanRow:
    """A number of steps, the settings that go with it, and what they give.

    `signal` is the norm of the longest possible sum of clipped gradients of a lot over the norm of its noise;
    `signal_in_all` is the same over all steps, whose noise grows with the square root of their number.
    """

    steps: int
    lot_size: float
    epochs: float
    multiplier: float
    learning_rate: float
    signal: float
    signal_in_all: float
    seconds: float
    is_recipe: bool


@dataclass(frozen=True)
class BudgetPlan(Printable):
    """Lots, steps, noise, signal and time that a budget buys, for a linear model over features."""

    epsilon: float
    delta: float
    population: int
    rows: list[PlanRow]

    def paragraphs(self) -> list[Paragraph]:
        """The table, and what its columns mean."""
        head = f"epsilon {self.epsilon:g} at delta {self.delta:g} out of {self.population:,} examples (add/remove, PLD)"
        lines = [
            f"{row.steps:>7,}{'*' if row.is_recipe else ' '}{row.lot_size:>10,.0f}{row.epochs:>10,.4g}"
            f"{row.multiplier:>12.4g}{row.learning_rate:>10.4g}{row.signal:>10.3g}{row.signal_in_all:>9.3g}"
            f"{row.seconds:>9.2g}"
            for row in self.rows
        ]
        return [(head, [_HEAD, *lines]), ("What the columns mean", _MEANING)]

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        about = {"epsilon": self.epsilon, "delta": self.delta, "population": self.population}
        return {**about, "plans": [asdict(row) for row in self.rows]}


def plan(
    *,
    population: float,
    epsilon: float,
    delta: float | None = None,
    kind: Kind = "image",
    features: float,
    classes: float,
) -> BudgetPlan:
    """Several ways to spend a budget on a linear model over features; one of them is the automatic recipe."""
    size = _validate.count("population", population)
    chosen = resolve_delta(delta, size)
    with show_status("Accounting"):
        rows = plan_steps(
            kind,
            population=size,
            epsilon=epsilon,
            delta=chosen,
            columns=_validate.count("features", features),
            classes=_validate.count("classes", classes, at_least=2),
        )
    warn_about_delta(chosen, size)
    return BudgetPlan(epsilon, chosen, size, rows)


def plan_steps(
    kind: Kind, *, population: int, epsilon: float, delta: float, columns: int, classes: int
) -> list[PlanRow]:
    """The recipe and its neighbours with fewer and more steps, by number of steps. No data are read."""
    recipe = auto(kind, population=population, epsilon=epsilon, delta=delta)
    each = _time_one_row(columns, classes)
    found = []
    for steps in sorted({*_OTHER_STEPS, recipe.steps}):
        other = recipe.with_steps(steps, epsilon, delta)
        found.append(_plan_row(other, epsilon, delta, columns * classes, each, is_recipe=steps == recipe.steps))
    return found


def _plan_row(recipe: Recipe, epsilon: float, delta: float, weights: int, each: float, *, is_recipe: bool) -> PlanRow:
    multiplier = recipe.noise(epsilon, delta)[1]
    signal = recipe.lot_size / (multiplier * math.sqrt(weights))
    return PlanRow(
        steps=recipe.steps,
        lot_size=recipe.lot_size,
        epochs=recipe.steps * recipe.rate,
        multiplier=multiplier,
        learning_rate=recipe.learning_rate,
        signal=signal,
        signal_in_all=signal * math.sqrt(recipe.steps),
        seconds=each * recipe.lot_size * recipe.steps,
        is_recipe=is_recipe,
    )


def _time_one_row(columns: int, classes: int) -> float:
    """Seconds to fetch one row and multiply it twice on this machine: the best of five."""
    rows = np.ones((_TIMED_ROWS, columns), dtype=np.float32)
    weights, errors = np.ones((columns, classes), dtype=np.float32), np.ones((_TIMED_ROWS, classes), dtype=np.float32)
    order = np.arange(_TIMED_ROWS)[::-1]
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        lot = rows[order]
        lot @ weights
        errors.T @ lot
        best = min(best, time.perf_counter() - start)
    return best / _TIMED_ROWS


@dataclass(frozen=True)
class SamplingRow:
    """A sampling and a noise, what the budget needs of them, and what they cost to run."""

    sampling: str
    noise: str
    adjacency: str
    multiplier: float
    prefix_error: float
    memory: int
    milliseconds: float


@dataclass(frozen=True)
class SamplingPlans(Printable):
    """Rows for one task, the usual one (Poisson lots, independent noise) first."""

    epsilon: float
    delta: float
    population: int
    lot_size: float
    steps: int
    bands: BandPlan
    rows: list[SamplingRow]

    @property
    def answer(self) -> str:
        """What to use, in one sentence."""
        comparable = [row for row in self.rows if row.adjacency == str(Adjacency.ADD_REMOVE)]
        best = min(comparable, key=lambda row: row.prefix_error)
        if best.prefix_error >= 0.98:
            return "Use Poisson lots and independent noise: nothing else has 2 % less noise."
        if best.noise in _LONG:
            return f"Use {_LONG[best.noise]}: {best.prefix_error:.2f} times the noise in sums."
        if best.noise == "gaussian":
            return f"Use {best.sampling} lots: {best.prefix_error:.2f} times the noise of Poisson lots."
        return f'Use noise="banded" over {self.bands.bands} bands: {best.prefix_error:.2f} times the noise in sums.'

    def paragraphs(self) -> list[Paragraph]:
        """The answer, the table, and what its columns mean."""
        head = (
            f"epsilon {self.epsilon:g} at delta {self.delta:.3g}, lots of {self.lot_size:g} of {self.population:,}, "
            f"{self.steps:,} steps"
        )
        lines = [
            f"{row.sampling:<18}{row.noise:<12}{row.multiplier:>10.4g}{row.prefix_error:>8.2f}{row.memory:>8}"
            f"{row.milliseconds:>7.3g}  {'replace' if 'replace' in row.adjacency else 'add/remove'}"
            for row in self.rows
        ]
        return [(self.answer, []), (head, [_SAMPLING_HEAD, *lines]), ("What the columns mean", _SAMPLING_MEANING)]

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        about = {"epsilon": self.epsilon, "delta": self.delta, "population": self.population}
        task = {"lot_size": self.lot_size, "steps": self.steps, "answer": self.answer}
        return {**about, **task, "bands": asdict(self.bands), "plans": [asdict(row) for row in self.rows]}


def plan_samplings(
    *, population: float, epsilon: float, lot_size: float | None, steps: float | None, delta: float | None = None
) -> SamplingPlans:
    """Compare samplings and noises at one budget, from public numbers only."""
    if lot_size is None or steps is None:
        raise InvalidArgument("Samplings are compared for given lots and steps. Give both --lot-size and --steps.")
    size, count = _validate.count("population", population), _validate.count("steps", steps)
    budget = Budget(epsilon, resolve_delta(delta, size))
    lot = Poisson(lot_size, size).lot_size
    with show_status("Accounting"):
        bands = best_band(
            compare_bands(lot_size=lot, population=size, steps=count, epsilon=epsilon, delta=budget.delta)
        )
        pairs = _list_pairs(lot, size, count, bands.bands)
        rows = [_plan_sampling(sampling, noise, count, budget) for sampling, noise in pairs]
        rows = [replace(row, prefix_error=row.prefix_error / rows[0].prefix_error) for row in rows]
    warn_about_delta(budget.delta, size)
    return SamplingPlans(epsilon, budget.delta, size, lot, count, bands, rows)


def _list_pairs(lot: float, population: int, steps: int, bands: int) -> list[tuple[Sampling, Noise]]:
    whole = population / max(round(population / lot), 1)
    plain: Noise = GaussianNoise()
    pairs: list[tuple[Sampling, Noise]] = [
        (Poisson(lot, population), plain),
        (RandomAllocation(whole, population), plain),
        (TruncatedPoisson(lot, population, most=math.ceil(lot + _DEVIATIONS * math.sqrt(lot))), plain),
    ]
    if bands > 1:
        pairs.append((CyclicPoisson(lot, population, groups=bands), BandedNoise(bands=bands, steps=steps)))
    apart = min(int(population / lot), steps)
    spaced = CyclicPoisson(lot, population, groups=apart)
    inverse = InverseBandedNoise(bands=min(32, steps), steps=steps, apart=apart)
    pairs += [(spaced, BufferedNoise(steps=steps, apart=apart)), (spaced, inverse)]
    pairs.append((spaced, TreeNoise(steps=steps, apart=apart)))
    fixed = max(round(lot), 1)
    return [*pairs, (FixedLots(fixed, population), plain), (Shuffled(fixed, population), plain)]


def _plan_sampling(sampling: Sampling, noise: Noise, steps: int, budget: Budget) -> SamplingRow:
    plan = Plan(Mechanism(Clip(1.0), noise), sampling, steps, dimension=1, budget=budget).calibrate()
    multiplier = plan.mechanism.noise.multiplier
    assert multiplier is not None
    name, memory, variance = _describe_noise(noise, steps)
    return SamplingRow(
        sampling=type(sampling).__name__,
        noise=name,
        adjacency=str(plan.total(steps).adjacency),
        multiplier=multiplier,
        # The sum is divided by the public lot size, which differs a little between rows.
        prefix_error=multiplier * math.sqrt(variance) / sampling.lot_size,
        memory=memory,
        milliseconds=_time_noise(plan.mechanism.noise, memory),
    )


def _describe_noise(noise: Noise, steps: int) -> tuple[str, int, float]:
    """Its name, how many copies of the parameters it keeps, and the mean variance of prefix sums."""
    match noise:
        case BandedNoise():
            return "banded", noise.bands - 1, float(prefix_variances(np.array(noise.coefficients), steps).mean())
        case InverseBandedNoise():
            strategy = invert_coefficients(np.array(noise.coefficients), steps) / noise.scale
            return "inverse", noise.bands - 1, float(prefix_variances(strategy, steps).mean())
        case BufferedNoise():
            variances = noise.strategy.prefix_variances(steps) * noise.scale**2
            return "buffered", noise.buffers, float(variances.mean())
        case TreeNoise():
            nodes = np.mean([step.bit_count() for step in range(1, steps + 1)])
            return "tree", steps.bit_length(), float(nodes) * noise.scale**2
    return "gaussian", 0, (steps + 1) / 2


def _time_noise(noise: Noise, memory: int) -> float:
    """Milliseconds per million parameters, with all past noise in memory: the median of a few steps."""
    if isinstance(noise, (BufferedNoise, InverseBandedNoise, TreeNoise)):
        noise = replace(noise, steps=max(noise.steps, memory + 9))
    source, spent = SecureSource(), []
    bounded = BoundedSum({"": torch.zeros(_TIMED_NUMBERS)}, 1.0)
    for step in range(memory + 9):
        begun = time.process_time()
        noise.add(bounded, source.stream(Purpose.NOISE, step))
        spent.append(time.process_time() - begun)
    return float(np.median(spent[-5:])) * 1e3 * 1e6 / _TIMED_NUMBERS
