"""What a planned run costs: epsilon by every accountant, and what an attacker can do. Loads no torch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tacit
from tacit import _validate
from tacit.accounting import (
    ACCOUNTANTS,
    Accountant,
    Adjacency,
    Certifies,
    Event,
    Gaussian,
    Repeated,
    Sampled,
    accountant_named,
    claim_side,
    curve,
    other_accountants,
)
from tacit.errors import NotAccountable
from tacit.reports.curves import Schedule
from tacit.reports.facts import MU_REGRET, Facts, describe_attacker
from tacit.reports.wording import interval, near, neighbours, percent_near, percent_up, step_words, up
from tacit.workflows.text import Paragraph

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Answer:
    """The epsilon of one accountant, or why it has none; `mu` where all that it says is mu-GDP."""

    epsilon: float | None
    refusal: str | None = None
    mu: float | None = None


@dataclass(frozen=True)
class Findings:
    """One event at one delta, by every accountant.

    `lower`, `estimate` and `upper` are those of the accountant `by`; a bound that it does not certify is None.
    `certified` is always the interval of "pld", and `answers` holds the epsilons of all others. `attacker` is what no
    attack on membership can exceed, by "pld" too.
    """

    event: Event
    delta: float
    by: str
    group: int
    steps: int
    lower: float | None
    estimate: float
    upper: float | None
    certified: tuple[float, float]
    answers: dict[str, Answer]
    attacker: Facts

    def draw(self, budget: float | None = None) -> Figure:
        """The trade-off curve, and epsilon over the steps."""
        # matplotlib takes a second to load, and most commands draw nothing.
        from tacit.reports.plots import draw_privacy

        return draw_privacy(self.event, delta=self.delta, group=self.group, budget=budget)

    def as_json(self) -> dict[str, Any]:
        """The same for machines. What an accountant refuses is None, and `refused` says why."""
        return {
            "tacit": tacit.__version__,
            "event": json.loads(self.event.to_json()),
            "adjacency": self.event.adjacency.value,
            "group": self.group,
            "steps": self.steps,
            "accountant": self.by,
            "is_guarantee": not accountant_named(self.by).is_asymptotic,
            "delta": self.delta,
            "epsilon": {"lower": self.lower, "estimate": self.estimate, "upper": self.upper},
            "certified": {"lower": self.certified[0], "upper": self.certified[1]},
            **{name: self._describe_answer(ACCOUNTANTS[name], answer) for name, answer in self.answers.items()},
            "refused": {name: answer.refusal for name, answer in self.answers.items() if answer.refusal},
            "attacker": {
                **{f"fpr_{one['false_alarms']:g}": one["members_found"] for one in reversed(self.attacker["found"])},
                "advantage": self.attacker["advantage"],
            },
            "mu": math.inf if self.attacker["mu"] is None else self.attacker["mu"],
            "mu_regret": MU_REGRET,
        }

    def _describe_answer(self, accountant: Accountant, answer: Answer) -> Any:
        """An upper bound is one number; an approximation also says on which side of the certified interval it is."""
        if not accountant.is_asymptotic:
            return answer.epsilon
        side = None if answer.epsilon is None else claim_side(answer.epsilon, self.certified)
        return {"mu": answer.mu, "epsilon": answer.epsilon, "side": side}


def find(event: Event, *, delta: float, by: str = "pld", group: float = 1) -> Findings:
    """Ask every accountant; `NotAccountable` only if the chosen one refuses."""
    delta, group = _validate.open_unit("delta", delta), _validate.count("group", group)
    accountant = accountant_named(by)
    certified = curve(event).group(group)
    bounds = certified.epsilon_bounds(delta)
    chosen = certified if by == "pld" else curve(event, by).group(group)
    return Findings(
        event=event,
        delta=delta,
        by=by,
        group=group,
        steps=Schedule.of(event).steps,
        lower=chosen.epsilon_bounds(delta)[0] if accountant.certifies is Certifies.BOTH_SIDES else None,
        estimate=chosen.epsilon_estimate(delta),
        upper=None if accountant.is_asymptotic else chosen.epsilon(delta),
        certified=bounds,
        answers={other.name: _ask(event, other, delta, group) for other in other_accountants()},
        attacker=describe_attacker(certified),
    )


def _ask(event: Event, accountant: Accountant, delta: float, group: int) -> Answer:
    try:
        epsilon = curve(event, accountant.name).group(group).epsilon(delta)
        return Answer(epsilon, mu=None if accountant.mu is None else accountant.mu(event))
    except NotAccountable as refusal:
        return Answer(None, str(refusal))


def paragraphs(findings: Findings, *, population: int | None = None) -> list[Paragraph]:
    """Everything that was found, as titles with lines."""
    optional = [("Note", _list_remarks(findings, population)), ("What this assumes", assumptions(findings.event))]
    return [
        (_write_headline(findings), _describe_certainty(findings)),
        ("Other accountants, for comparison", _compare_accountants(findings)),
        ("What an attacker can do", attacker_lines(findings.attacker, findings.group)),
        *((title, lines) for title, lines in optional if lines),
    ]


def _write_headline(found: Findings) -> str:
    compared = neighbours(found.event.adjacency, found.group)
    setting = f"({compared}, {accountant_named(found.by).label}, {step_words(found.steps)})"
    if found.upper is None:
        return f"NOT A GUARANTEE: epsilon about {near(found.estimate)} at delta {found.delta:g} {setting}"
    if math.isinf(found.upper):
        return f"no finite epsilon is certified at delta {found.delta:g} {setting}"
    return f"epsilon {up(found.upper)} at delta {found.delta:g} {setting}"


def _describe_certainty(found: Findings) -> list[str]:
    lines = [certified_sentence(found.certified, found.event)]
    accountant = accountant_named(found.by)
    match accountant.certifies:
        case Certifies.NOTHING:
            return [warn_asymptotic(accountant), *lines]
        case Certifies.ABOVE:
            return [f"The {accountant.label} bounds epsilon from above only.", *lines]
        case Certifies.BOTH_SIDES:
            return lines


def warn_asymptotic(accountant: Accountant) -> str:
    """What must be said of every number that is an approximation."""
    return f"This is not a guarantee: the {accountant.label} is an approximation, and epsilon may be larger."


def certified_sentence(bounds: tuple[float, float], event: Event) -> str:
    """The interval, and how wide it is."""
    lower, upper = bounds
    whose = "the worst-case epsilon" if _reveals_lots(event) else "the true epsilon"
    if upper == 0:
        return f"Certified: {whose} is 0; delta alone covers all that leaks."
    if math.isinf(lower):
        return "Certified: no finite epsilon holds; outcomes that give an example away are likelier than delta."
    if math.isinf(upper):
        return f"Certified: {whose} is at least {interval(lower, upper)[0]}; no upper bound was found."
    shown = interval(lower, upper)
    width = (upper - lower) / upper
    return f"Certified: {whose} lies in [{shown[0]}, {shown[1]}]; the bounds differ by {width:.1g} of their value."


def _reveals_lots(event: Event) -> bool:
    """Whether the accountants had to assume that an attacker knows which lots held the example."""
    return event.adjacency is Adjacency.REPLACE_ONE and any(isinstance(one, Sampled) for one in event.walk())


def _compare_accountants(found: Findings) -> list[str]:
    lines = []
    for name, answer in found.answers.items():
        shown, meaning = _compare(ACCOUNTANTS[name], answer, found.certified)
        lines.append(f"{ACCOUNTANTS[name].label:<{label_width()}}{shown:>10}  {meaning}")
    return lines


def label_width() -> int:
    """The width of a column of accountants."""
    return max(len(accountant.label) for accountant in ACCOUNTANTS.values()) + 2


def _compare(accountant: Accountant, answer: Answer, certified: tuple[float, float]) -> tuple[str, str]:
    """The number and its meaning."""
    if answer.epsilon is None:
        return "none", str(answer.refusal)
    excess = relative_excess(answer.epsilon, certified[1])
    if not accountant.is_asymptotic:
        return up(answer.epsilon), f"an upper bound, {excess} above the certified one" if excess else "an upper bound"
    side = "agrees with the certified interval"
    if answer.epsilon < certified[0]:
        side = f"under-reports by {relative_excess(answer.epsilon, certified[0])}"
    elif answer.epsilon > certified[1]:
        side = f"over-reports by {excess}" if excess else "over-reports"
    return near(answer.epsilon), f"asymptotic, no guarantee: {side}"


def relative_excess(value: float, base: float) -> str:
    """By how many per cent a value differs from its base; empty where that means nothing."""
    if not (0 < base < math.inf and math.isfinite(value)) or value == base:
        return ""
    return percent_near(abs(value / base - 1))


def attacker_lines(attacker: Facts, group: int = 1) -> list[str]:
    """What the numbers mean to someone whose data is in there."""
    members = "members" if group == 1 else f"groups of {group} members"
    lines = [
        f"With {100 * one['false_alarms']:g} % false alarms an attacker finds at most "
        f"{percent_up(one['members_found'])} of {members}."
        for one in reversed(attacker["found"])
    ]
    lines.append(
        "For every attack, the share of members found exceeds the share of false alarms by at most "
        f"{percent_up(attacker['advantage'])} (the advantage)."
    )
    if attacker["mu"] is None:
        return [*lines, "No mu-GDP holds: some outcomes give an example away for certain."]
    mu = up(attacker["mu"])
    whose = "an example was" if group == 1 else f"{group} examples were"
    return [
        *lines,
        f"mu {mu}: telling whether {whose} there is at least as hard as telling one draw of N(0, 1) from one of "
        f"N({mu}, 1), apart from a probability of {MU_REGRET:g}.",
    ]


def assumptions(event: Event) -> list[str]:
    """What must be true of the training for the numbers to hold; known for sampled Gaussian steps."""
    match event:
        case Repeated(inside=Sampled(inside=Gaussian(multiplier=multiplier), rate=rate)):
            sensitivity = "sensitivity of the sum"
            if event.adjacency is Adjacency.ADD_REMOVE:
                sensitivity += " (the clip norm)"
            noise = f"Each lot's sum gets Gaussian noise of standard deviation {multiplier:g} times the {sensitivity}."
            if rate == 1:
                return ["Every example is in every lot.", noise]
            return [
                f"Each example enters each lot on its own with probability {rate:.5g} (Poisson). "
                "Shuffled lots of fixed size are not covered.",
                noise,
            ]
    return []


def _list_remarks(found: Findings, population: int | None) -> list[str]:
    lines = []
    if found.group > 1:
        lines.append(
            f"All numbers are for any {found.group} examples together, such as those of one person "
            f"who contributed up to {found.group}."
        )
    if found.event.adjacency is Adjacency.REPLACE_ONE:
        lines.append(
            "Replacing an example moves a sum of clipped gradients by up to twice the clip norm; the multiplier is "
            "relative to that. Never compare with add/remove numbers."
        )
    if _reveals_lots(found.event):
        lines.append(
            "Sampling is accounted for as if it were known which lots held the replaced example: the worst case, "
            "and pessimistic for a sum of clipped gradients."
        )
    if population is not None and found.delta * population >= 1:
        lines.append(
            f"delta {found.delta:g} is not below 1/{population:,}: publishing one example in full would meet it. "
            "Choose a smaller delta."
        )
    return lines
