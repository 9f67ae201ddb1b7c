"""What is compared: every ERM method as published and with a proof, and which models it allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

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

LOGISTIC, NETWORK = "logistic", "network"


class Fitted(Protocol):
    """What a fit gives: scores of new examples, and a guarantee."""

    @property
    def guarantee(self) -> Guarantee: ...

    def scores(self, x: Any) -> Any: ...


@dataclass(frozen=True)
class Contender:
    """A method with its settings. `pure` ones are asked without a delta; `on_rows` ones clip features alone. Where
    `tables` are named, the others are too large for it."""

    name: str
    fit: Callable[..., Fitted]
    settings: dict[str, Any] = field(default_factory=dict)
    pure: bool = False
    on_rows: bool = False
    models: tuple[str, ...] = (LOGISTIC,)
    tables: tuple[str, ...] = ()

    def fits(self, table: str, model: str) -> bool:
        """Whether it is tried on this table with this model."""
        return model in self.models and (not self.tables or table in self.tables)

    @property
    def is_published(self) -> bool:
        """Whether it runs as its authors wrote it, rather than with a proof."""
        return self.settings.get("mode") == "paper"


PAPER = {"mode": "paper"}
# Of at most a thousand rows. Elsewhere a hundred solutions with a network's Hessian take a quarter of an hour a fit.
SMALL = ("Breast Cancer", "Credit Card", "Iris")
BOTH = (LOGISTIC, NETWORK)
_NORMALISED = InfluenceRule(normalise=True)
# Of a network the Hessian is not positive definite; added to its diagonal, this makes it so (Koh and Liang 2017).
_DAMPED = InfluenceRule(damping=1.0)

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
    Contender("DP-SGD, Abadi 2016 (add/remove)", noisy_descent("dpsgd"), PAPER, models=BOTH),
    Contender("DP-LSSGD, Wang 2019 (add/remove)", noisy_descent("dp_lssgd"), PAPER, models=BOTH),
    Contender("input, Kang 2020", input_perturbation, PAPER, on_rows=True, models=BOTH),
    Contender("data, Kang 2021", data_perturbation, PAPER, on_rows=True, models=BOTH),
    Contender("influence, Kang 2021", influence_perturbation, PAPER, models=BOTH),
    Contender("influence, normalised", influence_perturbation, {**PAPER, "rule": _NORMALISED}),
    Contender(
        "influence, damped by 1", influence_perturbation, {**PAPER, "rule": _DAMPED}, models=(NETWORK,), tables=SMALL
    ),
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
    Contender("gradient, filter on lots", individual_descent, {"training": FilteredDescent(steps=300, lot_size=100)}),
    Contender("DP-SGD (add/remove)", noisy_descent("dpsgd"), models=BOTH),
    Contender("DP-LSSGD (add/remove)", noisy_descent("dp_lssgd"), models=BOTH),
    Contender("input, shuffled reports", input_perturbation, on_rows=True, models=BOTH),
    Contender("input, reports, de-biased", input_perturbation, {"reporting": Reporting(debias=True)}, on_rows=True),
    Contender("input, reports, K-norm", input_perturbation, {"reporting": Reporting("k_norm")}, on_rows=True),
    Contender("input, local reports", input_perturbation, {"reporting": Reporting(shuffled=False)}, on_rows=True),
]
BY_NAME = {contender.name: contender for contender in CONTENDERS}
