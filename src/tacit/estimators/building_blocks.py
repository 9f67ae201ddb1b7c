"""Building blocks of private estimators, for those of this package and for your own.

A private estimator is a plain scikit-learn class. In `fit` it checks what must be declared (classes, bounds, norms),
draws its noise, and calls `complete_guarantee` and `charge_ledger` before it sets any fitted attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, EpsilonDelta, Event
from tacit.erm.noise import k_norm
from tacit.erm.rows import measure_table
from tacit.errors import AdjacencyMismatch, InvalidArgument
from tacit.estimators.charging import charge_ledger as charge_ledger
from tacit.estimators.encoding import BOUNDS, find_largest_norm, warn_if_mostly_clipped
from tacit.estimators.encoding import check_bounds as check_bounds
from tacit.estimators.encoding import scale_by_bounds as scale_by_bounds
from tacit.estimators.pipelines import find_fitted_transformers
from tacit.guarantee import Assumption, Guarantee
from tacit.randomness import Purpose, source_for
from tacit.training.people import Owners

ESTIMATE = "estimate"
# The share of epsilon for an estimate of the norm.
ESTIMATE_SHARE = 0.1
# Norms from 1e-6 to 1e6, in steps of the square root of 2, and the share of rows that keep their length.
_GRID: Array = 2.0 ** (np.arange(-40, 41) / 2)
_KEPT = 0.9

ONE_FIT = Assumption(
    "one_fit",
    "This is the cost of one fit. Every further fit on the same examples, in a search, a cross-validation or by hand, "
    "adds its own cost; a ledger that all fits share adds them up. Scores on these examples have no noise, so the "
    "guarantee covers neither them nor a choice based on them: choose with public examples.",
)
_READ_OFF = Assumption("public_classes", "Which classes there are is public: they were read off y, not declared.")
_COUNTED = "The number of examples, {}, is public: it was counted, not declared."
_PREPARED = "X was scaled, encoded and imputed without looking at private rows, or that was paid for separately."
# Methods that train a linear model themselves, by noise on the objective, output, gradients or data.
LINEAR_METHODS = ("objective", "output", "gradient", "input", "data", "influence")
# Those that train networks too.
DATA_METHODS = ("input", "data", "influence")
# What `options` may not set: the estimators have arguments for these, or do not allow them.
_OWN = ("x", "y", "loss", "regularisation", "epsilon", "delta", "data_norm", "mode", "intercept", "module", "seed")
_OWN_OF_GRADIENTS = ("clip_norm", "multiplier", "mode")


def refuse_weights(class_weight: object, given: Mapping[str, Any]) -> None:
    """Raise for weights that depend on the data, or that let one example count for many."""
    if class_weight is not None:
        raise InvalidArgument(
            f"class_weight={class_weight!r}: weights change how much one example can move the model, and 'balanced' "
            "counts private labels. Leave class_weight out, or balance the classes by a declared sampling beforehand."
        )
    others = sorted(given.keys() - {"sample_weight"})
    if given.get("sample_weight") is not None:
        raise InvalidArgument(
            "sample_weight lets one example count for many, and the noise hides one. Leave it out, even if all weights "
            "are equal."
        )
    if "unit" in others:
        raise InvalidArgument(
            "unit is for PrivateClassifier and PrivateRegressor, which train by clipped gradients. This estimator "
            "protects single rows: leave unit out if everybody has one row."
        )
    if others:
        raise InvalidArgument(f"fit takes X and y. Got also {', '.join(others)}.")


def read_seed(random_state: Any) -> int | None:
    """The seed of a `random_state`; None for cryptographic noise. A model with a seed is not for release."""
    if random_state is None:
        return None
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    if not isinstance(random_state, np.random.RandomState):
        raise InvalidArgument(
            "random_state must be None (cryptographic noise), a whole number, or a numpy RandomState, as in "
            f"scikit-learn. Draw a number from a Generator: int(rng.integers(2**31)). Got {random_state!r}."
        )
    return int(random_state.randint(2**31 - 1))


def find_classes(declared: Any, y: NDArray[Any]) -> tuple[NDArray[Any], tuple[Assumption, ...]]:
    """The classes in order, and the assumption that they are public if they were not declared."""
    known = np.unique(y if declared is None else np.asarray(declared))
    unknown = np.setdiff1d(y, known)
    if unknown.size:
        raise InvalidArgument(
            f"y holds {unknown.size} classes that were not declared, such as {unknown.tolist()[0]!r}. Declare all of "
            "them in classes=..., whether they occur or not."
        )
    if known.size < 2:
        raise InvalidArgument(
            f"y holds one class, {known.tolist()[0]!r}, and a classifier needs two. If others exist, declare all of "
            "them in classes=..."
        )
    return known, () if declared is not None else (_READ_OFF,)


def find_owners(estimator: Any, unit: Any, rows: int) -> Owners | None:
    """Whose each row is; None if rows are protected and not people."""
    if (unit is None) != (estimator.rows_per_unit is None):
        raise InvalidArgument(
            "unit and rows_per_unit go together: fit(X, y, unit=ids) holds the id of a person for each row, and "
            "rows_per_unit=10 says how many rows of a person enter one step at most. It is public."
        )
    return None if unit is None else Owners.of(unit, rows)


def scale_targets(y: Array, target_bound: float | None) -> tuple[Array, float]:
    """Targets clipped to the declared bound and divided by it, and the bound."""
    if target_bound is None:
        raise InvalidArgument(
            "target_bound is missing. Targets are clipped to [-target_bound, target_bound], and the noise depends on "
            "it, so it must not depend on the data. Declare one, as in target_bound=100.0."
        )
    bound = _validate.positive("target_bound", target_bound)
    return np.clip(y / bound, -1.0, 1.0), bound


def choose_norm(
    data_norm: object, rows: Array, epsilon: float, seed: int | None, bounds: Any = None
) -> tuple[float, float, Event | None]:
    """(norm, remaining epsilon, cost of the estimate): declared, estimated for a tenth of epsilon, or by `bounds`.

    If rows were scaled by bounds and no norm was declared, it is the largest that a row within the bounds can have.
    """
    largest = find_largest_norm(bounds)
    if data_norm is None and largest is not None:
        return largest, epsilon, None
    if data_norm is None:
        raise InvalidArgument(
            "data_norm is missing. It is the largest norm that a row may have: longer rows are scaled down to it, and "
            "the noise is proportional to it. It must not depend on the data. Declare one (data_norm=1.0 after scaling "
            "by public bounds), give scale='bounds' and bounds=..., from which it follows, or give "
            f"data_norm='{ESTIMATE}' to have it estimated for a tenth of epsilon."
        )
    if isinstance(data_norm, str):
        if data_norm != ESTIMATE:
            raise InvalidArgument(f"data_norm must be a positive number or '{ESTIMATE}'. Got {data_norm!r}.")
        cost = ESTIMATE_SHARE * epsilon
        norm, event = estimate_norm(rows, cost, seed)
        return norm, epsilon - cost, event
    norm = _validate.positive("data_norm", data_norm)
    warn_if_mostly_clipped(bounds, norm)
    return norm, epsilon, None


def estimate_norm(rows: Array, epsilon: float, seed: int | None) -> tuple[float, Event]:
    """A norm that about nine rows in ten do not exceed, and its cost: epsilon-DP for one row replaced by another.

    Counts of norms between public marks get Laplace noise: replacing a row changes two counts by one.
    """
    lengths = measure_table(rows)
    counts = np.bincount(np.searchsorted(_GRID, lengths).clip(max=_GRID.size - 1), minlength=_GRID.size)
    stream = source_for(seed).stream(Purpose.NOISE, 1)
    noisy = counts + k_norm(stream, 1, 2 / epsilon, count=_GRID.size)[:, 0]
    total = np.cumsum(noisy)
    norm = float(_GRID[min(int(np.searchsorted(total, _KEPT * total[-1])), _GRID.size - 1)])
    return norm, EpsilonDelta(epsilon, 0.0, Adjacency.REPLACE_ONE)


def assume_clipped(data_norm: object, norm: float) -> Assumption:
    """The assumption about the norm to which rows were clipped, with where it comes from."""
    source = "which was declared and not looked up"
    if data_norm is None:
        source = "the largest within the declared bounds"
    if data_norm == ESTIMATE:
        source = "an estimate with noise, which is charged"
    return Assumption("rows_clipped", f"Every row of X was clipped to a norm of {norm:g}, {source}.")


def assume_counted(examples: int) -> Assumption:
    """The assumption that the number of examples is public, if it was not declared."""
    return Assumption("counted_examples", _COUNTED.format(examples))


def complete_guarantee(
    estimator: Any, guarantee: Guarantee, estimate: Event | None, assumptions: tuple[Assumption, ...]
) -> Guarantee:
    """The guarantee of a whole fit, with the cost of an estimate and with all assumptions. Call it within `fit`.

    An assumption replaces that of the same key in the method's own guarantee.
    """
    event = guarantee.event
    if estimate is not None:
        if event.adjacency is not Adjacency.REPLACE_ONE:
            raise AdjacencyMismatch(
                "The estimate of data_norm protects one example replaced by another, and this form of the method one "
                "added or removed. Declare data_norm, or use mode='rigorous'."
            )
        event = estimate + event
    replaced = {each.key for each in assumptions}
    kept = (each for each in guarantee.assumptions if each.key not in replaced)
    about_x = list_assumptions(estimator)
    return replace(guarantee, event=event, assumptions=(*kept, *assumptions, *about_x, ONE_FIT))


def close_fit(
    estimator: Any, guarantee: Guarantee, estimate: Event | None, assumptions: tuple[Assumption, ...], *examples: Any
) -> Guarantee:
    """Complete the guarantee of a fit and charge the ledger with it, before anything of the fit is returned."""
    guarantee = complete_guarantee(estimator, guarantee, estimate, assumptions)
    return charge_ledger(estimator.ledger, estimator.dataset, guarantee, *examples)


def list_assumptions(estimator: Any) -> tuple[Assumption, ...]:
    """The assumptions of a fit about X. Call it within `fit`, as it looks for running pipelines.

    There are none for an estimator that scales by declared bounds, unless a transformer was fitted before it.
    """
    fitted = find_fitted_transformers()
    is_scaled = getattr(estimator, "scale", None) == BOUNDS
    if not fitted:
        return () if is_scaled else (Assumption("prepared_before_fit", _PREPARED),)
    listed = fitted[0] if len(fitted) == 1 else f"{', '.join(fitted[:-1])} and {fitted[-1]}"
    were, them = ("was", "it") if len(fitted) == 1 else ("were", "them")
    named = Assumption(
        "transformers_not_covered",
        f"{listed} {were} fitted on the rows given to fit, and this guarantee does not cover {them}.",
    )
    return named, Assumption("prepared_before_fit", f"Apart from {them}, {_PREPARED}")


def find_method(name: object) -> Callable[..., Any]:
    """The method with that short name, such as "input" for `input_perturbation`."""
    if name not in LINEAR_METHODS:
        raise InvalidArgument(f"method must be one of {', '.join(map(repr, LINEAR_METHODS))}. Got {name!r}.")
    home = f"{name}_perturbation"
    return cast("Callable[..., Any]", getattr(import_module(f"tacit.methods.{home}"), home))


def check_options(given: Any, method: Callable[..., Any]) -> dict[str, Any]:
    """Further arguments of the method; `InvalidArgument` if it has none of that name."""
    if given is None:
        return {}
    names = tuple(signature(method).parameters)
    own = _OWN if names[0] == "x" else _OWN_OF_GRADIENTS
    known = [name for name in names if name not in own]
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise InvalidArgument(
            f"options must map names to values, and {method.__name__} takes {', '.join(known) or 'none'}. The other "
            f"settings are arguments of the estimator. Got {given!r}."
        )
    return dict(given)
