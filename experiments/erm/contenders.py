"""What is compared: every ERM method as published and with a proof, and the four settings that each is tuned over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol

from tacit.accounting.events import Adjacency
from tacit.erm import (
    FullDescent,
    NoisyDescent,
    NoisyLots,
    NoisyPass,
    NoisySnapshots,
    PermutedDescent,
    individual_descent,
)
from tacit.erm.individual import FilteredDescent
from tacit.erm.influence import InfluenceRule
from tacit.erm.noisy_data import Descent
from tacit.erm.reports import Reporting
from tacit.guarantee import Guarantee
from tacit.methods import (
    data_perturbation,
    gradient_perturbation,
    influence_perturbation,
    input_perturbation,
    objective_perturbation,
    output_perturbation,
)

from .descent import noisy_descent
from .local import duchi_2013, fukuchi_2017

LOGISTIC, NETWORK = "logistic", "network"
CANDIDATES = 4

# A setting of the method, or "times": the regularisation is that of the table times this number.
Setting = Mapping[str, Any]


class Fitted(Protocol):
    """What a fit gives: scores of new examples, and a guarantee."""

    @property
    def guarantee(self) -> Guarantee: ...

    def scores(self, x: Any) -> Any: ...


@dataclass(frozen=True)
class Contender:
    """A method with its settings, and for each model that it allows the four candidates that are tried.

    `pure` ones are asked without a delta; `on_rows` ones clip features alone.
    """

    name: str
    fit: Callable[..., Fitted]
    settings: dict[str, Any] = field(default_factory=dict)
    candidates: dict[str, tuple[Setting, ...]] = field(default_factory=dict)
    pure: bool = False
    on_rows: bool = False

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it allows."""
        return tuple(self.candidates)

    @property
    def is_published(self) -> bool:
        """Whether it runs as its authors wrote it, rather than with a proof."""
        return self.settings.get("mode") == "paper"


def _training(
    make: Callable[..., Any], steps: Sequence[Any], sizes: Sequence[Any], **fixed: Any
) -> tuple[Setting, ...]:
    """Every number of steps with every step size."""
    return tuple({"training": make(number, step_size=size, **fixed)} for number, size in product(steps, sizes))


def _rules(rounds: Sequence[int], sizes: Sequence[float], **fixed: Any) -> tuple[Setting, ...]:
    pairs = product(rounds, sizes)
    return tuple({"rule": InfluenceRule(rounds=number, step_size=size, **fixed)} for number, size in pairs)


PAPER = {"mode": "paper"}
# Methods that solve for a minimum have no step size: their regularisation is tuned instead.
STRENGTHS: tuple[Setting, ...] = tuple({"times": times} for times in (1, 4, 16, 64))
PACES: tuple[Setting, ...] = tuple({"pace": pace} for pace in (0.1, 0.3, 1.0, 3.0))
SGD: tuple[Setting, ...] = tuple({"steps": n, "step_size": size} for n, size in product((50, 250), (2.0, 8.0)))
# Step sizes of None are 1 / smoothness.
_LINEAR = {
    "full": _training(Descent, (25, 100), (None, 8.0)),
    "lots": _training(Descent, (100, 1000), (None, 8.0)),
    "output": _training(FullDescent, (25, 100), (None, 0.25)),
    "gradient": _training(NoisyDescent, (25, 100), (2.0, 8.0)),
    "single": _training(NoisyLots, (200, 2_000), (None, 0.01), lot_size=1),
    "pass": _training(NoisyPass, (1, 5), (1.0, 8.0), lot_size=50),
    "snapshots": tuple({"training": NoisySnapshots(r, 20, step_size=size)} for r, size in product((5, 20), (2.0, 8.0))),
    "filter": _training(FilteredDescent, (25, 100), (2.0, 8.0)),
    "influence": _rules((10, 100), (0.1, 1.0)),
    "passes": tuple(
        {"training": PermutedDescent(passes), "times": times} for passes, times in product((1, 5), (1, 16))
    ),
}
# The input paper's descent takes all examples in each step, the data paper's about sqrt(n) (`fitting` sets that).
_NETWORK = {
    "full": _training(Descent, (25, 100), (0.5, 4.0)),
    "lots": _training(Descent, (100, 1000), (0.1, 1.0)),
    "reports": _training(Descent, (100, 300), (0.1, 1.0), lot_size=256),
    # Of a network the Hessian is not positive definite; added to its diagonal, this makes it so (Koh and Liang 2017).
    "influence": _rules((10, 30), (0.01, 0.1), damping=1.0, directions=20, rows=2048),
}


