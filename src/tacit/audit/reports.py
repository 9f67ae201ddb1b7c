"""What an audit says: what was claimed and proven, what the attack shows, and the verdict. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tacit.accounting.curve import PrivacyCurve
from tacit.audit.evidence import Finding, Verdict, judge


@dataclass(frozen=True)
class AuditReport:
    """What was claimed (by `source`) and proven, what the attack shows, and the verdict. Prints as sentences.

    A measured bound is wrong with probability 1 - confidence at most, and a verdict rests on two such tests, so a
    conflict is for a person to resolve.
    """

    finding: Finding
    claimed: float | None = None
    proven: float = math.inf
    curve: PrivacyCurve | None = field(default=None, repr=False)
    source: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the finding says of claim and proof."""
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
            f"Against it: {', '.join(said)}. Verdict: {self.verdict}.",
        ]
        return "\n".join([*lines, *self.finding.notes])
