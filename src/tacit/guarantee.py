"""What the sum of events amounts to: the proven statement first, the method's own claim beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from tacit import _validate
from tacit._old_names import key_of
from tacit.accounting.curve import PrivacyCurve, claim_side, curve
from tacit.accounting.events import Adjacency, EpsilonDelta, Event, Unproven
from tacit.accounting.events import from_json as event_from_json
from tacit.errors import Asymptotic, InvalidArgument, NotAccountable, NotProven

# Version 1 held assumptions as bare sentences. It is still read.
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
    """What a method's authors say of it. Never a guarantee by itself.

    `doubt` says why it is not proven here although its method's claims are: conditions of a theorem that do not hold.
    """

    epsilon: float
    delta: float
    source: str
    doubt: str = ""


@dataclass(frozen=True)
class Assumption:
    """Something that a proof needs and that the program cannot check. Code asks for the `key`, people read the `text`.

    Keys never change their meaning, and texts may be reworded. docs/guarantees.md lists the keys.

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

    `event` is all that was released, and every proven number is read off it. `delta` is the one that `str` and
    `to_json` speak about. `status` rates the method's own claim, not the proven statement; `because` says why.
    `odometer` is what this run happened to spend where parameters depended on releases: not a guarantee.
    `violations` says what keeps the claim, or a release, from being sound; `errors` what a person has to resolve,
    such as a measured lower bound above the proven one. `findings` are those of the `notes` and `errors` that a check
    such as an audit has added, each with the key of the check.
    `attained` says whether two neighbouring data sets are known that see `event` as it is. Where they are not, as for
    an (epsilon, delta) that was only stated or a sensitivity that was only bounded, there is no lower bound but 0.
    `local` is what each example's own report guarantees by itself, where examples are reported with noise on them: it
    holds against whoever collects them, `event` against whoever sees what is made of all of them.

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
        # A sampling that somebody else wrote may still give a sentence, and its run has been paid for by now.
        object.__setattr__(self, "assumptions", tuple(_keyed(each) for each in self.assumptions))

    @property
    def adjacency(self) -> Adjacency:
        """Which neighbouring data sets are compared."""
        return self.event.adjacency

    def epsilon(self, delta: float) -> float:
        """The proven upper bound; infinite where nothing is proven."""
        return self.bounds(delta)[1]

    def bounds(self, delta: float) -> tuple[float, float]:
        """(lower, upper), both certified; (0, inf) where nothing is proven, and 0 below where nothing is known."""
        delta = _validate.open_unit("delta", delta)
        if self._curve is None:
            return 0.0, math.inf
        lower, upper = self._curve.epsilon_bounds(delta)
        return lower if self._is_exact else 0.0, upper

    @cached_property
    def _is_exact(self) -> bool:
        """Whether the event is what the worst case sees, and not only something at least as bad."""
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
        """The same with what a check found: a note, or an error. What an earlier check of this key found is dropped."""
        earlier = [said for known, said in self.findings if known == key]
        notes, errors = (tuple(one for one in some if one not in earlier) for some in (self.notes, self.errors))
        return replace(
            self,
            notes=notes if is_error else (*notes, text),
            errors=(*errors, text) if is_error else errors,
            findings=(*(one for one in self.findings if one[0] != key), (key, text)),
        )

    def _central_limit(self) -> float | None:
        """The asymptotic epsilon, for comparison; None where there is none."""
        try:
            return curve(self.event, by="clt").epsilon(self.delta)
        except (NotProven, NotAccountable, Asymptotic):
            return None

    def to_json(self) -> str:
        """Everything that the guarantee says, for machines; `from_json` gives back an equal one."""
        lower, upper = self.bounds(self.delta)
        proven = {"epsilon_upper": _finite(upper), "kind": "none" if math.isinf(upper) else "pld"}
        central_limit = self._central_limit()
        content = {
            "version": VERSION,
            "method": self.method,
            "mode": self.mode,
            "adjacency": self.adjacency.value,
            "unit": self.unit,
            "delta": self.delta,
            "claim": None if self.claim is None else {**asdict(self.claim), "epsilon": _finite(self.claim.epsilon)},
            "status": self.status.value,
            "because": self.because,
            "proven": {**proven, "level": "worst_case", "assumptions": [asdict(each) for each in self.assumptions]},
            "odometer": None if self.odometer is None else {"epsilon": _finite(self.odometer), "dp_guarantee": False},
            "lower_bound": {"epsilon": lower, "kind": "pld_optimistic"},
            "asymptotic": None if central_limit is None else {"epsilon": _finite(central_limit), "kind": "clt"},
            "unprotected": list(self.unprotected),
            "violations": list(self.violations),
            "errors": list(self.errors),
            "notes": list(self.notes),
            "local": None if self.local is None else self._local_json(self.local),
            "attained": self.attained,
            "findings": dict(self.findings),
            "event": json.loads(self.event.to_json()),
        }
        return json.dumps(content, indent=1)

    def _local_json(self, local: Event) -> dict[str, Any]:
        return {"epsilon_upper": _finite(self.local_epsilon(self.delta)), "event": json.loads(local.to_json())}

    @staticmethod
    def from_json(text: str) -> Guarantee:
        """The guarantee that `to_json` wrote. Its numbers are computed anew from its event, never read."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("version") not in _READABLE:
                raise InvalidArgument(
                    f"This is no guarantee of version {' or '.join(map(str, _READABLE))}. Read it with the tacit that "
                    "wrote it, or a newer one."
                )
            return _read(data)
        except InvalidArgument:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidArgument(f"This is no guarantee that tacit wrote: {error}.") from error

    def __str__(self) -> str:
        # Where nothing is proven there is nothing that would rest on assumptions.
        assumed = self.assumptions if math.isfinite(self.epsilon(self.delta)) else ()
        listed = [f"Assumptions: {' '.join(map(str, assumed))}"] if assumed else []
        return "\n".join([*self.sentences, *listed, *self.notes])

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is proven, claimed, left open and to be resolved: everything that `str` says before the assumptions."""
        return (*self._proven_lines(), *self._local_lines(), *self._claim_lines(), *self._other_lines())

    def _proven_lines(self) -> list[str]:
        compared = f"{self.adjacency}".replace("example", self.unit)
        if math.isinf(self.epsilon(self.delta)):
            reasons = "; ".join(e.reason for e in self.event.walk() if isinstance(e, Unproven))
            why = f", because {reasons}" if reasons else ""
            return [f"Proven: nothing. No finite epsilon is proven at delta {self.delta:g} ({compared}){why}."]
        lower, upper = self.bounds(self.delta)
        shown = _up(upper)
        return [
            f"Proven: epsilon {shown} at delta {self.delta:g} ({compared}, {self.method}, PLD).",
            f"In words: {_NEIGHBOURS[self.adjacency].format(unit=self.unit)}, no outcome of this training becomes "
            f"more than e^{shown} = {_factor(upper)} times as likely, apart from a probability of {self.delta:g}. This "
            "holds whatever an attacker knows or computes.",
            f"The true epsilon of the worst case lies between {_down(lower)} and {shown}."
            if self._is_exact
            else "This is an upper bound; how close the worst case comes to it is not known.",
        ]

    def _local_lines(self) -> list[str]:
        if self.local is None:
            return []
        compared = f"{self.local.adjacency}".replace("example", self.unit)
        epsilon = self.local_epsilon(self.delta)
        shown = f"epsilon {_up(epsilon)} at delta {self.delta:g}" if math.isfinite(epsilon) else "no finite epsilon"
        return [f"Locally, for each report by itself and whoever sees it: {shown} ({compared})."]

    def _claim_lines(self) -> list[str]:
        why = f" {self.because} The argument is in {ARGUMENTS}." if self.because else ""
        if self.claim is None:
            return [] if self.status is Status.PROVEN else [f"Status of the method's own claim: {self.status}.{why}"]
        return [
            f"Claimed ({self.claim.source}): epsilon {self.claim.epsilon:.4g} at delta {self.claim.delta:g}. Status of "
            f"this claim: {self.status}; {self.verdict}.{why} A claim is not a guarantee."
        ]

    @property
    def verdict(self) -> str:
        """Where the claim lies beside the certified interval, if there are both; empty without a claim."""
        claim = self.claim
        if claim is None:
            return ""
        bounds = self.bounds(claim.delta)
        if math.isinf(bounds[1]):
            return "no proven number stands beside it"
        if self.unprotected:
            return f"what is proven leaves out {' and '.join(self.unprotected)}, so the two do not compare"
        side = claim_side(claim.epsilon, bounds)
        if side == "inside" and not self._is_exact:
            # What was released is accounted for by something larger, as by a box around several vectors.
            better = ", and as good" if self.status is Status.PROVEN else ""
            return f"here it is smaller than what is certified{better}"
        words = {"under": "below what is true", "inside": "within the certified interval", "over": "on the safe side"}
        return f"here it is {words[side]}"

    def _other_lines(self) -> list[str]:
        lines = []
        if self.unprotected:
            lines.append(f"Not protected: {', '.join(self.unprotected)}.")
        if self.odometer is not None:
            amount = f"epsilon {self.odometer:.4g}" if math.isfinite(self.odometer) else "no finite epsilon"
            lines.append(f"This run happened to spend {amount}. That is not a guarantee.")
        if self.violations:
            lines.append(f"NOT FOR RELEASE: {'; '.join(VIOLATIONS.get(v, v) for v in self.violations)}.")
        if self.errors:
            lines.append(f"To be resolved: {' '.join(self.errors)}")
        return lines


