"""What a run has spent so far, and the guarantee that this amounts to."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from tacit.accounting.curve import curve
from tacit.accounting.events import Event
from tacit.guarantee import Assumption, Claim, Guarantee, Status
from tacit.training.odometer import epsilon_spent, largest_mu
from tacit.training.plan import Plan, total

NOTHING_FITTED_BEFORE = Assumption(
    "nothing_fitted_before",
    "The model's first weights, and all that was done to the data before, did not depend on the examples.",
)
_ASSUMPTIONS = (
    Assumption(
        "fixed_in_advance",
        "Noise levels, lot sizes and the number of steps were fixed before the first lot was drawn.",
    ),
    NOTHING_FITTED_BEFORE,
    Assumption(
        "noise_on_a_grid",
        "The noise is drawn in floating point, and rounded together with the sum to a public grid.",
    ),
)
_PUBLIC_SIZE = Assumption(
    "public_lot_size", "Sums are divided by the public lot size, never by the number of examples that came."
)
_NOTHING_LEFT = (
    "{count} lost steps were not charged, as whoever resumed declared that nothing of them left the process."
)
_NO_ANSWER = "The formula of {source} has no answer for this run, so that no claim stands beside it."
_LARGE_DELTA = (
    "Delta {delta:g} is not below one in {population:,}, the population: publishing an example drawn at random would "
    "keep within such a delta. Choose one far below."
)
_NO_NOISE = "some coordinate had no noise at all"


@dataclass(frozen=True)
class Spent:
    """The events of all steps that were released, as they were planned and as they came out (`realised`).

    `lost` counts steps that were begun before a crash and drawn again, `forgiven` those that left no trace.
    """

    events: list[Event]
    realised: list[Event]
    lost: Counter[int]
    forgiven: int = 0


def guarantee_of(
    plan: Plan, spent: Spent, *, assumptions: tuple[Assumption, ...] = (), violations: tuple[str, ...] = ()
) -> Guarantee:
    """What is proven about everything that was released so far, with the method's claim beside it."""
    method = plan.mechanism.method
    event = total_of(plan, spent)
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
        notes=(*_notes(plan, spent), *_unanswered(plan, spent, claim), *method.notes),
        attained=method.attained,
    )


def total_of(plan: Plan, spent: Spent) -> Event:
    """Everything that was released, lost steps included."""
    return total(plan.sampling, spent.events, [plan.event_at(step) for step in spent.lost.elements()])


def _claim(plan: Plan, spent: Spent, event: Event) -> Claim | None:
    claims = plan.mechanism.method.claims
    if claims is None or not spent.events:
        return None
    return claims.claim(plan.settings(len(spent.events), list(spent.lost.elements())), event)


def _unanswered(plan: Plan, spent: Spent, claim: Claim | None) -> list[str]:
    """Why a method with a formula has no claim; as the steps of a schedule, of which most formulas know nothing."""
    method = plan.mechanism.method
    is_silent = method.claims is not None and claim is None and spent.events
    return [_NO_ANSWER.format(source=method.source)] if is_silent else []


def _notes(plan: Plan, spent: Spent) -> list[str]:
    done, guide = len(spent.events), plan.mechanism.guide
    notes = [f"{done} of {plan.steps} planned steps were released."]
    if plan.delta * plan.sampling.population >= 1:
        notes.append(_LARGE_DELTA.format(delta=plan.delta, population=plan.sampling.population))
    if spent.lost:
        notes.append(f"{spent.lost.total()} lost steps were drawn again and are charged twice.")
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
