"""How much noise a budget asks for, how many steps or how large a lot it allows, and which noise law disturbs least."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import tacit
from tacit import _validate
from tacit.accounting import (
    ACCOUNTANTS,
    Adjacency,
    Event,
    Gaussian,
    accountant_named,
    curve,
    lot_size_for,
    multiplier_for,
    other_accountants,
    steps_for,
)
from tacit.errors import InvalidArgument, NotAccountable, NotAchievable
from tacit.reports.wording import near, neighbours, round_up, step_words, up
from tacit.stages.bounds.encode import DrawnVectors, EncodingBox, Profile, Vectors
from tacit.stages.noise import find_family
from tacit.stages.noise.compare import FamilyError, Setting, compare_families
from tacit.workflows.epsilon import (
    Findings,
    assumptions,
    attacker_lines,
    certified_sentence,
    find,
    label_width,
    relative_excess,
    warn_asymptotic,
)
from tacit.workflows.numbers import RunNumbers
from tacit.workflows.text import Paragraph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Unknown = Literal["multiplier", "steps", "lot_size"]

_DIGITS = 6


@dataclass(frozen=True)
class Search:
    """A budget, and a run of which one number is not yet known."""

    unknown: Unknown
    epsilon: float
    delta: float
    adjacency: Adjacency
    multiplier: float = 0.0
    rate: float = 0.0
    steps: int = 0
    population: int = 0

    def solve(self, by: str) -> float:
        """The best value within the budget by this accountant; a multiplier is rounded up to six digits."""
        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency}
        budget |= {"by": by, "allow_asymptotic": True}
        match self.unknown:
            case "multiplier":
                return self._round_multiplier(multiplier_for(rate=self.rate, steps=self.steps, **budget), by)
            case "steps":
                return steps_for(rate=self.rate, multiplier=self.multiplier, **budget)
            case "lot_size":
                return lot_size_for(population=self.population, steps=self.steps, multiplier=self.multiplier, **budget)

    def _round_multiplier(self, found: float, by: str) -> float:
        shown = round_up(found, _DIGITS)
        # More noise is more privacy, but the bounds of two multipliers are computed apart: what is shown is checked.
        while curve(self.event(shown), by).epsilon(self.delta) > self.epsilon:
            shown = round_up(shown * (1 + 10.0**-_DIGITS), _DIGITS)
        return shown

    def event(self, value: float) -> Event:
        """The run, with the unknown number filled in."""
        multiplier = value if self.unknown == "multiplier" else self.multiplier
        rate = value / self.population if self.unknown == "lot_size" else self.rate
        steps = int(value) if self.unknown == "steps" else self.steps
        return Gaussian(multiplier, self.adjacency).sampled(rate) * steps


@dataclass(frozen=True)
class Alternative:
    """What another accountant would have asked for, and what that costs by the certified one."""

    value: float | None
    certified: tuple[float, float] | None = None
    refusal: str | None = None


def ask(search: Search, by: str) -> Alternative:
    """Solve by this accountant and certify the result; a refusal is an answer too."""
    try:
        value = search.solve(by)
    except (NotAccountable, NotAchievable) as refusal:
        return Alternative(None, refusal=str(refusal))
    return Alternative(value, curve(search.event(value)).epsilon_bounds(search.delta))


def search_for(plan: RunNumbers, *, epsilon: float, delta: float) -> Search:
    """The search in which the one number that was not typed is the unknown."""
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    adjacency = plan.neighbours()
    if plan.multiplier is None:
        rate, steps = plan.sampling_rate(), plan.step_count()
        return Search("multiplier", epsilon, delta, adjacency, rate=rate, steps=steps)
    multiplier = _validate.positive("multiplier", plan.multiplier)
    if plan.steps is None and plan.epochs is None:
        rate = plan.sampling_rate()
        return Search("steps", epsilon, delta, adjacency, multiplier=multiplier, rate=rate)
    if plan.lot_size is not None or plan.rate is not None:
        raise InvalidArgument(
            f"Nothing is left to find: {', '.join(plan.given())} and a budget were given. Leave out --multiplier, "
            "--steps or --lot-size; or ask `tacit epsilon` what the run costs."
        )
    if plan.population is None or plan.steps is None:
        raise InvalidArgument(
            "To find the largest lot size, the number of steps and the population must be known "
            f"(got {', '.join(plan.given())}). Give --steps and --population."
        )
    steps = _validate.count("steps", plan.steps)
    population = _validate.count("population", plan.population)
    return Search("lot_size", epsilon, delta, adjacency, multiplier=multiplier, steps=steps, population=population)


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

    def draw(self) -> Figure:
        """The trade-off curve, and epsilon over the steps below the budget."""
        return self.findings.draw(self.search.epsilon)

    def as_json(self) -> dict[str, Any]:
        """What `tacit epsilon --json` says of the run, and what was searched for."""
        return {
            "budget": {"epsilon": self.search.epsilon, "delta": self.search.delta},
            "found": self.search.unknown,
            self.search.unknown: self.value,
            "keeps_budget": self.keeps_budget,
            "others": {
                name: {"value": other.value, "refusal": other.refusal, "certified": _export_bounds(other.certified)}
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
                run = f"for {step_words(search.steps)} at rate {search.rate:.5g}"
                return f"multiplier at least {_format_value(self.value)} {run}"
            case "steps":
                steps = step_words(int(self.value))
                return f"at most {steps} with multiplier {search.multiplier:g} at rate {search.rate:.5g}"
            case "lot_size":
                lots = f"lots of at most {_format_value(self.value)} out of {search.population:,}"
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
            shown = "none" if other.value is None else _format_value(other.value)
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


def _format_value(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else up(value, 6)


def _export_bounds(bounds: tuple[float, float] | None) -> dict[str, float] | None:
    return None if bounds is None or math.isnan(bounds[1]) else {"lower": bounds[0], "upper": bounds[1]}


# More numbers do not fit into memory one by one, and say nothing new.
_MOST_NUMBERS = 1_000_000
_VECTORS: dict[str, Vectors] = {"profile": Profile(), "flat": Profile(levels=1), "drawn": DrawnVectors()}
_ENCODINGS = {
    "profile": "clamped to sorted sizes of normal numbers, in eight levels",
    "flat": "clamped alike in every coordinate",
    "drawn": "clamped to one of 1000 drawn vectors: a box around all of them",
}


def setting_for(plan: RunNumbers, by: str, *, dimension: float | None, encoding: str) -> Setting:
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
class NoiseComparison:
    """Every law at the same certified epsilon, the least expected sum of errors first."""

    setting: Setting
    encoding: str
    epsilon: float
    delta: float
    found: list[FamilyError]

    @staticmethod
    def of(setting: Setting, encoding: str, *, epsilon: float, delta: float) -> NoiseComparison:
        """Calibrate each law."""
        found = compare_families(setting, epsilon=epsilon, delta=delta)
        return NoiseComparison(setting, encoding, float(epsilon), float(delta), found)

    @property
    def gaussian(self) -> FamilyError:
        """What all others are compared with."""
        return next(one for one in self.found if one.name == "gaussian")

    def draw(self) -> Figure:
        """The errors of every law, beside Gaussian noise."""
        # matplotlib takes a second to load, and most commands draw nothing.
        from tacit.reports.noise_plots import draw_families

        return draw_families(self.setting, self.found, epsilon=self.epsilon, delta=self.delta)

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
        head = f"{'law':<16}{'multiplier':>11}{'L1 error':>11}{'':>9}{'L2 error':>11}{'':>9}{'median':>9}"
        rows = [head]
        for one in self.found:
            l1, l2 = _compare_with_gaussian(one.l1, self.gaussian.l1), _compare_with_gaussian(one.l2, self.gaussian.l2)
            rows.append(f"{find_family(one.name).label:<16}{up(one.multiplier):>11}{l1}{l2}{near(one.median, 4):>9}")
        return rows

    def _findings(self) -> list[str]:
        by_l1, by_l2 = min(self.found, key=lambda one: one.l1), min(self.found, key=lambda one: one.l2)
        return [
            f"Least L1 error: {find_family(by_l1.name).label}{_describe_saving(by_l1.l1, self.gaussian.l1)}.",
            f"Least L2 error: {find_family(by_l2.name).label}{_describe_saving(by_l2.l2, self.gaussian.l2)}.",
            "Heavy-tailed or peaked laws help if a release has few numbers. If it has many, only the Fisher "
            "information of a law matters, and at equal information the Gaussian has the smallest variance.",
        ]


_UNITS = [
    "The unit is the largest norm of one example's encoding. L1 is the expected sum of all errors, L2 the root of the "
    "expected sum of their squares. In brackets: the ratio to Gaussian noise. Half of the errors are below the median.",
    "A multiplier is the standard deviation of one error. The Cauchy law has no standard deviation and no expected "
    "error: its multiplier is its scale.",
]


def _compare_with_gaussian(value: float, gaussian: float) -> str:
    if math.isinf(value):
        return f"{'infinite':>11}{'':>9}"
    return f"{near(value):>11}{f'({value / gaussian:.4f})':>9}"


def _describe_saving(value: float, gaussian: float) -> str:
    return "" if value >= gaussian else f", {100 * (1 - value / gaussian):.2g} % below Gaussian noise"
