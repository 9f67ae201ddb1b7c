"""What a run has spent so far, and the guarantee that follows from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tacit.accounting.curve import curve
from tacit.accounting.densities import Floats
from tacit.accounting.events import Composed, EpsilonDelta, Event, Gaussian, Repeated, Sampled
from tacit.errors import NotAccountable
from tacit.guarantee import Assumption, Claim, Guarantee, Status
from tacit.training.plan import Plan, total

NOTHING_FITTED_BEFORE = Assumption(
    "nothing_fitted_before",
    "The model's first weights, and the preprocessing of the data, did not depend on the examples.",
)
_ASSUMPTIONS = (
    Assumption(
        "fixed_in_advance",
        "Noise levels, lot sizes and the number of steps were fixed before the first lot was drawn.",
    ),
    NOTHING_FITTED_BEFORE,
    Assumption(
        "noise_on_a_grid",
        "The noise is drawn in floating point, and noise and sum are rounded to a public grid.",
    ),
)
_PUBLIC_SIZE = Assumption("public_lot_size", "Sums are divided by the public lot size, never by the realised lot size.")
_NOTHING_LEFT = "{count} lost steps were not charged: the user declared that nothing of them left the process."
_NO_ANSWER = "The formula of {source} does not apply to this run, so there is no claim to compare with."
_LARGE_DELTA = (
    "Delta {delta:g} is not below 1/{population:,}, one over the population: publishing a random example would satisfy "
    "it. Choose a delta far below."
)
_NO_NOISE = "some coordinate had no noise at all"


@dataclass(frozen=True)
class Spent:
    """The events of all released steps, as planned and as realised.

    `lost` counts steps that were begun before a crash and drawn again; `forgiven` counts those that left no trace.
    """

    events: list[Event]
    realised: list[Event]
    lost: Counter[int]
    forgiven: int = 0


def make_guarantee(
    plan: Plan, spent: Spent, *, assumptions: tuple[Assumption, ...] = (), violations: tuple[str, ...] = ()
) -> Guarantee:
    """The guarantee of everything released so far, with the method's claim beside it."""
    method = plan.mechanism.method
    event = total_event(plan, spent)
    divided = () if "random_denominator" in method.violations else (_PUBLIC_SIZE,)
    claim = _claim(plan, spent, event)
    doubt = "" if claim is None or method.status is not Status.PROVEN else claim.doubt
    left = Assumption("lost_steps_not_charged", _NOTHING_LEFT.format(count=spent.forgiven))
    forgiven = (left,) if spent.forgiven else ()
    return Guarantee(
        event,
        plan.delta,
        method=method.name,
        mode=method.mode,
        status=Status.UNPROVEN if doubt else method.status,
        claim=claim,
        because=doubt or method.because,
        assumptions=(plan.sampling.assumption, *divided, *_ASSUMPTIONS, *forgiven, *assumptions),
        unprotected=method.unprotected,
        odometer=epsilon_spent(spent.realised, plan.delta) if spent.realised else None,
        violations=(*method.violations, *violations),
        notes=(*_notes(plan, spent), *_note_missing_claim(plan, spent, claim), *method.notes),
        attained=method.attained,
    )


def total_event(plan: Plan, spent: Spent) -> Event:
    """The event of everything released, lost steps included."""
    lost = [plan.event_at(step) for step in spent.lost.elements()]
    return total(plan.sampling, spent.events, lost, plan.restarts)


def _claim(plan: Plan, spent: Spent, event: Event) -> Claim | None:
    claims = plan.mechanism.method.claims
    if claims is None or not spent.events:
        return None
    return claims.claim(plan.settings(len(spent.events), list(spent.lost.elements())), event)


def _note_missing_claim(plan: Plan, spent: Spent, claim: Claim | None) -> list[str]:
    """A note if the method has a formula that does not apply, as for most schedules."""
    method = plan.mechanism.method
    is_silent = method.claims is not None and claim is None and spent.events
    return [_NO_ANSWER.format(source=method.source)] if is_silent else []


