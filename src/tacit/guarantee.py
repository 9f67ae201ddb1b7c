"""The guarantee of everything that was released: the proven statement first, the method's own claim beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property
from html import escape
from typing import Any

from tacit import _validate
from tacit._old_names import key_of
from tacit.accounting.curve import PrivacyCurve, claim_side, curve
from tacit.accounting.events import Adjacency, EpsilonDelta, Event, Unproven
from tacit.accounting.events import from_json as event_from_json
from tacit.errors import Asymptotic, InvalidArgument, NotAccountable, NotProven

# Version 1, which held assumptions as bare sentences, is still read.
VERSION = 2
_READABLE = (1, VERSION)


class Status(Enum):
    """How well a method's own claim stands."""

    PROVEN = "proven"
    ASYMPTOTIC = "asymptotic"
    UNPROVEN = "unproven"
    REFUTED = "refuted"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Claim:
    """What a method's authors claim. Never a guarantee by itself.

    `doubt` says why the claim is not proven here although the method's claims are: a theorem's condition that fails.
    """

    epsilon: float
    delta: float
    source: str
    doubt: str = ""


@dataclass(frozen=True)
class Assumption:
    """A condition of the proof that the program cannot check. Code compares the `key`, people read the `text`.

    Keys never change their meaning; texts may be reworded. docs/guarantees.md lists the keys.

    >>> print(Assumption("full_batch", "Every example takes part in every step."))
    Every example takes part in every step.
    """

    key: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Guarantee:
    """What is proven about everything that was released, for one `unit` of the data.

    `event` is everything that was released; every proven number is computed from it. `delta` is the one that `str` and
    `to_json` use. `status` rates the method's own claim, not the proven statement; `because` gives the reason.
    `odometer` is what this run spent where parameters depended on releases: not a guarantee.
    `violations` are keys of what makes the claim, or the release, unsound. `errors` must be resolved by a person, such
    as a measured lower bound above the proven one. `findings` are the `notes` and `errors` that a check such as an
    audit added, each with the key of the check.
    `attained` says whether two neighbouring data sets are known for which `event` is exact. Otherwise, as for a stated
    (epsilon, delta) or a sensitivity that is only bounded, the lower bound is 0.
    `local` is what each example's own noisy report guarantees by itself: it holds against whoever collects the reports,
    `event` against whoever sees the result.

    >>> from tacit.accounting import Gaussian
    >>> guarantee = Guarantee(Gaussian(1.1).sampled(256 / 60_000) * 14_062, delta=1e-5)
    >>> round(guarantee.epsilon(delta=1e-5), 3)
    2.382
    """

    event: Event
    delta: float
    method: str = "custom"
    mode: str = "rigorous"
    status: Status = Status.PROVEN
    claim: Claim | None = None
    because: str = ""
    unit: str = "example"
    assumptions: tuple[Assumption, ...] = ()
    unprotected: tuple[str, ...] = ()
    odometer: float | None = None
    violations: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    local: Event | None = None
    attained: bool = True
    findings: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", _validate.open_unit("delta", self.delta))
        # Sampling from outside may still give a sentence; an error here would lose a run that is already charged.
        object.__setattr__(self, "assumptions", tuple(_add_key(each) for each in self.assumptions))

    @property
    def adjacency(self) -> Adjacency:
        """Which neighbouring data sets are compared."""
        return self.event.adjacency

    def epsilon(self, delta: float) -> float:
        """The proven upper bound; infinite where nothing is proven."""
        return self.bounds(delta)[1]

    def bounds(self, delta: float) -> tuple[float, float]:
        """(lower, upper), both certified; (0, inf) where nothing is proven. Lower is 0 unless the event is exact."""
        delta = _validate.open_unit("delta", delta)
        if self._curve is None:
            return 0.0, math.inf
        lower, upper = self._curve.epsilon_bounds(delta)
        return lower if self._is_exact else 0.0, upper

    @cached_property
    def _is_exact(self) -> bool:
        """Whether the event is the worst case itself, and not only an upper bound of it."""
        return self.attained and not any(isinstance(event, EpsilonDelta) for event in self.event.walk())

    def local_epsilon(self, delta: float) -> float:
        """The proven upper bound for each report by itself; infinite where there are none, or nothing is proven."""
        delta = _validate.open_unit("delta", delta)
        try:
            return math.inf if self.local is None else curve(self.local).epsilon(delta)
        except NotProven:
            return math.inf

    @cached_property
    def _curve(self) -> PrivacyCurve | None:
        try:
            return curve(self.event)
        except NotProven:
            return None

    def with_finding(self, key: str, text: str, *, is_error: bool = False) -> Guarantee:
        """The guarantee with the finding of a check, as a note or an error, instead of earlier ones of this key."""
        earlier = [said for known, said in self.findings if known == key]
        notes, errors = (tuple(one for one in some if one not in earlier) for some in (self.notes, self.errors))
        return replace(
            self,
            notes=notes if is_error else (*notes, text),
            errors=(*errors, text) if is_error else errors,
            findings=(*(one for one in self.findings if one[0] != key), (key, text)),
        )

    def _central_limit(self) -> float | None:
        """The asymptotic epsilon, if the method's own claim is asymptotic; else None."""
        if self.status is not Status.ASYMPTOTIC:
            return None
        try:
            return curve(self.event, by="clt").epsilon(self.delta)
        except (NotProven, NotAccountable, Asymptotic):
            return None

    def to_json(self) -> str:
        """The guarantee as JSON; `from_json` gives back an equal one."""
        lower, upper = self.bounds(self.delta)
        proven = {"epsilon_upper": finite(upper), "kind": "none" if math.isinf(upper) else "pld"}
        central_limit, local = self._central_limit(), self.local
        upper_local = finite(self.local_epsilon(self.delta))
        content = {
            "version": VERSION,
            "method": self.method,
            "mode": self.mode,
            "adjacency": self.adjacency.value,
            "unit": self.unit,
            "delta": self.delta,
            "claim": None if self.claim is None else {**asdict(self.claim), "epsilon": finite(self.claim.epsilon)},
            "status": self.status.value,
            "because": self.because,
            "proven": {**proven, "level": "worst_case", "assumptions": [asdict(each) for each in self.assumptions]},
            "odometer": None if self.odometer is None else {"epsilon": finite(self.odometer), "dp_guarantee": False},
            "lower_bound": {"epsilon": lower, "kind": "pld_optimistic"},
            "asymptotic": None if central_limit is None else {"epsilon": finite(central_limit), "kind": "clt"},
            "unprotected": list(self.unprotected),
            "violations": list(self.violations),
            "errors": list(self.errors),
            "notes": list(self.notes),
            "local": None if local is None else {"epsilon_upper": upper_local, "event": json.loads(local.to_json())},
            "attained": self.attained,
            "findings": dict(self.findings),
            "event": json.loads(self.event.to_json()),
        }
        return json.dumps(content, indent=1)

    @staticmethod
    def from_json(text: str) -> Guarantee:
        """The guarantee that `to_json` wrote. Its numbers are computed again from its event, never read."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("version") not in _READABLE:
                raise InvalidArgument(
                    f"This is not a guarantee of version {' or '.join(map(str, _READABLE))}. Read it with the "
                    "version of tacit that wrote it, or a newer one."
                )
            return _read(data)
        except InvalidArgument:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidArgument(f"This is not a guarantee that tacit wrote: {error}.") from error

    def __str__(self) -> str:
        listed = ["Assumptions:", *(f"- {each}" for each in self._assumed)] if self._assumed else []
        return "\n".join([*self.sentences, *listed, *self.notes])

    def _repr_html_(self) -> str:
        """The same for a notebook: the answer in bold, then warnings and meaning; the rest is folded."""
        answer, *others = (escape(each) for each in self.sentences)
        parts = [f"<p><strong>{answer}</strong></p>", *(f"<p>{each}</p>" for each in others)]
        for title, texts in (("Assumptions", self._assumed), ("Notes", self.notes)):
            if texts:
                items = "".join(f"<li>{escape(str(each))}</li>" for each in texts)
                parts.append(f"<details><summary>{title} ({len(texts)})</summary><ul>{items}</ul></details>")
        return "".join(parts)

    @property
    def _assumed(self) -> tuple[Assumption, ...]:
        """The assumptions; none if nothing is proven, as then no statement depends on them."""
        return self.assumptions if math.isfinite(self.epsilon(self.delta)) else ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer, warnings, the meaning and the claim: all that `str` prints before the assumptions."""
        answer, *meaning = self._proven_lines()
        return (
            answer,
            *self._warning_lines(),
            *meaning,
            *self._local_lines(),
            *self._claim_lines(),
            *self._odometer_lines(),
        )

    def _proven_lines(self) -> list[str]:
        compared = f"{self.adjacency}".replace("example", self.unit)
        if math.isinf(self.epsilon(self.delta)):
            reasons = "; ".join(e.reason for e in self.event.walk() if isinstance(e, Unproven))
            why = f", because {reasons}" if reasons else ""
            return [f"Proven: nothing. No finite epsilon is proven at delta {self.delta:g} ({compared}){why}."]
        lower, upper = self.bounds(self.delta)
        shown, factor = round_up(upper), round_up(math.exp(upper)) if upper < 700 else "an astronomical number of"
        return [
            f"Proven: epsilon {shown} at delta {self.delta:g} ({compared}, {self.method}, PLD).",
            f"In words: {_CHANGES[self.adjacency]} any one {self.unit} makes no outcome of this training more than "
            f"e^{shown} = {factor} times as likely, apart from a probability of {self.delta:g}. This "
            "holds against every attacker, whatever they know or compute.",
            f"The true epsilon of the worst case is between {_round(lower, math.floor)} and {shown}."
            if self._is_exact
            else "This is an upper bound; the worst case may be smaller.",
        ]

    def _local_lines(self) -> list[str]:
        if self.local is None:
            return []
        compared = f"{self.local.adjacency}".replace("example", self.unit)
        epsilon = self.local_epsilon(self.delta)
        shown = (
            f"epsilon {round_up(epsilon)} at delta {self.delta:g}" if math.isfinite(epsilon) else "no finite epsilon"
        )
        return [f"Each report by itself (local privacy, against whoever sees it): {shown} ({compared})."]

    def _claim_lines(self) -> list[str]:
        why = f" {self.because} The argument is in {ARGUMENTS}." if self.because else ""
        if self.claim is None:
            return [] if self.status is Status.PROVEN else [f"Status of the method's own claim: {self.status}.{why}"]
        return [
            f"Claimed ({self.claim.source}): epsilon {self.claim.epsilon:.4g} at delta {self.claim.delta:g}. A claim "
            f"is not a guarantee. Status of this claim: {self.status}; {self.verdict}.{why}"
        ]

    @property
    def verdict(self) -> str:
        """How the claim compares with the certified interval; empty without a claim."""
        claim = self.claim
        if claim is None:
            return ""
        bounds = self.bounds(claim.delta)
        if math.isinf(bounds[1]):
            return "there is no proven number to compare it with"
        if self.unprotected:
            return f"the proof leaves out {' and '.join(self.unprotected)}, so the two cannot be compared"
        side = claim_side(claim.epsilon, bounds)
        if side == "inside" and not self._is_exact:
            # The event is an upper bound of the release, such as a box around several vectors.
            better = "valid and " if self.status is Status.PROVEN else ""
            return f"here it is {better}smaller than the certified bound, which is not tight"
        words = {"under": "too small", "inside": "within the certified interval", "over": "on the safe side"}
        return f"here it is {words[side]}"

    def _warning_lines(self) -> list[str]:
        lines = []
        if self.violations:
            lines.append(f"NOT FOR RELEASE: {'; '.join(VIOLATIONS.get(v, v) for v in self.violations)}.")
        if self.errors:
            lines.append(f"To be resolved: {' '.join(self.errors)}")
        if self.unprotected:
            lines.append(f"Not protected: {', '.join(self.unprotected)}.")
        return lines

    def _odometer_lines(self) -> list[str]:
        if self.odometer is None:
            return []
        amount = f"epsilon {self.odometer:.4g}" if math.isfinite(self.odometer) else "no finite epsilon"
        return [f"This run spent {amount}. That is not a guarantee."]


