"""What an attack shows: a lower bound on epsilon, how certain it is, and whether it breaks a claim. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.curve import PrivacyCurve
from tacit.accounting.curve import curve as curve_of
from tacit.accounting.events import Event
from tacit.errors import NotProven


class Kind(StrEnum):
    """How a lower bound was found. Only the last kind can be wrong, with probability 1 - confidence."""

    EXACT = "exact"
    PROBABILITY_GAP = "probability gap"
    GAUSSIAN_SHIFT = "gaussian shift"
    COMPOSED = "composed"
    SIMULATED = "simulated"


@dataclass(frozen=True)
class LowerBound:
    """The attacked mechanism is not (e, `delta`)-private for any e below `epsilon`.

    `confidence` is 1 if the bound was computed, and below 1 if it was measured. `gap` is the part of delta that no
    epsilon covers: outcomes that are impossible with one of the two data sets. `assuming` states a further assumption;
    a bound with an assumption refutes nothing.

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
        _validate.check_fields(self, open_unit="delta", rate="confidence")

    @classmethod
    def of_gap(cls, gap: float, delta: float) -> Self:
        """Outcomes of probability `gap` with one data set never occur with the other: above delta, epsilon is infinite.

        >>> LowerBound.of_gap(0.1, delta=1e-5).epsilon
        inf
        """
        gap = _validate.unit("gap", gap)
        kind = Kind.EXACT if gap == 1 else Kind.PROBABILITY_GAP
        return cls(math.inf if gap > delta else 0.0, delta, kind=kind, gap=gap)

    @classmethod
    def of_shift(cls, mu: float, delta: float) -> Self:
        """The closed form for N(0, 1) with one data set and N(mu, 1) with the other.

        >>> round(LowerBound.of_shift(1.0, delta=1e-5).epsilon, 4)
        4.3772
        """
        return cls(gdp.epsilon(delta, mu), delta, kind=Kind.GAUSSIAN_SHIFT)

    @property
    def is_certain(self) -> bool:
        """Whether it was computed rather than measured."""
        return self.confidence == 1

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            text = "no finite epsilon"
        else:
            text = f"epsilon at least {math.floor(self.epsilon * 1e4) / 1e4:.5g}"
        gap = "" if self.gap is None else f"; delta at least {self.gap:.4g} for every epsilon"
        sure = "" if self.is_certain else f", confidence {100 * self.confidence:g} %"
        if self.assuming:
            sure += f", assuming {self.assuming}"
        return f"{text} at delta {self.delta:g} ({self.kind}{sure}{gap})"


class Verdict(StrEnum):
    """What a lower bound says about a claim and about a proof."""

    BROKEN = "claim broken"
    STANDS = "not contradicted"
    CONFLICT = "contradicts what is proven"


def judge(bound: LowerBound, claimed: float | None, proven: float) -> Verdict:
    """Compare a lower bound with a claimed and with the proven epsilon at the same delta.

    A conflict with the proof means a wrong proof, a wrong program or, if the bound was measured, chance.

    >>> judge(LowerBound(3.0, 1e-5), claimed=0.25, proven=math.inf)
    <Verdict.BROKEN: 'claim broken'>
    """
    if bound.epsilon > proven:
        return Verdict.CONFLICT
    if claimed is not None and bound.epsilon > claimed:
        return Verdict.BROKEN
    return Verdict.STANDS


def find_curve(event: Event) -> PrivacyCurve | None:
    """The certified curve of an event; None if nothing is proven of it."""
    try:
        return curve_of(event)
    except NotProven:
        return None


@dataclass(frozen=True)
class Finding:
    """The result of an attack.

    `contradicts` says whether a proven curve was refuted; None if none was given. `points` are the empirical (false
    alarms, members missed), to be drawn beside a trade-off curve.
    """

    attack: str
    bound: LowerBound
    gaussian: LowerBound
    contradicts: bool | None
    points: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AuditReport:
    """The claim (by `source`), the proof, the result of the attack and the verdict. Prints as sentences.

    A measured bound is wrong with probability at most 1 - confidence, and a verdict uses two such tests, so a person
    must resolve a conflict.
    """

    finding: Finding
    claimed: float | None = None
    proven: float = math.inf
    curve: PrivacyCurve | None = field(default=None, repr=False)
    source: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the finding says about claim and proof."""
        if self.finding.contradicts:
            return Verdict.CONFLICT
        return judge(self.finding.bound, self.claimed, self.proven)

    def __str__(self) -> str:
        bound, gaussian = self.finding.bound, self.finding.gaussian
        said = [f"claimed {self.claimed:.4g}"] if self.claimed is not None else []
        said += [f"proven {self.proven:.4g}"] if math.isfinite(self.proven) else ["nothing proven"]
        lines = [
            f"Audit ({self.finding.attack}): {bound}.",
            f"Tighter estimate: {gaussian}.",
            f"Compared with: {', '.join(said)}. Verdict: {self.verdict}.",
        ]
        return "\n".join([*lines, *self.finding.notes])