# Where every method's claim is proven, or refuted by a pair of neighbouring data sets.
ARGUMENTS = "docs/guarantees.md"
FIXED_SEED = "fixed_seed"
# The key of what an audit found.
AUDIT = "audit"
# What each of the `violations` means.
VIOLATIONS = {
    FIXED_SEED: "the noise came from a fixed seed, and whoever knows the seed can take it off again",
    "random_denominator": "sums were divided by the size of the lot that came, which is private",
    "noise_by_direction": "the noise is smallest in directions that one example can use in full",
    "doubled_sensitivity_of_w": "the mean gradient moves by twice what its noise is for",
    "private_support": "which coordinates were kept follows from private data without noise",
    "private_residual": "what was left out of a release went into the next one as it was",
}
_NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "whether or not any one {unit} is in the data",
    Adjacency.REPLACE_ONE: "whichever values any one {unit} in the data has",
}


def _read(data: dict[str, Any]) -> Guarantee:
    claim, odometer = data["claim"], data["odometer"]
    return Guarantee(
        event=event_from_json(json.dumps(data["event"])),
        delta=data["delta"],
        method=data["method"],
        mode=data["mode"],
        status=Status(data["status"]),
        claim=None if claim is None else Claim(**{**claim, "epsilon": _infinite(claim["epsilon"])}),
        because=data.get("because", ""),
        unit=data["unit"],
        assumptions=tuple(_read_assumption(each) for each in data["proven"]["assumptions"]),
        unprotected=tuple(data["unprotected"]),
        odometer=None if odometer is None else _infinite(odometer["epsilon"]),
        violations=tuple(data["violations"]),
        errors=tuple(data["errors"]),
        notes=tuple(data["notes"]),
        local=None if data.get("local") is None else event_from_json(json.dumps(data["local"]["event"])),
        attained=data.get("attained", True),
        findings=tuple(data["findings"].items()) if "findings" in data else _old_findings(data),
    )