# The page that proves every method's claim, or refutes it by two neighbouring data sets.
ARGUMENTS = "docs/guarantees.md"
FIXED_SEED = "fixed_seed"
# The key of the finding of an audit.
AUDIT = "audit"
# The meaning of each of the `violations`.
VIOLATIONS = {
    FIXED_SEED: "the noise came from a fixed seed, and anyone who knows the seed can subtract it",
    "random_denominator": "sums were divided by the realised lot size, which is private",
    "noise_by_direction": "the noise is smallest in directions in which one example can have its full norm",
    "doubled_sensitivity_of_w": "one example moves the mean gradient by twice the sensitivity assumed by its noise",
    "private_support": "which coordinates were kept depends on private data without noise",
    "private_residual": "what one release left out was added to the next one without noise",
}
_CHANGES = {Adjacency.ADD_REMOVE: "adding or removing", Adjacency.REPLACE_ONE: "replacing"}


def _read(data: dict[str, Any]) -> Guarantee:
    claim, odometer = data["claim"], data["odometer"]
    # Version 1 kept the finding of an audit among other notes.
    said = (*data["errors"], *data["notes"])
    audited = tuple((AUDIT, line) for line in said if line.startswith("Audited ("))
    return Guarantee(
        event=event_from_json(json.dumps(data["event"])),
        delta=data["delta"],
        method=data["method"],
        mode=data["mode"],
        status=Status(data["status"]),
        claim=None if claim is None else Claim(**{**claim, "epsilon": _read_epsilon(claim["epsilon"])}),
        because=data.get("because", ""),
        unit=data["unit"],
        assumptions=tuple(_read_assumption(each) for each in data["proven"]["assumptions"]),
        unprotected=tuple(data["unprotected"]),
        odometer=None if odometer is None else _read_epsilon(odometer["epsilon"]),
        violations=tuple(data["violations"]),
        errors=tuple(data["errors"]),
        notes=tuple(data["notes"]),
        local=None if data.get("local") is None else event_from_json(json.dumps(data["local"]["event"])),
        attained=data.get("attained", True),
        findings=tuple(data["findings"].items()) if "findings" in data else audited,
    )


def _read_assumption(data: Any) -> Assumption:
    if isinstance(data, str):
        return _add_key(data)
    key, text = data["key"], data["text"]
    if not (isinstance(key, str) and isinstance(text, str)):
        raise ValueError(f"an assumption must have a key and a text, got {data!r}")
    return Assumption(key, text)


def _add_key(given: Assumption | str) -> Assumption:
    return given if isinstance(given, Assumption) else Assumption(key_of(given), given)


def finite(value: float) -> float | None:
    """The number, or None for infinity, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def _read_epsilon(value: float | None) -> float:
    return math.inf if value is None else value


def round_up(value: float) -> str:
    """A finite upper bound with four digits, never below the value."""
    return _round(value, math.ceil)


def _round(value: float, towards: Callable[[float], int]) -> str:
    if value == 0:
        return "0"
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{towards(value * scale * (1 - 1e-12 if towards is math.ceil else 1 + 1e-12)) / scale:.4g}"
