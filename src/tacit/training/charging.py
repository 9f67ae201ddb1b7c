"""How a run is charged to a ledger: what is reserved for its plan, and what is left of it when the run resumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch

from tacit.accounting.events import Event
from tacit.errors import CannotResume, InvalidArgument, OutOfOrder
from tacit.guarantee import FIXED_SEED
from tacit.ledger import Block, Course, Ledger, Reservation, fingerprint
from tacit.ledger.reservation import find_ledger
from tacit.stages.more_samplings import Remembered
from tacit.stages.sampling import FullBatch, Poisson, Shuffled
from tacit.training.lots import Examples, PreparedExamples, TensorExamples, leaves
from tacit.training.people import PeopleExamples
from tacit.training.plan import Plan


@dataclass(frozen=True)
class BookingPlace:
    """Where a run is charged: the ledger, the name of the data set there, and the run's name if it has one."""

    ledger: Ledger
    dataset: str | None
    examples: Examples
    seed: int | None
    run: str | None = None

    def booking(self, plan: Plan, steps: int) -> Reservation:
        """The run's reservation in the ledger, for a plan of at most so many steps."""
        method = plan.mechanism.method
        about = {
            "method": method.name,
            "mode": method.mode,
            "steps": plan.steps,
            "multiplier": plan.mechanism.noise.multiplier,
            "lot_size": plan.sampling.lot_size,
            "population": plan.sampling.population,
            **({} if plan.rows_per_unit is None else {"unit": plan.unit, "rows_per_unit": plan.rows_per_unit}),
            "violations": [*method.violations, *([] if self.seed is None else [FIXED_SEED])],
        }
        return Reservation(
            self.ledger,
            make_course(plan, steps, is_repeatable=self.seed is not None),
            dataset=self.dataset,
            fingerprint=fingerprint_examples(self.examples),
            about=about,
            own=plan.budget,
            run=self.run,
            stop=plan.steps,
        )


@dataclass(frozen=True)
class Debt:
    """The state of a resumed run: its plan, the steps that were lost, and how many of them are forgiven.

    `before` is what was released before the first step, if the budget of the plan pays for that too.
    """

    plan: Plan
    done: int
    lost: Counter[int]
    forgiven: int
    before: Event | None = None


def reserve_run(
    ledger: Ledger | None, dataset: str | None, examples: Examples, plan: Plan, seed: int | None
) -> Reservation | None:
    """Reserve a new run in the ledger, if there is one; `BudgetExceeded` if the budget has no room for it."""
    if ledger is None:
        if dataset is not None:
            raise InvalidArgument(
                f"dataset={dataset!r} is a name in a ledger, but no ledger was given. Add "
                "ledger=Ledger('adult.ledger'), or leave dataset out."
            )
        return None
    if not isinstance(ledger, Ledger):
        raise InvalidArgument(f"ledger must be one such as Ledger('adult.ledger'). Got {ledger!r}.")
    booking = BookingPlace(ledger, dataset, examples, seed).booking(plan, plan.steps)
    booking.check()
    return booking


def find_booking(
    saved: Mapping[str, Any], ledger: Ledger | None, dataset: str | None, examples: Examples
) -> BookingPlace | None:
    """Where a saved run is charged: the ledger that it was saved with, or the one given now."""
    place, seed = saved["ledger"], saved["seed"]
    if place is not None:
        found = find_ledger(place, ledger)
        return BookingPlace(found, dataset or place["dataset"], examples, seed, place["run"])
    return None if ledger is None else BookingPlace(ledger, dataset, examples, seed)


def resume_booking(entered: BookingPlace | None, debt: Debt, nothing_left: bool) -> tuple[Reservation | None, Debt]:
    """Resume the charging of a run. The ledger, if there is one, overrides what the run's files say was lost.

    The plan is shortened to what the budgets of the run and of its data set still pay for.
    """
    plan, done = debt.plan, debt.done
    if entered is not None and plan.restarts:
        raise CannotResume(
            f"The run was saved at step {plan.restarts[-1]}, within an epoch or cycle of its lots, whose draw is never "
            "saved. Drawing it anew costs more than the ledger reserved. Resume from a save at the end of an epoch."
        )
    if entered is None:
        lost = [plan.event_at(step) for step in debt.lost.elements()]
        lost += [] if debt.before is None else [debt.before]
        return None, replace(debt, plan=plan.shorten(done, lost))
    # A shortened plan still pays for lost steps beyond its end.
    booking = entered.booking(plan, max([plan.steps, *(step + 1 for step in debt.lost)]))
    drawn = [(0, done)] * (done > 0) + [(step, step + 1) for step in debt.lost.elements()]
    known = booking.resume(done, plan.steps, drawn=drawn, nothing_left=nothing_left)
    return booking, Debt(replace(plan, steps=known.stop), done, known.lost, max(known.forgiven, debt.forgiven))


def refuse_unless_reserved(booking: Reservation | None, reserved: Event, event: Event) -> None:
    """Raise `OutOfOrder` if the ledger reserved another event than the noise emitted."""
    if booking is not None and event != reserved:
        raise OutOfOrder(
            f"The noise emitted {event}, but the ledger reserved {reserved}. Nothing was handed out. Noise.event must "
            "return the event of what Noise.add draws."
        )


def make_course(plan: Plan, steps: int, is_repeatable: bool) -> Course:
    """The cost of every step; for shuffled epochs, in which an example occurs once, the cost of every epoch."""
    events = [plan.event_at(step) for step in range(steps)]
    sampling = plan.sampling
    if isinstance(sampling, (Shuffled, Remembered)):
        length = sampling.steps_per_epoch
        units = [sampling.total(events[start : start + length]) for start in range(0, steps, length)]
    elif isinstance(sampling, (Poisson, FullBatch)):
        length, units = 1, events
    else:
        length, units = steps, [sampling.total(events)]
    blocks = tuple(Block(event, len(list(same)), length) for event, same in groupby(units))
    return Course(blocks, is_repeatable)


def fingerprint_examples(examples: Examples, *more: Any) -> str | None:
    """A fingerprint of the examples; None for a data set that would have to be fetched example by example.

    Of people it covers whose each row is, which is given as one of `more` arrays.
    """
    if isinstance(examples, PeopleExamples):
        return fingerprint_examples(examples.rows, examples.owners.person)
    if isinstance(examples, PreparedExamples):
        return fingerprint_examples(examples.examples, *more)
    if not isinstance(examples, TensorExamples):
        return None
    tensors = [tensor.detach().cpu() for tensor in leaves((examples.inputs, examples.targets))]
    # numpy has no bfloat16: hash its bits.
    return fingerprint(*(one.view(torch.int16) if one.dtype is torch.bfloat16 else one for one in tensors), *more)
