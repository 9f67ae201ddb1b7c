"""From a run's plan to what its ledger reserves, and back from the ledger to what is left of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch

from tacit.accounting.events import Event
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.guarantee import FIXED_SEED
from tacit.ledger import Block, Course, Ledger, Reservation, fingerprint
from tacit.ledger.reservation import find_ledger
from tacit.stages.sampling import FullBatch, Poisson, Shuffled
from tacit.training.lots import Examples, TensorExamples, leaves
from tacit.training.plan import Plan


@dataclass(frozen=True)
class Entered:
    """Where a run is charged: the ledger, the name of the examples there, and the run's own name if it has one."""

    ledger: Ledger
    dataset: str | None
    examples: Examples
    seed: int | None
    run: str | None = None

    def booking(self, plan: Plan, steps: int) -> Reservation:
        """The run's place in the ledger, for a plan of at most so many steps."""
        method = plan.mechanism.method
        about = {
            "method": method.name,
            "mode": method.mode,
            "steps": plan.steps,
            "multiplier": plan.mechanism.noise.multiplier,
            "lot_size": plan.sampling.lot_size,
            "population": plan.sampling.population,
            "violations": [*method.violations, *([] if self.seed is None else [FIXED_SEED])],
        }
        return Reservation(
            self.ledger,
            course_of(plan, steps, is_repeatable=self.seed is not None),
            dataset=self.dataset,
            fingerprint=fingerprint_of(self.examples),
            about=about,
            own=plan.budget,
            run=self.run,
            stop=plan.steps,
        )


@dataclass(frozen=True)
class Debt:
    """What a resumed run has to go on with: its plan, and which steps were drawn in vain or are forgiven."""

    plan: Plan
    done: int
    lost: Counter[int]
    forgiven: int


def booking_for(
    ledger: Ledger | None, dataset: str | None, examples: Examples, plan: Plan, seed: int | None
) -> Reservation | None:
    """A new run's place in the ledger, if there is one; `BudgetExceeded` now if there is no room for the run."""
    if ledger is None:
        if dataset is not None:
            raise InvalidArgument(
                f"dataset={dataset!r} names the examples in a ledger, and no ledger was given. Add "
                "ledger=Ledger('adult.ledger'), or leave the name out."
            )
        return None
    if not isinstance(ledger, Ledger):
        raise InvalidArgument(f"ledger must be one such as Ledger('adult.ledger'). Got {ledger!r}.")
    booking = Entered(ledger, dataset, examples, seed).booking(plan, plan.steps)
    booking.check()
    return booking


def entered_by(
    saved: Mapping[str, Any], ledger: Ledger | None, dataset: str | None, examples: Examples
) -> Entered | None:
    """Where a saved run is charged: in the ledger that it was saved with, or else in one that is given now."""
    place, seed = saved["ledger"], saved["seed"]
    if place is not None:
        found = find_ledger(place, ledger)
        return Entered(found, dataset or place["dataset"], examples, seed, place["run"])
    return None if ledger is None else Entered(ledger, dataset, examples, seed)


def resumed(entered: Entered | None, debt: Debt, nothing_left: bool) -> tuple[Reservation | None, Debt]:
    """Go on with a run whose debt is known from the files beside it; its ledger, if it has one, knows better.

    The plan is cut to what the run's own budget, and that of its data set, still pay for.
    """
    plan, done = debt.plan, debt.done
    if entered is None:
        lost = [plan.event_at(step) for step in debt.lost.elements()]
        return None, replace(debt, plan=plan.shortened(done, lost))
    # A plan that was cut short still pays for the steps beyond its end that were lost.
    booking = entered.booking(plan, max([plan.steps, *(step + 1 for step in debt.lost)]))
    drawn = [(0, done)] * (done > 0) + [(step, step + 1) for step in debt.lost.elements()]
    known = booking.resume(done, plan.steps, drawn=drawn, nothing_left=nothing_left)
    return booking, Debt(replace(plan, steps=known.stop), done, known.lost, max(known.forgiven, debt.forgiven))


def refuse_unless_reserved(booking: Reservation | None, reserved: Event, event: Event) -> None:
    """Raise `OutOfOrder` if a ledger is charged, and for another event than the one that was emitted."""
    if booking is not None and event != reserved:
        raise OutOfOrder(
            f"The noise says that this release cost {event}, and the ledger has reserved {reserved}. Nothing of the "
            "release was handed out. Make Noise.event return what Noise.add emits."
        )


def course_of(plan: Plan, steps: int, is_repeatable: bool) -> Course:
    """What every step costs; for shuffled epochs, in which an example is drawn once, what every epoch does."""
    events = [plan.event_at(step) for step in range(steps)]
    sampling = plan.sampling
    if isinstance(sampling, Shuffled):
        length = sampling.steps_per_epoch
        units = [sampling.total(events[start : start + length]) for start in range(0, steps, length)]
    elif isinstance(sampling, (Poisson, FullBatch)):
        length, units = 1, events
    else:
        length, units = steps, [sampling.total(events)]
    blocks = tuple(Block(event, len(list(same)), length) for event, same in groupby(units))
    return Course(blocks, is_repeatable)


def fingerprint_of(examples: Examples) -> str | None:
    """Which examples these are; None for a data set that must be fetched example by example to tell."""
    if not isinstance(examples, TensorExamples):
        return None
    tensors = [tensor.detach().cpu() for tensor in leaves((examples.inputs, examples.targets))]
    # Numpy knows no bfloat16; its bits say the same.
    return fingerprint(*(one.view(torch.int16) if one.dtype is torch.bfloat16 else one for one in tensors))
