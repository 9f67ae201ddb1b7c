"""What an attack has shown: a lower bound on epsilon, how certain it is, and what that does to a claim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Self

from tacit import _validate
from tacit.accounting import gdp


class Kind(Enum):
    """How a lower bound came about. Only the last one can be wrong, with probability 1 - confidence."""

    EXACT = "exact"
    PROBABILITY_GAP = "probability gap"
    GAUSSIAN_SHIFT = "gaussian shift"
    COMPOSED = "composed"
    SIMULATED = "simulated"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class LowerBound:
    """Whatever was attacked is not (e, `delta`)-private for any e below `epsilon`.

    `confidence` is 1 where it was computed and below 1 where it was measured. `gap` is the part of delta
    that no epsilon covers: outcomes that one of the two worlds never shows. `assuming` says what must
    hold beside; an estimate that assumes something can refute nothing.

    >>> print(LowerBound(2.25, 1e-5, 0.99, Kind.SIMULATED))
    epsilon at least 2.25 at delta 1e-05 (simulated, confidence 99 %)
    """

    epsilon: float
    delta: float
    confidence: float = 1.0
    kind: Kind = Kind.EXACT
    gap: float | None = None
    assuming: str = ""

    def __post_init__(self) -> None:
        epsilon = _validate.non_negative("epsilon", self.epsilon, infinite=True)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", _validate.open_unit("delta", self.delta))
        object.__setattr__(self, "confidence", _validate.rate("confidence", self.confidence))

    @classmethod
    def of_gap(cls, gap: float, delta: float) -> Self:
        """Outcomes of probability `gap` in one world are impossible in the other: no epsilon helps above delta.

        >>> LowerBound.of_gap(0.1, delta=1e-5).epsilon
        inf
        """
        gap = _validate.unit("gap", gap)
        kind = Kind.EXACT if gap == 1 else Kind.PROBABILITY_GAP
        return cls(math.inf if gap > delta else 0.0, delta, kind=kind, gap=gap)

    @classmethod
    def of_shift(cls, mu: float, delta: float) -> Self:
        """One world shows N(0, 1) and the other N(mu, 1): the closed form.

        >>> round(LowerBound.of_shift(1.0, delta=1e-5).epsilon, 4)
        4.3772
        """
        return cls(gdp.epsilon(delta, mu), delta, kind=Kind.GAUSSIAN_SHIFT)

    @property
    def is_certain(self) -> bool:
        """Whether it was computed, and not measured."""
        return self.confidence == 1

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            shown = "no finite epsilon"
        else:
            shown = f"epsilon at least {math.floor(self.epsilon * 1e4) / 1e4:.5g}"
        gap = "" if self.gap is None else f"; delta at least {self.gap:.4g} whatever epsilon is"
        sure = "" if self.is_certain else f", confidence {100 * self.confidence:g} %"
        if self.assuming:
            sure += f", assuming {self.assuming}"
        return f"{shown} at delta {self.delta:g} ({self.kind}{sure}{gap})"


class Verdict(Enum):
    """What a lower bound says about a claim and about what is proven."""

    BROKEN = "claim broken"
    STANDS = "not contradicted"
    CONFLICT = "contradicts what is proven"

    def __str__(self) -> str:
        return self.value


def judge(bound: LowerBound, claimed: float | None, proven: float) -> Verdict:
    """Compare a lower bound with a claimed and with the proven epsilon at the same delta.

    A conflict with what is proven means a wrong proof, a wrong program or, where the bound was measured, bad luck.

    >>> judge(LowerBound(3.0, 1e-5), claimed=0.25, proven=math.inf)
    <Verdict.BROKEN: 'claim broken'>
    """
    if bound.epsilon > proven:
        return Verdict.CONFLICT
    if claimed is not None and bound.epsilon > claimed:
        return Verdict.BROKEN
    return Verdict.STANDS


@dataclass(frozen=True)
class Finding:
    """What an attack shows, before anyone says what it should have shown.

    `contradicts` says whether a proven curve was refuted; None if none was given. `points` are (false alarms, members
    missed) as counted: what to draw beside a trade-off curve.
    """

    attack: str
    bound: LowerBound
    gaussian: LowerBound
    contradicts: bool | None
    points: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = ()
