"""The answer of a comparison: which method to use at each epsilon, and what privacy costs.

The terminal, the page and `Comparison.answer` all show this one object. Guarantees about one example added or removed
and about one replaced are never compared with each other. Only forms with a proof for their epsilon can be chosen, and
only if they beat a constant prediction.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import break_command, split_command
from tacit.reports.cells import RECIPE, is_proven
from tacit.reports.facts import Facts
from tacit.reports.scores import is_better

# What fits on the screen of a terminal.
LINES, WIDTH = 25, 80
# The multiplier is found from the target epsilon up to this relative error.
_ROUNDING = 1e-6
HIDES = {
    "add_remove": "whether any one {example} is in the data (add/remove)",
    "replace_one": "the values of any one {example} (replace one)",
}
_Table = list[tuple[str, ...]]


def competes(row: Facts) -> bool:
    """Whether a row can be chosen: its certified epsilon is at most its target, and it has a score.

    The certified epsilon of a published form may be larger, and a row that diverged has no score.
    """
    if row["epsilon"] is None or row["mean"] is None or not is_proven(row):
        return False
    return bool(row["certified"] <= row["epsilon"] * (1 + _ROUNDING))


@dataclass(frozen=True)
class Level:
    """A model without privacy: its score with a 95 % interval, and its AUC if it predicts classes."""

    method: str
    score: float
    interval: tuple[float, float] | None
    auc: float | None


@dataclass(frozen=True)
class Choice:
    """The method to use at one epsilon and adjacency; None if no method beats a constant prediction.

    `cost` is what privacy costs against the baseline, in the unit of the score; negative if the private model scored
    better. No test at 95 % confidence can tell the `ties` from the method.
    """

    epsilon: float
    adjacency: str
    method: str | None
    score: float | None = None
    interval: tuple[float, float] | None = None
    auc: float | None = None
    cost: float | None = None
    ties: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a comparison says. `choices` is empty while results are missing; `caveat` then says which.

    `baseline` is the best model without privacy. `constant` is the accuracy of the majority class, or the standard
    deviation of the target. `data` is what `tacit train` takes: a name, or a table with its options. `refuted` names
    the methods whose published claim does not hold.
    """

    data: str
    example: str
    measure: str
    delta: float
    seeds: int
    baseline: Level | None
    constant: float | None
    choices: tuple[Choice, ...]
    methods: tuple[str, ...]
    refuted: tuple[str, ...]
    caveat: str | None = None

    @staticmethod
    def of(facts: Facts) -> Answer:
        """Read the answer off the rows of a comparison."""
        plain = [row for row in facts["rows"] if row["epsilon"] is None and row["mean"] is not None]
        best = max(plain, key=lambda row: _find_sign(row) * row["mean"], default=None)
        rows = [row for row in facts["rows"] if competes(row)]
        pairs = sorted({(row["adjacency"], row["epsilon"]) for row in rows})
        is_finished = facts["progress"]["is_finished"]
        return Answer(
            data=_describe_source(facts),
            example=facts["data"]["example"],
            measure=facts["measure"],
            delta=facts["delta"],
            seeds=min((row["seeds"] for row in rows), default=0),
            baseline=None if best is None else Level(best["label"], best["mean"], _read_ends(best), best["auc"]),
            constant=facts["data"].get("constant"),
            choices=tuple(_choose(rows, *pair, best) for pair in pairs) if is_finished else (),
            methods=tuple(one["name"] for one in facts["methods"]),
            refuted=tuple(one["name"] for one in facts["methods"] if one["status"] == "refuted"),
            caveat=facts["progress"]["caveat"],
        )

    @property
    def adjacencies(self) -> tuple[str, ...]:
        """The adjacencies with a choice."""
        return tuple(dict.fromkeys(choice.adjacency for choice in self.choices))

    def choices_for(self, adjacency: str) -> tuple[Choice, ...]:
        """The choices at every epsilon for one adjacency."""
        return tuple(choice for choice in self.choices if choice.adjacency == adjacency)

    def describe_score(self, value: float) -> str:
        """A score with its unit."""
        return f"{100 * value:.1f} %" if self.measure == "accuracy" else f"{value:.4g}"

    def describe_interval(self, ends: tuple[float, float]) -> str:
        """Both ends, without the unit."""
        return " to ".join(f"{100 * end:.1f}" if self.measure == "accuracy" else f"{end:.4g}" for end in ends)

    def describe_cost(self, choice: Choice) -> str:
        """What privacy costs, as the difference of the numbers that are shown."""
        if choice.cost is None or choice.score is None or self.baseline is None:
            return "not known"
        if self.measure != "accuracy":
            return f"{choice.cost:.3g} more" if choice.cost > 0 else "nothing"
        points = round(100 * self.baseline.score, 1) - round(100 * choice.score, 1)
        return f"{points:.1f} points" if points > 0.05 else "nothing"

    @property
    def constant_label(self) -> str:
        """The name of the constant prediction."""
        return "Majority class" if self.measure == "accuracy" else "Spread of target"

    def hides(self, adjacency: str) -> str:
        """What a guarantee about this adjacency hides."""
        return HIDES[adjacency].format(example=self.example)

    def describe_ties(self, adjacency: str) -> str:
        """Which methods are statistically tied with the chosen ones."""
        choices = [choice for choice in self.choices_for(adjacency) if choice.method is not None]
        by_ties: dict[tuple[str, ...], list[str]] = {}
        for choice in choices:
            by_ties.setdefault(choice.ties, []).append(f"{choice.epsilon:g}")
        if not any(by_ties):
            return "No other method is statistically tied with the best one." if choices else ""
        if len(by_ties) == 1:
            return f"Statistically tied with the best one: {', '.join(choices[0].ties)}."
        parts = [f"at {', '.join(at)}: {', '.join(ties) or 'none'}" for ties, at in by_ties.items()]
        return f"Statistically tied with the best one {'; '.join(parts)}."

    def describe_claims(self) -> str:
        """How many published claims do not hold, by name."""
        if not self.refuted:
            of = ", ".join(self.methods)
            return f"Published privacy claims that do not hold: none of {len(self.methods)} ({of})." if of else ""
        return (
            f"Published privacy claims that do not hold: {len(self.refuted)} of {len(self.methods)} "
            f"({', '.join(self.refuted)}). Here each has a repaired form, with a proof."
        )

    def lines(self, page: Path | None = None) -> list[str]:
        """The answer as at most 25 lines of at most 80 columns; only a longer word, such as a path, is wider.

        If there are many epsilons, the ties are left to the page first, then some of the epsilons.
        """
        count = max((len(self.choices_for(one)) for one in self.adjacencies), default=0)
        for has_ties, most in [(True, count), *((False, most) for most in range(count, 0, -1))]:
            found = list(self._lines(has_ties, most, page))
            if len(found) <= LINES:
                break
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _lines(self, has_ties: bool, most: int, page: Path | None) -> Iterator[str]:
        yield from align(self._levels(), indent="")
        if self.caveat is not None:
            yield from _wrap(f"Unfinished: {self.caveat}")
        for adjacency in self.adjacencies:
            yield from _wrap(f"With privacy that hides {self.hides(adjacency)}:")
            yield from align(self._table(_spread(self.choices_for(adjacency), most)))
            if has_ties:
                yield from _wrap(self.describe_ties(adjacency), "  ")
        if self.choices:
            is_whole = all(len(self.choices_for(one)) <= most for one in self.adjacencies)
            left_out = "" if is_whole else " The page has every epsilon."
            chance = "A cost smaller than its 95 % interval may be chance."
            yield from _wrap(f"Smaller epsilon: more privacy. {chance}{left_out}")
        if len(self.adjacencies) > 1:
            yield from _wrap("The two tables protect different things: do not compare them.")
        if self.choices and self.seeds == 1:
            yield from _wrap("With one seed, intervals and ties leave out the randomness of training: try --seeds 3.")
        if any(choice.method == RECIPE for choice in self.choices):
            yield from _wrap(f"recipe: tacit chooses the settings. Train it: tacit train {self.data} --epsilon 1")
        yield from _wrap(self.describe_claims())
        if page is not None:
            yield f"Page: {page}"

    def _levels(self) -> _Table:
        """The references without privacy."""
        found: _Table = []
        if self.baseline is not None:
            about = _format_auc(self.baseline.auc) if self.measure == "accuracy" else "RMSE"
            found.append(("Without privacy", self._score(self.baseline), about))
        if self.constant is not None:
            about = _format_auc(0.5) if self.measure == "accuracy" else "standard deviation"
            found.append((self.constant_label, self.describe_score(self.constant), about))
        return found

    def _score(self, one: Level | Choice) -> str:
        assert one.score is not None
        ends = "" if one.interval is None else f" ({self.describe_interval(one.interval)})"
        return f"{self.describe_score(one.score)}{ends}"

    def _table(self, choices: tuple[Choice, ...]) -> _Table:
        is_share = self.measure == "accuracy"
        # Whatever does not fit is left out from the right.
        head = ("epsilon", "use", "accuracy (interval)" if is_share else "RMSE (interval)", "privacy costs")
        rows: _Table = [(*head, *(["AUC"] if is_share else []))]
        for choice in choices:
            at = f"{choice.epsilon:g}"
            if choice.method is None:
                rows.append((at, "none", f"none beats {'majority' if is_share else 'spread'}", "", *([""] * is_share)))
            else:
                auc = [_format_auc(choice.auc).removeprefix("AUC ")] if is_share else []
                rows.append((at, choice.method, self._score(choice), self.describe_cost(choice), *auc))
        return rows


