"""The balance of a ledger: each data set with its runs, what is spent and what is left. Loads no torch."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tacit.accounting import Composed, EpsilonDelta, Event, Gaussian, Repeated, Sampled, curve
from tacit.budget import Budget
from tacit.datasets import Data
from tacit.errors import BadLedger, BudgetExceeded, Caution, InvalidArgument, NotProven
from tacit.guarantee import FIXED_SEED
from tacit.ledger import Account, Charge, Ledger
from tacit.ledger.account import add_up_runs, restate
from tacit.ledger.likeness import Traits
from tacit.ledger.storage import storage_at
from tacit.reports.wording import down, neighbours, step_words, up
from tacit.workflows.progress import show_status
from tacit.workflows.text import Paragraph

__all__ = [
    "Balance",
    "Budget",
    "Ledger",
    "describe_standing",
    "find",
    "name_event",
    "open_ledger",
    "paragraphs",
    "storage_at",
    "to_json",
]

_DELTA = 1e-5
_HEAD = ("run", "since", "state", "epsilon", "so far")


@dataclass(frozen=True)
class Row:
    """One run: what it costs alone, and what everything up to it costs."""

    charge: Charge
    alone: float
    so_far: float


@dataclass(frozen=True)
class Balance:
    """A data set: its runs (the last ones, if there are many), and what is left of its budget.

    If `epsilon` is infinite because the deltas of the runs add up to more, `total` is the cost at their sum.
    """

    account: Account
    delta: float
    rows: tuple[Row, ...]
    epsilon: float
    remaining: Budget | None
    more: int | None
    total: tuple[float, float] | None


def open_ledger(file: str) -> Ledger:
    """Open a ledger that exists; `BadLedger` if there is none."""
    storage = storage_at(file)
    if not storage.exists():
        raise BadLedger(
            f"There is no ledger {storage.place}. Make one with tacit ledger budget {storage.place} DATASET "
            "--epsilon 3 --delta 1e-5, or with tacit train --ledger."
        )
    return Ledger(file)


def explain_over_budget(
    refused: BudgetExceeded,
    ledger: Ledger,
    dataset: str,
    cost: Callable[..., Event],
    typed: tuple[float, float],
) -> BudgetExceeded:
    """The same refusal in the terms that were typed: with the --epsilon that would fit. `cost` takes epsilon, delta.

    A method whose delta adds up with that of other releases may need a smaller --delta too.
    """
    epsilon, delta = typed
    account = ledger.account(dataset)
    with show_status("Looking for an epsilon that fits"):
        for less in (delta, delta / 2):
            fitting = account.find_fitting_epsilon(partial(cost, delta=less), epsilon)
            if fitting is not None:
                also = "" if less == delta else f" with --delta {less:g}"
                return BudgetExceeded(refused.args[0], f"--epsilon {fitting:g}{also} would fit.")
    return BudgetExceeded(refused.args[0], "No smaller --epsilon was found that fits.")


def warn_if_similar(place: str, dataset: str, data: Data, bounds: str) -> None:
    """Give a `Caution` if the ledger has no charge for this table, but has some for one that looks like it."""
    if data.form is None or not data.digests:
        return
    columns = getattr(data.form.inputs, "names", ())
    ledger = Ledger(place)
    similar = ledger.recognise(dataset, Traits((*columns, data.form.target or ""), bounds, data.digests))
    if similar:
        listed = ", and like ".join(map(str, similar))
        warnings.warn(
            f"{dataset} has no charges in {ledger.path}, but looks like {listed}. If they hold the same people, stop "
            f"this run and charge it to the same budget: --dataset {shlex.quote(similar[0].dataset)}. This message was "
            "computed from private rows and is not for release.",
            Caution,
            stacklevel=3,
        )


def find(ledger: Ledger, dataset: str | None, delta: float | None, most: int | None) -> list[Balance]:
    """The balance of every data set, or of one; of the last `most` runs each."""
    names = ledger.datasets
    if dataset is not None and dataset not in names:
        known = ", ".join(names) or "none"
        raise InvalidArgument(f"{ledger.path} has no entry for data set {dataset!r}. It has {known}.")
    entries = ledger.entries()
    return [_make_balance(Account.of(name, entries), delta, most) for name in names if dataset in (None, name)]


def _make_balance(account: Account, delta: float | None, most: int | None) -> Balance:
    terms = account.terms
    at = delta if delta is not None else terms.budget.delta if terms is not None else _DELTA
    rows, total = _find_rows(account, at, most), None
    if rows and math.isinf(rows[-1].so_far):
        total = account.finite_total(at)
        if total is not None and terms is None and delta is None:
            # Nobody asked for this delta, so take one at which the answer is finite.
            at = total[1]
            rows = _find_rows(account, at, most)
    epsilon = rows[-1].so_far if rows else 0.0
    if terms is None:
        return Balance(account, at, rows, epsilon, None, None, total)
    return Balance(account, at, rows, epsilon, account.remaining(), account.more_like_last(), total)


def _find_rows(account: Account, delta: float, most: int | None) -> tuple[Row, ...]:
    events = [restate(charge.event, account.adjacency) for charge in account.charges]
    first = 0 if most is None else max(len(events) - most, 0)
    return tuple(
        Row(charge, _find_epsilon(event, delta), _find_epsilon(so_far, delta))
        for charge, event, so_far in zip(
            account.charges[first:], events[first:], add_up_runs(events, first), strict=True
        )
    )


def _find_epsilon(event: Event, delta: float) -> float:
    try:
        return curve(event).epsilon(delta)
    except NotProven:
        return math.inf


def paragraphs(balance: Balance) -> list[Paragraph]:
    """A data set as a headline, a table and what is left."""
    account, terms, runs = balance.account, balance.account.terms, len(balance.account.charges)
    of = "" if terms is None else f" of {terms.budget.epsilon:g}"
    compared = f"{neighbours(account.adjacency, unit=account.unit)}, PLD, {runs:,} {'run' if runs == 1 else 'runs'}"
    spent = "no finite epsilon" if math.isinf(balance.epsilon) else f"epsilon {up(balance.epsilon)}"
    hidden = runs - len(balance.rows)
    earlier = [f"(and {hidden:,} earlier: --all shows them)"] if hidden else []
    table = [*_list_runs(balance.rows), *earlier] if balance.rows else ["Nothing was released."]
    return [
        (f"{account.dataset}: {spent}{of} at delta {balance.delta:g} ({compared})", [*table, *_describe_left(balance)])
    ]


def _explain_infinity(balance: Balance) -> list[str]:
    """Why an epsilon is infinite, and a delta at which it is not."""
    total = balance.total
    if not math.isinf(balance.epsilon):
        return []
    if total is None:
        return ["No finite epsilon holds, because a run is not proven."]
    return [
        f"The deltas of the runs add up, so no epsilon is finite at delta {balance.delta:g}. All together: epsilon "
        f"{up(total[0])} at delta {total[1]:g}."
    ]


def describe_standing(ledger: Ledger, dataset: str, run: str) -> str:
    """Where a data set stands after a run, in one sentence."""
    balance = _make_balance(ledger.account(dataset), None, most=1)
    terms = balance.account.terms
    of = "" if terms is None else f" of {terms.budget.epsilon:g}"
    return (
        f"{ledger.path}: charged as run {run}. {dataset} has now spent epsilon {up(balance.epsilon)}{of} at delta "
        f"{balance.delta:g} ({neighbours(balance.account.adjacency, unit=balance.account.unit)}, PLD)."
    )


def _list_runs(rows: tuple[Row, ...]) -> list[str]:
    """Two lines for each run: its state and epsilon, then whose it is and what it releases."""
    lines = [_HEAD]
    for row in rows:
        state = "settled" if row.charge.is_settled else "reserved"
        since = row.charge.since[:16].replace("T", " ")
        lines.append((row.charge.run, since, state, up(row.alone), up(row.so_far)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    numbers = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    abouts = []
    for charge in (row.charge for row in rows):
        what = charge.about.get("method") or charge.about.get("note") or "release"
        seeded = ", fixed seed" if FIXED_SEED in charge.about.get("violations", ()) else ""
        abouts.append(f"{'':<{widths[0]}}  {charge.who}: {what}, {name_event(charge.event)}{seeded}")
    return [numbers[0], *(line for pair in zip(numbers[1:], abouts, strict=True) for line in pair)]


def _describe_left(balance: Balance) -> list[str]:
    account, terms = balance.account, balance.account.terms
    lines = _explain_infinity(balance)
    if terms is None:
        lines.append(f"No budget is set. To set one: tacit ledger budget FILE {account.dataset} --epsilon E --delta D")
    elif balance.remaining is None:
        lines.append("Left: nothing.")
    else:
        runs = "run" if balance.more == 1 else "runs"
        more = "" if balance.more is None else f"; or {balance.more:,} more {runs} like the last"
        lines.append(
            f"Left: epsilon {down(balance.remaining.epsilon, 4)} at delta {terms.budget.delta:g}, as one more Gaussian "
            f"release{more}."
        )
    if terms is not None and terms.order is not None:
        lines.append(f"A Rényi filter of order {terms.order:.4g} holds the budget, however runs were chosen.")
    elif len(account.charges) > 1:
        lines.append("Assumption: no run's noise, lots or steps were chosen from the results of an earlier run.")
    if any(not charge.is_settled for charge in account.charges):
        lines.append("Reserved runs may still draw. To end one and free the rest: tacit ledger settle FILE RUN")
    if any(FIXED_SEED in charge.about.get("violations", ()) for charge in account.charges):
        lines.append("NOT FOR RELEASE: runs with a fixed seed. Whoever knows the seed can remove the noise.")
    return lines


def name_event(event: Event) -> str:
    """An event in a few words.

    >>> name_event(Gaussian(1.1).sampled(0.01) * 500), name_event(Gaussian(2.0)), name_event(Gaussian(2.0) * 0)
    ('500 steps, multiplier 1.1, rate 0.01', '1 release, multiplier 2', 'nothing')
    """
    match event:
        case Repeated(inside=Sampled(inside=Gaussian(multiplier=multiplier), rate=rate), times=times) if times:
            return f"{step_words(times)}, multiplier {multiplier:.4g}, rate {rate:.4g}"
        case Repeated(inside=Gaussian(multiplier=multiplier), times=times) if times:
            return f"{times:,} releases, multiplier {multiplier:.4g}"
        case Gaussian(multiplier=multiplier):
            return f"1 release, multiplier {multiplier:.4g}"
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            return f"({epsilon:g}, {delta:g})-private"
        case Repeated(times=0):
            return "nothing"
        case Composed(parts=parts):
            return f"{len(parts)} kinds of release"
    return type(event).__name__


def to_json(file: str, balances: list[Balance]) -> dict[str, Any]:
    """The same for machines."""
    return {"ledger": file, "datasets": [_to_json(balance) for balance in balances]}


def _to_json(balance: Balance) -> dict[str, Any]:
    account, terms, left = balance.account, balance.account.terms, balance.remaining
    return {
        "dataset": account.dataset,
        "adjacency": account.adjacency.value,
        "delta": balance.delta,
        "epsilon": balance.epsilon,
        "budget": terms and {"epsilon": terms.budget.epsilon, "delta": terms.budget.delta, "filter_order": terms.order},
        "remaining": left and {"epsilon": left.epsilon, "delta": left.delta, "as": "one more Gaussian release"},
        "more_runs_like_the_last": balance.more,
        "runs": [
            {
                "run": row.charge.run,
                "since": row.charge.since,
                "who": row.charge.who,
                "about": row.charge.about,
                "is_settled": row.charge.is_settled,
                "epsilon": row.alone,
                "epsilon_so_far": row.so_far,
            }
            for row in balance.rows
        ],
    }