def _linear(candidates: tuple[Setting, ...]) -> dict[str, tuple[Setting, ...]]:
    return {LOGISTIC: candidates}


def _both(linear: tuple[Setting, ...], network: tuple[Setting, ...]) -> dict[str, tuple[Setting, ...]]:
    return {LOGISTIC: linear, NETWORK: network}


_REPORTED = {"on_rows": True}

CONTENDERS = [
    Contender("output, Chaudhuri 2011", output_perturbation, PAPER, _linear(STRENGTHS), pure=True),
    Contender("output, Wu 2017", output_perturbation, PAPER, _linear(_LINEAR["passes"])),
    Contender("output, Zhang 2017", output_perturbation, PAPER, _linear(_LINEAR["output"])),
    Contender("objective, Chaudhuri 2011", objective_perturbation, PAPER, _linear(STRENGTHS), pure=True),
    Contender(
        "objective, Kifer 2012",
        objective_perturbation,
        {**PAPER, "adjacency": Adjacency.REPLACE_ONE},
        _linear(STRENGTHS),
    ),
    Contender("gradient, Song 2013", gradient_perturbation, PAPER, _linear(_LINEAR["pass"]), pure=True),
    Contender("gradient, Bassily 2014", gradient_perturbation, PAPER, _linear(_LINEAR["single"])),
    Contender("gradient, Wang 2017 (c = 1)", gradient_perturbation, PAPER, _linear(_LINEAR["gradient"])),
    Contender("DP-SVRG, Wang 2017 (c = 1)", gradient_perturbation, PAPER, _linear(_LINEAR["snapshots"])),
    Contender("DP-SGD, Abadi 2016", noisy_descent("dpsgd"), PAPER, _both(SGD, SGD)),
    Contender("DP-LSSGD, Wang 2019", noisy_descent("dp_lssgd"), PAPER, _both(SGD, SGD)),
    Contender("input, Kang 2020", input_perturbation, PAPER, _both(_LINEAR["full"], _NETWORK["full"]), **_REPORTED),
    Contender("data, Kang 2021", data_perturbation, PAPER, _both(_LINEAR["lots"], _NETWORK["lots"]), **_REPORTED),
    Contender(
        "influence, Kang 2021", influence_perturbation, PAPER, _both(_LINEAR["influence"], _NETWORK["influence"])
    ),
    Contender("local, Duchi 2013", duchi_2013, PAPER, _linear(PACES)),
    Contender("local terms, Fukuchi 2017", fukuchi_2017, PAPER, _linear(STRENGTHS)),
    Contender("output, minimiser", output_perturbation, {}, _linear(STRENGTHS)),
    Contender("output, passes", output_perturbation, {}, _linear(_LINEAR["passes"])),
    Contender("output, descent", output_perturbation, {}, _linear(_LINEAR["output"])),
    Contender("objective", objective_perturbation, {}, _linear(STRENGTHS)),
    Contender("gradient, full", gradient_perturbation, {}, _linear(_LINEAR["gradient"])),
    Contender("gradient, individual filter", individual_descent, {}, _linear(_LINEAR["filter"])),
    Contender("DP-SGD", noisy_descent("dpsgd"), {}, _both(SGD, SGD)),
    Contender("DP-LSSGD", noisy_descent("dp_lssgd"), {}, _both(SGD, SGD)),
    Contender("input, shuffled reports", input_perturbation, {}, _both(STRENGTHS, _NETWORK["reports"]), **_REPORTED),
    Contender(
        "input, reports, de-biased",
        input_perturbation,
        {"reporting": Reporting(debias=True)},
        _linear(STRENGTHS),
        **_REPORTED,
    ),
    Contender("local gradients", duchi_2013, {"mode": "rigorous"}, _linear(PACES)),
    Contender("summed terms", fukuchi_2017, {"mode": "rigorous"}, _linear(STRENGTHS)),
    Contender("local terms", fukuchi_2017, {"mode": "rigorous", "is_local": True}, _linear(STRENGTHS)),
]
BY_NAME = {contender.name: contender for contender in CONTENDERS}
