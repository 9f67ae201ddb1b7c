"""A fit in a ledger: charged before its model is returned, with the sum of all releases of the data set."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import replace
from typing import Any

from tacit.accounting.curve import curve
from tacit.accounting.events import EpsilonDelta, Event, Unproven
from tacit.errors import BudgetExceeded, InvalidArgument, NotAccountable, NotProven
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger, fingerprint
from tacit.ledger.account import Account, add_deltas

# How many different costs of earlier releases an error lists.
_LISTED = 3
# The precision of an epsilon that would fit, as a share of the budget.
_LEAST = 0.005
# The shares of a fit's delta that are tried, to find one that still fits.
_SHARES = (1.0, 0.5, 0.2, 0.1, 0.01, 1e-3, 1e-4)


def charge_ledger(ledger: Any, dataset: str | None, guarantee: Guarantee, *examples: Any) -> Guarantee:
    """Enter a fit into its ledger before anything of it is returned; `BudgetExceeded` if the budget is too small.

    Returns the guarantee with a note about the sum of all releases of the data set. `examples` are all arrays of the
    training data. The ledger keys their fingerprint with its secret, and refuses the same examples under a second name.
    """
    if ledger is None:
        return guarantee
    if not isinstance(ledger, str | os.PathLike | Ledger):
        raise InvalidArgument(f"ledger must be a tacit.ledger.Ledger or the path of its file. Got {ledger!r}.")
    book = ledger if isinstance(ledger, Ledger) else Ledger(os.fspath(ledger))
    if dataset is None:
        raise InvalidArgument("A ledger charges data sets by name. Give dataset='patients', or leave the ledger out.")
    about = {"method": guarantee.method, "mode": guarantee.mode, "delta": guarantee.delta, "unit": guarantee.unit}
    event = _event_for_examples(guarantee)
    account = book.account(dataset)
    if not account.allows(event):
        raise _explain(account, event, guarantee.delta)
    # Folds of a cross-validation differ but hold the same people: each is entered under their common name.
    book.spend(dataset, event, about=about, fingerprint=fingerprint(*examples))
    return replace(guarantee, notes=(*guarantee.notes, describe_total(book.account(dataset), guarantee.delta)))


def _event_for_examples(guarantee: Guarantee) -> Event:
    """The event for whole examples; `Unproven` if the fit leaves a part of them unprotected."""
    if not guarantee.unprotected:
        return guarantee.event
    claim = guarantee.claim
    said = f"private for each {guarantee.unit}" if claim is None else f"({claim.epsilon:g}, {claim.delta:g})-DP"
    return Unproven(said, f"{' and '.join(guarantee.unprotected)} have no noise", guarantee.event.adjacency)


def describe_total(account: Account, delta: float) -> str:
    """What all releases of a data set add up to: at the budget's delta, or where deltas add up to more, at that sum."""
    stated = delta if account.terms is None else account.terms.budget.delta
    count = len(account.charges)
    releases = "1 release" if count == 1 else f"{count} releases"
    beginning = f"The ledger has {releases} of {account.dataset!r}, this one included. All together:"
    total = account.finite_total(stated)
    if total is None:
        return f"{beginning} no finite epsilon, because one of them is not proven."
    epsilon, enough = total
    cost = f"{beginning} epsilon {epsilon:.4g} at delta {enough:g}."
    if enough == stated:
        return cost
    return f"{cost} Deltas add up as well, so there is no finite epsilon at delta {stated:g}."


def _explain(account: Account, event: Event, delta: float) -> BudgetExceeded:
    """The error for a fit that does not fit: what it costs, what came before, and what would fit."""
    assert account.terms is not None
    budget, number = account.terms.budget, len(account.charges) + 1
    spent = _list_costs(account, delta)
    used = add_deltas(account.after(event))
    deltas = (
        f" Deltas add up too: with this fit they make {used:.3g}, and the budget has {budget.delta:g}."
        if used > budget.delta
        else ""
    )
    return BudgetExceeded(
        f"This fit would be release {number} of {account.dataset!r}, whose budget is epsilon {budget.epsilon:g} at "
        f"delta {budget.delta:g}. It costs {_describe_cost(event, delta)}; {spent}.{deltas} "
        f"{_advise(account, event, delta)} Every fit is charged: a search makes candidates x folds + 1. Several fits "
        "keep within a whole budget if each gets an equal share of its epsilon and its delta."
    )


def _list_costs(account: Account, delta: float) -> str:
    """What every earlier release cost, and their sum."""
    if not account.charges:
        return "nothing was released before"
    costs = Counter(_describe_cost(charge.event, charge.about.get("delta", delta)) for charge in account.charges)
    shown = [f"{times} of {cost}" if times > 1 else cost for cost, times in costs.most_common(_LISTED)]
    rest = sum(costs.values()) - sum(times for _, times in costs.most_common(_LISTED))
    return f"before it came {', '.join(shown)}{f' and {rest} more' if rest else ''}"


def _describe_cost(event: Event, delta: float) -> str:
    try:
        epsilon = curve(event).epsilon(delta)
    except NotProven:
        return "an unproven amount"
    return f"epsilon {epsilon:.4g} at delta {delta:g}" if math.isfinite(epsilon) else f"a delta above {delta:g}"


def _advise(account: Account, event: Event, delta: float) -> str:
    """An epsilon and a delta that would fit now, whatever the method: found for an (epsilon, delta) that is exact."""
    assert account.terms is not None
    is_pure = add_deltas(event) == 0 and delta < 1e-15

    def fits(epsilon: float, share: float) -> bool:
        try:
            return account.allows(EpsilonDelta(epsilon, 0.0 if is_pure else share * delta, event.adjacency))
        except (NotProven, NotAccountable):
            return False

    highest = account.terms.budget.epsilon
    for share in _SHARES[:1] if is_pure else _SHARES:
        low, high = _LEAST * highest, highest
        if not fits(low, share):
            continue
        while high - low > _LEAST * highest:
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle, share) else (low, middle)
        also = "" if share == 1 else f" and delta={share * delta:g}"
        # Rounded down to two digits, so that the printed number fits.
        scale = 10.0 ** (1 - math.floor(math.log10(low)))
        return f"A fit with epsilon={math.floor(low * scale) / scale:g}{also} would still fit."
    return "No further fit is possible."
