"""What a budget allows, beside what other accountants would allow: for people and for machines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tacit.accounting import ACCOUNTANTS, accountant_named, other_accountants
from tacit.cli.statement import (
    Paragraph,
    assumptions,
    attacker_lines,
    certified_sentence,
    label_width,
    relative_excess,
    warn_asymptotic,
)
from tacit.reports.wording import neighbours, step_words, up
from tacit.workflows.findings import Findings, find
from tacit.workflows.search import Alternative, Search, ask

_TITLES = {
    "multiplier": "Multipliers that other accountants would ask for",
    "steps": "Steps that other accountants would allow",
    "lot_size": "Lot sizes that other accountants would allow",
}


@dataclass(frozen=True)
class Allowance:
    """The value that was searched for, what it costs, and the values of the other accountants."""

    search: Search
    by: str
    value: float
    findings: Findings
    others: dict[str, Alternative]

    @staticmethod
    def of(search: Search, by: str) -> Allowance:
        """Solve the search by `by`, and by all others for comparison."""
        value = search.solve(by)
        return Allowance(
            search,
            by,
            value,
            find(search.event(value), delta=search.delta, by=by),
            {other.name: ask(search, other.name) for other in other_accountants(by)},
        )

    @property
    def keeps_budget(self) -> bool:
        """Whether that is certain; only an asymptotic accountant can exceed it."""
        return self.findings.certified[1] <= self.search.epsilon

    def as_json(self) -> dict[str, Any]:
        """What `tacit epsilon --json` says of the run, and what was searched for."""
        return {
            "budget": {"epsilon": self.search.epsilon, "delta": self.search.delta},
            "found": self.search.unknown,
            self.search.unknown: self.value,
            "keeps_budget": self.keeps_budget,
            "others": {
                name: {"value": other.value, "refusal": other.refusal, "certified": _ends(other.certified)}
                for name, other in self.others.items()
            },
            **self.findings.as_json(),
        }

    def paragraphs(self) -> list[Paragraph]:
        """The answer first, then everything beside it."""
        return [
            (self._headline(), self._certainty()),
            (_TITLES[self.search.unknown], self._comparison()),
            ("What an attacker can do", attacker_lines(self.findings.attacker)),
            ("What this assumes", assumptions(self.findings.event)),
        ]

    def _headline(self) -> str:
        search = self.search
        warning = "NOT A GUARANTEE: " if accountant_named(self.by).is_asymptotic else ""
        budget = f"to stay within epsilon {search.epsilon:g} at delta {search.delta:g}"
        return f"{warning}{self._run()}, {budget} ({neighbours(search.adjacency)}, {accountant_named(self.by).label})"

    def _run(self) -> str:
        search = self.search
        match search.unknown:
            case "multiplier":
                return (
                    f"multiplier at least {_shown(self.value)} for {step_words(search.steps)} at rate {search.rate:.5g}"
                )
            case "steps":
                steps = step_words(int(self.value))
                return f"at most {steps} with multiplier {search.multiplier:g} at rate {search.rate:.5g}"
            case "lot_size":
                lots = f"lots of at most {_shown(self.value)} out of {search.population:,}"
                return f"{lots} with multiplier {search.multiplier:g} in {step_words(search.steps)}"

    def _certainty(self) -> list[str]:
        lines = [certified_sentence(self.findings.certified, self.findings.event)]
        accountant = accountant_named(self.by)
        if not accountant.is_asymptotic:
            return lines
        over = relative_excess(self.findings.certified[1], self.search.epsilon)
        verdict = "keeps the budget here" if self.keeps_budget else f"exceeds the budget by {over}"
        return [warn_asymptotic(accountant), *lines, f"So it {verdict}."]

    def _comparison(self) -> list[str]:
        lines = []
        for name, other in self.others.items():
            shown = "none" if other.value is None else _shown(other.value)
            lines.append(f"{ACCOUNTANTS[name].label:<{label_width()}}{shown:>10}  {self._meaning(name, other)}")
        return lines

    def _meaning(self, name: str, other: Alternative) -> str:
        if other.value is None or other.certified is None:
            return str(other.refusal)
        if ACCOUNTANTS[name].is_asymptotic:
            excess = other.certified[1] > self.search.epsilon
            verdict = "over budget" if excess else "within the budget here"
            return f"asymptotic, no guarantee: the certified epsilon is {up(other.certified[1])}, {verdict}"
        change = relative_excess(other.value, self.value) or "0 %"
        more = "more" if other.value >= self.value else "fewer"
        match self.search.unknown:
            case "multiplier":
                return f"within budget, {change} {more.replace('fewer', 'less')} noise"
            case "steps":
                return f"within budget, {change} {more} steps"
            case "lot_size":
                return f"within budget, lots {change} {'larger' if more == 'more' else 'smaller'}"


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else up(value, 6)


def _ends(bounds: tuple[float, float] | None) -> dict[str, float] | None:
    return None if bounds is None or math.isnan(bounds[1]) else {"lower": bounds[0], "upper": bounds[1]}