def _choose(rows: list[Facts], adjacency: str, epsilon: float, baseline: Facts | None) -> Choice:
    here = [row for row in rows if (row["epsilon"], row["adjacency"]) == (epsilon, adjacency) and not row["is_idle"]]
    if not here:
        return Choice(epsilon, adjacency, None)
    best = max(here, key=lambda row: _find_sign(row) * row["mean"])
    return Choice(
        epsilon,
        adjacency,
        short_label(best),
        best["mean"],
        _read_ends(best),
        best["auc"],
        None if baseline is None else _find_sign(best) * (baseline["mean"] - best["mean"]),
        tuple(short_label(row) for row in here if row is not best and not is_better(best, row)),
    )


def short_label(row: Facts) -> str:
    """The method as it is typed, and how it differs: that a form is repaired is said once for all."""
    label: str = row["label"]
    return label.removesuffix(" (repaired)")


def _find_sign(row: Facts) -> float:
    return 1.0 if row["measure"] == "accuracy" else -1.0


def _read_ends(row: Facts) -> tuple[float, float] | None:
    return None if row["interval"] is None else (row["interval"][0], row["interval"][1])


def _format_auc(area: float | None) -> str:
    return "" if area is None else f"AUC {area:.3f}"


def _spread(choices: tuple[Choice, ...], most: int) -> tuple[Choice, ...]:
    """At most so many of the choices, from the first to the last at even distances."""
    if len(choices) <= most:
        return choices
    places = {round(place * (len(choices) - 1) / max(most - 1, 1)) for place in range(most)}
    return tuple(choices[place] for place in sorted(places))


