"""What must be declared and not looked up in the data: norms, classes, seeds, weights, and where a fit is charged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, EpsilonDelta, Event, Unproven
from tacit.erm.noise import k_norm
from tacit.errors import AdjacencyMismatch, InvalidArgument
from tacit.estimators.preprocessing import assumptions_about_x
from tacit.guarantee import Assumption, Guarantee
from tacit.ledger import Ledger, fingerprint
from tacit.randomness import Purpose, source_for

ESTIMATE = "estimate"
# The share of epsilon that an estimate of the norm takes.
ESTIMATE_SHARE = 0.1
# Norms from 1e-6 to 1e6, in steps of the square root of 2; as many rows as this share shall keep their length.
_GRID: Array = 2.0 ** (np.arange(-40, 41) / 2)
_KEPT = 0.9

ONE_FIT = Assumption(
    "one_fit",
    "This is the cost of one fit. Every further fit on the same examples, in a search, a cross-validation or by hand, "
    "adds its own; give all of them one ledger to have them added up. Scores on these examples have no noise and no "
    "guarantee, nor has a choice by such scores: choose by examples that are public.",
)
_READ_OFF = Assumption("public_classes", "Which classes there are is public: they were read off y, not declared.")
_COUNTED = "The number of examples, {}, is public: it was counted, not declared."


def refuse_weights(class_weight: object, given: Mapping[str, Any]) -> None:
    """Raise for weights that depend on the data, or that would let one example count for many."""
    if class_weight is not None:
        raise InvalidArgument(
            f"class_weight={class_weight!r}: weights change how much one example can move the model, and 'balanced' "
            "counts private labels. Leave class_weight out, or balance the classes by a declared sampling beforehand."
        )
    others = sorted(given.keys() - {"sample_weight"})
    if given.get("sample_weight") is not None:
        raise InvalidArgument(
            "sample_weight lets one example count for many, and the noise hides one. Leave it out: no weights are "
            "taken, not even equal ones."
        )
    if others:
        raise InvalidArgument(f"fit takes X and y. Got also {', '.join(others)}.")


def seed_of(random_state: Any) -> int | None:
    """None for cryptographic noise; else a number that draws it again, with which nothing is for release."""
    if random_state is None:
        return None
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    if not isinstance(random_state, np.random.RandomState):
        raise InvalidArgument(
            "random_state must be None (cryptographic noise), a whole number, or a numpy RandomState, as everywhere in "
            f"scikit-learn. Draw a number from a Generator: int(rng.integers(2**31)). Got {random_state!r}."
        )
    return int(random_state.randint(2**31 - 1))


def classes_of(declared: Any, y: NDArray[Any]) -> tuple[NDArray[Any], tuple[Assumption, ...]]:
    """The classes in order, and what has to be assumed: that they are public where nobody declared them."""
    known = np.unique(y if declared is None else np.asarray(declared))
    unknown = np.setdiff1d(y, known)
    if unknown.size:
        raise InvalidArgument(
            f"y holds {unknown.size} classes that were not declared, such as {unknown.tolist()[0]!r}. Declare all of "
            "them in classes=..., whether they occur or not."
        )
    if known.size < 2:
        raise InvalidArgument(
            f"y holds one class, {known.tolist()[0]!r}: there is nothing to tell apart. If others exist, declare all "
            "of them in classes=..."
        )
    return known, () if declared is not None else (_READ_OFF,)


def scaled_targets(y: Array, target_bound: float | None) -> tuple[Array, float]:
    """Targets clipped to the declared bound and divided by it, and the bound."""
    if target_bound is None:
        raise InvalidArgument(
            "target_bound is missing. Targets are clipped to [-target_bound, target_bound], and the noise is made for "
            "that, so it must be known without looking at them. Declare one, as in target_bound=100.0."
        )
    bound = _validate.positive("target_bound", target_bound)
    return np.clip(y / bound, -1.0, 1.0), bound


def norm_for(data_norm: object, rows: Array, epsilon: float, seed: int | None) -> tuple[float, float, Event | None]:
    """(norm, epsilon that is left, what the estimate cost): declared, or estimated at a tenth of epsilon."""
    if data_norm is None:
        raise InvalidArgument(
            "data_norm is missing. It is the largest norm that a row may have: longer rows are scaled down to it, and "
            "the noise is made for it. It must be known without looking at the data, or it would give them away. "
            f"Declare one (data_norm=1.0 after scaling by public bounds), or say data_norm='{ESTIMATE}' to have it "
            "estimated for a tenth of epsilon."
        )
    if isinstance(data_norm, str):
        if data_norm != ESTIMATE:
            raise InvalidArgument(f"data_norm must be a positive number or '{ESTIMATE}'. Got {data_norm!r}.")
        cost = ESTIMATE_SHARE * epsilon
        norm, event = estimated_norm(rows, cost, seed)
        return norm, epsilon - cost, event
    return _validate.positive("data_norm", data_norm), epsilon, None


def estimated_norm(rows: Array, epsilon: float, seed: int | None) -> tuple[float, Event]:
    """A norm that about nine rows in ten keep, and what it cost: epsilon-DP for one row replaced by another.

    Counts of norms between public marks get Laplace noise: a replaced row changes two of them by one.
    """
    lengths = np.linalg.norm(rows, axis=1)
    counts = np.bincount(np.searchsorted(_GRID, lengths).clip(max=_GRID.size - 1), minlength=_GRID.size)
    stream = source_for(seed).stream(Purpose.NOISE, 1)
    noisy = counts + k_norm(stream, 1, 2 / epsilon, count=_GRID.size)[:, 0]
    total = np.cumsum(noisy)
    norm = float(_GRID[min(int(np.searchsorted(total, _KEPT * total[-1])), _GRID.size - 1)])
    return norm, EpsilonDelta(epsilon, 0.0, Adjacency.REPLACE_ONE)


def counted(examples: int) -> Assumption:
    """That the number of examples is public, where nobody declared it."""
    return Assumption("counted_examples", _COUNTED.format(examples))


def completed(
    estimator: Any, guarantee: Guarantee, estimate: Event | None, assumptions: tuple[Assumption, ...]
) -> Guarantee:
    """The guarantee of a whole fit: with what an estimate cost, and with what was assumed on the way."""
    event = guarantee.event
    if estimate is not None:
        if event.adjacency is not Adjacency.REPLACE_ONE:
            raise AdjacencyMismatch(
                "The estimate of data_norm is about one example replaced by another, and this form of the method about "
                "one added or removed. Declare data_norm, or use mode='rigorous'."
            )
        event = estimate + event
    about_x = assumptions_about_x(estimator)
    return replace(guarantee, event=event, assumptions=(*guarantee.assumptions, *assumptions, *about_x, ONE_FIT))


def charge(ledger: Any, dataset: str | None, guarantee: Guarantee, *examples: Any) -> None:
    """Enter a fit into its ledger before anything of it is handed out; `BudgetExceeded` if there is no room.

    `examples` are all arrays that were trained on. The ledger keys their fingerprint with its secret, and refuses the
    same examples under a second name.
    """
    if ledger is None:
        return
    if not isinstance(ledger, str | os.PathLike | Ledger):
        raise InvalidArgument(f"ledger must be a tacit.ledger.Ledger or the path of its file. Got {ledger!r}.")
    book = ledger if isinstance(ledger, Ledger) else Ledger(os.fspath(ledger))
    if dataset is None:
        raise InvalidArgument("A ledger charges data sets by name. Give dataset='patients', or leave the ledger out.")
    about = {"method": guarantee.method, "mode": guarantee.mode}
    # Folds of a cross-validation differ, and are the same people: each is entered under the name that they share.
    book.spend(dataset, _about_examples(guarantee), about=about, fingerprint=fingerprint(*examples))


def _about_examples(guarantee: Guarantee) -> Event:
    """What a ledger adds up is about whole examples: of a fit that leaves a part of them open, nothing is proven."""
    if not guarantee.unprotected:
        return guarantee.event
    claim = guarantee.claim
    said = f"private for each {guarantee.unit}" if claim is None else f"({claim.epsilon:g}, {claim.delta:g})-DP"
    return Unproven(said, f"{' and '.join(guarantee.unprotected)} have no noise", guarantee.event.adjacency)
