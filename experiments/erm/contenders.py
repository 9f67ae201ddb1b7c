"""What is compared. A method is any function with the settings below that returns scores and a guarantee."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tacit.convex import (
    FullDescent,
    NoisyDescent,
    NoisyLots,
    NoisyPass,
    NoisySnapshots,
    PermutedDescent,
    individual_descent,
)
from tacit.guarantee import Guarantee
from tacit.methods import (
    data_perturbation,
    gradient_perturbation,
    influence_perturbation,
    input_perturbation,
    objective_perturbation,
    output_perturbation,
)


class Fitted(Protocol):
    """What a fit must give: coefficients [outputs, features], intercepts [outputs], and a guarantee."""

    @property
    def coef(self) -> Any: ...
    @property
    def intercept(self) -> Any: ...
    @property
    def guarantee(self) -> Guarantee: ...


@dataclass(frozen=True)
class Contender:
    """A method with its settings. `pure` ones are asked without a delta."""

    name: str
    fit: Callable[..., Fitted]
    settings: dict[str, Any] = field(default_factory=dict)
    pure: bool = False


PAPER = {"mode": "paper"}
# Noise on the data is about rows without the 1 of the intercept.
ROWS = {"data_norm": 1.0}
CONTENDERS = [
    Contender("output, Chaudhuri 2011", output_perturbation, PAPER, pure=True),
    Contender("output, Wu 2017", output_perturbation, {**PAPER, "training": PermutedDescent()}),
    Contender("output, Zhang 2017", output_perturbation, {**PAPER, "training": FullDescent(100)}),
    Contender("objective, Chaudhuri 2011", objective_perturbation, PAPER, pure=True),
    Contender("objective, Kifer 2012 (add/remove)", objective_perturbation, PAPER),
    Contender("gradient, Song 2013", gradient_perturbation, {**PAPER, "training": NoisyPass()}, pure=True),
    Contender("gradient, Bassily 2014", gradient_perturbation, {**PAPER, "training": NoisyLots(20_000, lot_size=1)}),
    Contender("gradient, Wang 2017 (c = 1)", gradient_perturbation, {**PAPER, "training": NoisyDescent()}),
    Contender("DP-SVRG, Wang 2017 (c = 1)", gradient_perturbation, {**PAPER, "training": NoisySnapshots(20, 20)}),
    Contender("input, Kang 2020", input_perturbation, {**PAPER, **ROWS}),
    Contender("data, Kang 2021", data_perturbation, {**PAPER, **ROWS}),
    Contender("influence, Kang 2021", influence_perturbation, PAPER),
    Contender("output, minimiser", output_perturbation),
    Contender("output, minimiser, pure", output_perturbation, pure=True),
    Contender("output, passes", output_perturbation, {"training": PermutedDescent()}),
    Contender("output, descent", output_perturbation, {"training": FullDescent(100)}),
    Contender("objective", objective_perturbation),
    Contender("objective, pure", objective_perturbation, pure=True),
    Contender("gradient, full", gradient_perturbation),
    Contender("gradient, lots", gradient_perturbation, {"training": NoisyLots(300, lot_size=500)}),
    Contender("gradient, snapshots", gradient_perturbation, {"training": NoisySnapshots(10, 20, lot_size=1000)}),
    Contender("gradient, individual filter", individual_descent),
    Contender("input, shuffled reports", input_perturbation, ROWS),
]