def _notes(plan: Plan, spent: Spent) -> list[str]:
    done, guide = len(spent.events), plan.mechanism.guide
    notes = [f"{done} of {plan.steps} planned steps were released."]
    if plan.delta * plan.sampling.population >= 1:
        notes.append(_LARGE_DELTA.format(delta=plan.delta, population=plan.sampling.population))
    if plan.restarts:
        notes.append(
            f"The run was resumed within an epoch or cycle at step {', '.join(map(str, plan.restarts))}, so its lots "
            "were drawn anew from there, and both parts are charged."
        )
    if spent.lost:
        notes.append(f"{spent.lost.total()} lost steps were drawn again, so they are charged twice.")
    if guide is not None and done:
        epsilon = curve(guide.event(plan.dimension) * (done + spent.lost.total())).epsilon(plan.delta)
        notes.append(
            f"The noisy mean gradients that steered the noise cost epsilon {epsilon:.4g} at delta {plan.delta:g} by "
            "themselves; that much is proven."
        )
    if spent.realised:
        largest = largest_mu(spent.realised)
        moved = f"one example could move a release by {largest:.4g} standard deviations of its noise"
        how = f"{moved} (mu, the clip norm over the smallest sigma)" if math.isfinite(largest) else _NO_NOISE
        notes.append(f"In the step that protected least, {how}. That depends on the run, and is not a guarantee.")
    return notes


# The moments tried, and how far beyond the outermost peak, in standard deviations, they are integrated.
_MOMENTS = np.exp(np.linspace(math.log(1e-5), math.log(300.0), 160))
_FAR, _STEP, _LONGEST = 12.0, 0.05, 20_000


def epsilon_spent(events: Iterable[Event], delta: float) -> float:
    """The epsilon of Gaussian releases, on Poisson lots or not, as if they had been planned like this.

    Infinite where a release had no noise at all, or on a lot too little for its moments to be within reach.

    >>> round(epsilon_spent([Gaussian(1.1).sampled(0.01)] * 100, 1e-5), 2)
    0.97
    """
    logs = np.zeros(_MOMENTS.size)
    for (multiplier, rate), times in Counter(leaf for event in events for leaf in _leaves(event)).items():
        logs = logs + times * (_moments(multiplier, rate) if multiplier > 0 else np.full_like(logs, math.inf))
    if not logs.any():
        return 0.0
    # Canonne, Kamath, Steinke 2020, proposition 12.
    c = _MOMENTS
    epsilons = (logs - math.log(delta) - np.log1p(c)) / c + np.log(c / (1 + c))
    return max(float(np.min(epsilons)), 0.0)


def largest_mu(events: Iterable[Event]) -> float:
    """The largest of what one example can move in a release, in standard deviations of its noise.

    >>> largest_mu([Gaussian(4.0).sampled(0.1), Gaussian(0.5).sampled(0.1) + Gaussian(100.0)])
    2.0
    """
    least = min((multiplier for event in events for multiplier, _ in _leaves(event)), default=math.inf)
    return 1 / least if least > 0 else math.inf


def _leaves(event: Event, rate: float = 1.0) -> Iterator[tuple[float, float]]:
    """(multiplier, rate) of everything inside; a multiplier of zero stands for no noise."""
    match event:
        case Gaussian():
            yield event.multiplier, rate
        case EpsilonDelta():
            yield (0.0, rate) if event.delta > 0 or event.epsilon > 0 else (math.inf, rate)
        case Sampled():
            yield from _leaves(event.inside, rate * event.rate)
        case Composed():
            for part in event.parts:
                yield from _leaves(part, rate)
        case Repeated():
            yield from [leaf for leaf in _leaves(event.inside, rate) for _ in range(event.times)]
        case _:
            raise NotAccountable(f"An odometer reads Gaussian releases only. Got {type(event).__name__}.")


@lru_cache(maxsize=4096)
def _moments(multiplier: float, rate: float) -> Floats:
    """log E[e^{c loss}] for every moment c; infinite where it is out of reach."""
    c, shift = _MOMENTS, 1 / multiplier
    if rate == 1:
        return np.asarray(c * (c + 1) * shift**2 / 2)
    result = np.full(c.size, math.inf)
    for index, power in enumerate(c):
        end = shift * (1 + power) + _FAR
        if (end + _FAR) / _STEP > _LONGEST:
            break
        x = np.arange(-_FAR, end, _STEP)
        ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + shift * x - shift**2 / 2)
        logs = (1 + power) * ratio - x**2 / 2
        top = float(logs.max())
        result[index] = top + math.log(float(np.exp(logs - top).sum()) * _STEP / math.sqrt(2 * math.pi))
    return np.asarray(np.maximum(result, 0.0))