def align(table: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Lines with columns of equal width; columns are left out from the right until the rest fits."""
    if not table:
        return []
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    while len(indent) + sum(widths) + 2 * (len(widths) - 1) > WIDTH and len(widths) > 1:
        widths.pop()
    return [
        indent + "  ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=False)).rstrip() for row in table
    ]


def _describe_source(facts: Facts) -> str:
    """The data set, or the table with its target and bounds, as they were typed."""
    if not facts["data"].get("is_own"):
        return str(facts["data"]["name"])
    typed = shlex.split(next(iter(facts.get("commands", ())), ""))
    if not {"--target", "--bounds"} <= set(typed) or typed[2].startswith("-"):
        return "TABLE --target COLUMN --bounds FILE"
    options = [word for name in ("--target", "--bounds") for word in typed[typed.index(name) :][:2]]
    return shlex.join([typed[2], *options])


def _wrap(text: str, indent: str = "") -> list[str]:
    """Lines that break no word; a command that does not fit gets lines of its own, which can be copied."""
    parts = None if len(indent + text) <= WIDTH else split_command(text)
    if parts is not None:
        before, command, after = parts
        lines = [f"{indent}  {line}" for line in break_command(command, WIDTH - len(indent) - 2)]
        return [*_wrap(before, indent), *lines, *_wrap(after, indent)]
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
