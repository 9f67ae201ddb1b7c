"""`audit`: attack any training function, and say what that shows. The function need not know of tacit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from tacit import _validate
from tacit.accounting.curve import PrivacyCurve
from tacit.accounting.curve import curve as curve_of
from tacit.audit.attacks import Attack, Canaries, Train
from tacit.audit.evidence import Verdict
from tacit.audit.reports import AuditReport
from tacit.errors import InvalidArgument, NotProven
from tacit.guarantee import AUDIT, Guarantee


def audit(
    train: Train,
    data: Any,
    *,
    delta: float,
    attack: Attack | None = None,
    claim: float | None = None,
    proven: Guarantee | PrivacyCurve | None = None,
    confidence: float = 0.99,
) -> AuditReport:
    """Attack a training function: `train(data)` returns whatever is released, and may know nothing of tacit.

    `data` is a pair (inputs, targets) of arrays or tensors; `train` gets a pair of arrays. `claim` is an epsilon that
    someone claims at `delta`; `proven` a guarantee or curve to hold against the attack. The attack is `Canaries()`
    unless another is given. What comes back was measured on private data, and is not for release.

    >>> from tacit.audit import ManyRuns
    >>> def train(data):
    ...     inputs, targets = data
    ...     return inputs.T @ targets + np.random.normal(size=2)
    >>> rng = np.random.default_rng(0)
    >>> data = (rng.normal(size=(20, 2)), np.ones(20))
    >>> report = audit(train, data, delta=1e-5, claim=0.1, attack=ManyRuns(400, example=([5.0, 0.0], 1.0), seed=0))
    >>> str(report.verdict), report.finding.bound.epsilon > 2
    ('claim broken', True)
    """
    inputs, targets = (np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part) for part in _pair(data))
    delta, confidence = _validate.open_unit("delta", delta), _validate.open_unit("confidence", confidence)
    claimed = None if claim is None else _validate.non_negative("claim", claim)
    curve = _curve(proven)
    found = (attack or Canaries()).attack(train, (inputs, targets), delta=delta, confidence=confidence, proven=curve)
    return AuditReport(found, claimed, math.inf if curve is None else curve.epsilon(delta), curve)


def recorded(guarantee: Guarantee, report: AuditReport) -> Guarantee:
    """The guarantee with the verdict in it: a note, or an error that a person has to resolve.

    A measured bound is wrong now and then, so it does not take a proven number back. The verdict of an earlier audit is
    replaced.
    """
    said = f"Audited ({report.finding.attack}): {report.finding.bound}; {report.verdict}."
    if report.verdict is not Verdict.CONFLICT:
        return guarantee.with_finding(AUDIT, said)
    # The bound is one test and the proven curve another, each wrong so often.
    luck = f"{200 * (1 - report.finding.bound.confidence):.2g} %"
    doubt = f"Either the program does not do what is proven, or this is bad luck (at most {luck}). Audit again."
    return guarantee.with_finding(AUDIT, f"{said} {doubt}", is_error=True)


def _pair(data: Any) -> tuple[Any, Any]:
    if not isinstance(data, (tuple, list)) or len(data) != 2 or len(data[0]) != len(data[1]):
        raise InvalidArgument("data must be a pair (inputs, targets) of arrays or tensors with as many rows each.")
    return data[0], data[1]


def _curve(proven: Guarantee | PrivacyCurve | None) -> PrivacyCurve | None:
    if not isinstance(proven, Guarantee):
        return proven
    try:
        return curve_of(proven.event)
    except NotProven:
        return None
