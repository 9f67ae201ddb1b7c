"""Which law of noise disturbs a release least, at equal certified epsilon: for people and for machines."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import tacit
from tacit import _validate
from tacit.accounting import Adjacency
from tacit.cli.statement import Paragraph
from tacit.errors import InvalidArgument
from tacit.reports.wording import near, neighbours, step_words, up
from tacit.stages.bounds.encode import DrawnVectors, EncodingBox, Profile, Vectors
from tacit.stages.noise import find_family
from tacit.stages.noise.compare import FamilyError, Setting, compare_families
from tacit.workflows.numbers import Plan

# More numbers do not fit into memory one by one, and say nothing new.
_MOST_NUMBERS = 1_000_000
_VECTORS: dict[str, Vectors] = {"profile": Profile(), "flat": Profile(levels=1), "drawn": DrawnVectors()}
_ENCODINGS = {
    "profile": "clamped to sorted sizes of normal numbers, in eight levels",
    "flat": "clamped alike in every coordinate",
    "drawn": "clamped to one of 1000 drawn vectors: a box around all of them",
}


def setting_for(plan: Plan, by: str, *, dimension: float | None, encoding: str) -> Setting:
    """What was typed: one release of everything, unless a rate and steps say otherwise."""
    if plan.multiplier is not None or plan.adjacency == "replace_one" or by != "pld":
        raise InvalidArgument(
            "--families finds the multiplier of each law, for one example added or removed, by the certified "
            "accountant. Leave out --multiplier, --adjacency and --by."
        )
    if dimension is None:
        raise InvalidArgument("How many numbers does a release have? Give --dimension, such as the weights of a model.")
    size = _validate.count("dimension", dimension)
    if size > _MOST_NUMBERS:
        raise InvalidArgument(
            f"--dimension must be at most {_MOST_NUMBERS:,}. Got {size:,}. Beyond that multipliers stay as they are: "
            "L1 errors grow with the number of numbers, L2 errors with its root."
        )
    sampled = any(value is not None for value in (plan.rate, plan.lot_size, plan.population))
    counted = plan.steps is not None or plan.epochs is not None
    box = EncodingBox(_VECTORS[encoding]).corner(size)
    return Setting(tuple(box.tolist()), plan.sampling_rate() if sampled else 1.0, plan.step_count() if counted else 1)


@dataclass(frozen=True)
class Comparison:
    """Every law at the same certified epsilon, the least expected sum of errors first."""

    setting: Setting
    encoding: str
    epsilon: float
    delta: float
    found: list[FamilyError]

    @staticmethod
    def of(setting: Setting, encoding: str, *, epsilon: float, delta: float) -> Comparison:
        """Calibrate each law."""
        found = compare_families(setting, epsilon=epsilon, delta=delta)
        return Comparison(setting, encoding, float(epsilon), float(delta), found)

    @property
    def gaussian(self) -> FamilyError:
        """What all others are compared with."""
        return next(one for one in self.found if one.name == "gaussian")

    def as_json(self) -> dict[str, Any]:
        """The same for machines; errors are in units of the norm of one example's encoding."""
        return {
            "tacit": tacit.__version__,
            "budget": {"epsilon": self.epsilon, "delta": self.delta},
            "adjacency": "add_remove",
            "dimension": self.setting.dimension,
            "encoding": self.encoding,
            "rate": self.setting.rate,
            "steps": self.setting.steps,
            "families": [
                {**asdict(one), "certified": {"lower": one.certified[0], "upper": one.certified[1]}}
                for one in self.found
            ],
        }

    def paragraphs(self) -> list[Paragraph]:
        """The table first, then what it says."""
        clamped = f"One example's gradient is {_ENCODINGS[self.encoding]}."
        return [(self._headline(), self._table()), ("What this says", self._findings()), ("Units", [clamped, *_UNITS])]

    def _headline(self) -> str:
        setting = self.setting
        sampled = "" if setting.rate == 1 else f" at rate {setting.rate:.5g}"
        numbers = "1 number" if setting.dimension == 1 else f"{setting.dimension:,} numbers"
        return (
            f"Error of a release of {numbers} within epsilon {self.epsilon:g} at delta {self.delta:g} "
            f"({neighbours(Adjacency.ADD_REMOVE)}, PLD, {step_words(setting.steps)}{sampled})"
        )

    def _table(self) -> list[str]:
        head = f"{'law':<18}{'multiplier':>11}{'L1 error':>12}{'':>9}{'L2 error':>12}{'':>9}{'median':>10}"
        rows = [head]
        for one in self.found:
            l1, l2 = _beside(one.l1, self.gaussian.l1), _beside(one.l2, self.gaussian.l2)
            rows.append(f"{find_family(one.name).label:<18}{up(one.multiplier):>11}{l1}{l2}{near(one.median, 4):>10}")
        return rows

    def _findings(self) -> list[str]:
        by_l1, by_l2 = min(self.found, key=lambda one: one.l1), min(self.found, key=lambda one: one.l2)
        return [
            f"Least L1 error: {find_family(by_l1.name).label}{_saved(by_l1.l1, self.gaussian.l1)}.",
            f"Least L2 error: {find_family(by_l2.name).label}{_saved(by_l2.l2, self.gaussian.l2)}.",
            "Heavy or pointed laws gain where few numbers are released; where many are, only a law's Fisher "
            "information counts, and at equal information none has a smaller variance than the Gaussian.",
        ]


_UNITS = [
    "In units of the norm that one example's encoding can have. L1 is the expected sum of all errors, L2 the root of "
    "the expected sum of their squares, in brackets beside Gaussian noise; half of the errors stay below the median.",
    "A multiplier is the standard deviation of one error; the Cauchy law has none, nor an expected error: it is its "
    "scale.",
]


def _beside(value: float, gaussian: float) -> str:
    if math.isinf(value):
        return f"{'infinite':>12}{'':>9}"
    return f"{near(value):>12}{f'({value / gaussian:.4f})':>9}"


def _saved(value: float, gaussian: float) -> str:
    return "" if value >= gaussian else f", {100 * (1 - value / gaussian):.2g} % below Gaussian noise"