def _read_assumption(data: Any) -> Assumption:
    if isinstance(data, str):
        return _keyed(data)
    key, text = data["key"], data["text"]
    if not (isinstance(key, str) and isinstance(text, str)):
        raise ValueError(f"an assumption has a key and a text, not {data!r}")
    return Assumption(key, text)


def _keyed(given: Assumption | str) -> Assumption:
    return given if isinstance(given, Assumption) else Assumption(key_of(given), given)


def _old_findings(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """What an audit found, in a file of version 1, which did not tell it from other notes."""
    return tuple((AUDIT, line) for line in (*data["errors"], *data["notes"]) if line.startswith("Audited ("))


def _finite(value: float) -> float | None:
    """JSON has no infinity; null stands for "no finite bound"."""
    return value if math.isfinite(value) else None


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value


def _up(value: float) -> str:
    """Four digits, never below the value."""
    return _rounded(value, math.ceil)


def _down(value: float) -> str:
    return _rounded(value, math.floor)


def _rounded(value: float, towards: Callable[[float], int]) -> str:
    if value == 0:
        return "0"
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{towards(value * scale * (1 - 1e-12 if towards is math.ceil else 1 + 1e-12)) / scale:.4g}"


def _factor(epsilon: float) -> str:
    return _up(math.exp(epsilon)) if epsilon < 700 else "an astronomical number of"
