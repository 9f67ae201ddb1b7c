"""Scores of models and their 95 % confidence intervals: of one run, and of the mean over several seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor, nn

from tacit._rows import drop_pages
from tacit.accounting import Event, curve, from_json
from tacit.guarantee import finite
from tacit.reports.facts import Facts
from tacit.reports.wording import up

# Standard deviations to the end of a 95 % interval of a normal distribution.
DEVIATIONS = 1.959964
_NOT_SCORES = ("step", "interval", "noise_std", "event")
# Testing needs no gradients, so memory bounds a piece, not the time.
_PIECE = 2_000
_CHOSEN = "This is the best of several trials, chosen by this score: expect a slightly worse score on other examples."


def wilson_interval(share: float, count: float, z: float = DEVIATIONS) -> list[float]:
    """The interval of Wilson 1927 for a share observed among `count` examples; 95 % for the default `z`.

    >>> [round(end, 4) for end in wilson_interval(0.9, 100)]
    [0.8256, 0.9448]
    """
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def interval_of_rmse(squared: Any) -> list[float] | None:
    """A 95 % interval for the root mean squared error, from the spread of the squared errors. None for a single one.

    It depends on individual errors, so it is for public test examples only.

    >>> interval_of_rmse([1.0, 4.0, 9.0, 2.0])
    [0.715..., 2.736...]
    """
    values = np.asarray(squared, dtype=np.float64)
    if values.size < 2:
        return None
    mean, half = values.mean(), DEVIATIONS * values.std(ddof=1) / math.sqrt(values.size)
    return [math.sqrt(max(0.0, mean - half)), math.sqrt(mean + half)]


def interval_of_shares(values: Sequence[float], tested: int) -> list[float]:
    """A 95 % interval for the mean accuracy over other seeds and other test examples, within [0, 1].

    It adds the variance over seeds, which are few, and over test examples, which all seeds share. The sum is turned
    into an effective number of examples (Wilson 1927), with the degrees of freedom of Satterthwaite 1946. With one
    seed it covers test examples only.
    """
    mean = float(np.mean(values))
    binomial = mean * (1 - mean) / tested
    variance, z = _combine_variances(binomial, values)
    return wilson_interval(mean, tested * binomial / variance if variance > 0 else tested, z)


def interval_of_errors(values: Sequence[float], own: Sequence[Sequence[float] | None]) -> list[float] | None:
    """The same for root mean squared errors, which are at least 0; `own` are the intervals over test examples.

    None if there is one seed and no interval over test examples.
    """
    known = [(high - low) / (2 * DEVIATIONS) for low, high in filter(None, own)]
    if not known and len(values) < 2:
        return None
    mean = float(np.mean(values))
    variance, z = _combine_variances(float(np.mean(known)) ** 2 if known else 0.0, values)
    half = z * math.sqrt(variance)
    return [max(0.0, mean - half), mean + half] if math.isfinite(half) else None


def _combine_variances(of_tests: float, values: Sequence[float]) -> tuple[float, float]:
    """The variance of the mean, and the number of standard deviations to a 95 % end."""
    of_seeds = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
    if of_seeds == 0:
        return of_tests, DEVIATIONS
    freedom = (len(values) - 1) * ((of_tests + of_seeds) / of_seeds) ** 2
    return of_tests + of_seeds, float(stats.t.ppf(0.975, freedom))


def is_better(one: Facts, other: Facts) -> bool:
    """Whether the first row's mean is better with 95 % confidence, by both intervals together (Newcombe 1998).

    Both rows share their test examples, so this is conservative.
    """
    if one["interval"] is None or other["interval"] is None:
        return False
    sign = 1 if one["measure"] == "accuracy" else -1
    ahead = sign * (one["mean"] - other["mean"])
    nearest, farthest = (0, 1) if sign == 1 else (1, 0)
    doubt = math.hypot(one["mean"] - one["interval"][nearest], other["interval"][farthest] - other["mean"])
    return bool(ahead > doubt)


def describe_mean(row: Facts) -> str:
    """The mean score of a row with its interval, or how many seeds diverged.

    >>> describe_mean({"measure": "accuracy", "mean": 0.9474, "interval": [0.9213, 0.9655]})
    '94.7 % (92.1 to 96.5)'
    >>> describe_mean({"measure": "rmse", "mean": 64.512, "interval": [60.2, 71.04]})
    '64.51 (60.2 to 71.04)'
    >>> describe_mean({"measure": "rmse", "mean": None, "interval": None, "diverged": 1, "seeds": 3})
    'diverged (1 of 3 seeds)'
    """
    measure, mean, interval = row["measure"], row["mean"], row["interval"]
    if mean is None:
        return f"diverged ({row['diverged']} of {describe_seeds([row['seeds']])})"
    if measure == "accuracy":
        return f"{100 * mean:.1f} % ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
    ends = "" if interval is None else f" ({format_interval(measure, interval)})"
    return f"{format_score(measure, mean)}{ends}"


def describe_seeds(seeds: Collection[int]) -> str:
    """The number of seeds of one or several rows.

    >>> describe_seeds([1]), describe_seeds([3]), describe_seeds([3, 1])
    ('1 seed', '3 seeds', '1 to 3 seeds')
    """
    least, most = min(seeds), max(seeds)
    return f"{'' if least == most else f'{least} to '}{most} seed{'s' if most > 1 else ''}"


def explain_intervals(seeds: Collection[int]) -> str:
    """What the intervals in a table cover, given the numbers of seeds of its rows."""
    if max(seeds) == 1:
        return (
            "In brackets: 95 % confidence intervals over test examples. They do not cover other seeds, because there "
            "is only one, so they are too narrow."
        )
    single = " Rows with one seed have an interval over test examples only, which is too narrow." if 1 in seeds else ""
    return (
        "In brackets: 95 % confidence intervals over seeds and test examples. They are wide where scores differ "
        f"between seeds, because {describe_seeds(seeds)} are few.{single}"
    )


def read_utility(
    metrics: Facts, non_private: Facts | None, *, is_held_out: bool, delta: float | None = None, unit: str = "example"
) -> Facts:
    """The scores of a run, with their intervals. `non_private` is the baseline without privacy.

    The cost of a score on private rows is stated at `delta`, from the event of its release. `unit` is what is
    protected.
    """
    rows = metrics.get("test") or []
    name = next((key for key in (rows[0] if rows else {}) if key not in _NOT_SCORES), None)
    if name is None:
        return {
            **dict.fromkeys(("measure", "final", "interval", "noise_std", "cost", "non_private")),
            "by_step": [],
            "sentences": ["The model was not tested."],
        }
    last, count = rows[-1], metrics.get("test_examples")
    interval = last.get("interval")
    finite = [[row["step"], row[name]] for row in rows if row[name] is not None]
    if interval is None and name == "accuracy" and count and last[name] is not None:
        interval = wilson_interval(last[name], count)
    found = {
        "measure": name,
        "final": last[name],
        "interval": interval,
        "noise_std": last.get("noise_std"),
        "cost": None if metrics.get("tuning") else _find_cost(last.get("event"), delta),
        "by_step": finite,
        "non_private": non_private,
    }
    chosen = [_CHOSEN] if metrics.get("tuning") else []
    return {**found, "sentences": [*_write_sentences(found, count, is_held_out, unit), *chosen]}


def _find_cost(event: Facts | None, delta: float | None) -> Facts | None:
    """The cost of a release; None if nothing was released, or an earlier version did not record it."""
    if event is None or delta is None:
        return None
    return {"event": event, "epsilon": curve(from_json(json.dumps(event))).epsilon(delta), "delta": delta}


def _write_sentences(found: Facts, count: int | None, is_held_out: bool, unit: str) -> list[str]:
    rows, each = ("people", "person") if unit == "person" else ("rows", "row")
    where = f"on held-out {rows}, whose number is private" if is_held_out else "on public examples"
    where = f"on {count:,} public examples" if count else where
    measured = describe_score(found["measure"], found["final"])
    sure = describe_precision(found["measure"], found["interval"], found["noise_std"])
    sentences = [f"{measured[0].upper()}{measured[1:]} {where}{sure}."]
    if is_held_out:
        sentences.append(
            f"The noise protects those {rows}: the score was released once, and the same guarantee covers it. The "
            "interval uses only released and public numbers, so it costs no privacy."
        )
        if found["cost"] is not None:
            cost = f"epsilon {up(found['cost']['epsilon'])} at delta {found['cost']['delta']:g}"
            sentences.append(
                f"The score costs the held-out {rows} {cost}. Each {each} is used either for training or for testing, "
                "so this does not add to the cost of training."
            )
        sentences.append(
            "There is no baseline without privacy, because its score would reveal information about private rows."
        )
    return [*sentences, *_compare_with_baseline(found)]


def _compare_with_baseline(found: Facts) -> list[str]:
    """A caution if the private model scored better than the baseline without privacy."""
    other = found["non_private"]
    if other is None or found["final"] is None:
        return []
    better, worse = (found["final"], other["final"])[:: 1 if found["measure"] == "accuracy" else -1]
    if better <= worse:
        return []
    ends = found["interval"]
    is_chance = ends is not None and ends[0] <= other["final"] <= ends[1]
    chance = ", and the difference is within the confidence interval" if is_chance else ""
    return [
        "The private model scored better than the baseline without privacy. Noise is not the reason: the baseline is "
        f"one training with fixed settings, not the best possible{chance}. Privacy is not free."
    ]


def describe_score(measure: str, value: float | None) -> str:
    """A score in words; None or a number that is not finite means that training diverged.

    >>> describe_score("accuracy", 0.9333), describe_score("rmse", 57.123)
    ('test accuracy 93.33 %', 'root mean squared test error 57.12')
    """
    if value is None or not math.isfinite(value):
        return "no finite test score, because training diverged (use a smaller learning rate),"
    if measure == "accuracy":
        return f"test accuracy {format_score(measure, value)}"
    return f"root mean squared test error {format_score(measure, value)}"


def format_score(measure: str, value: float | None) -> str:
    """A score as a number.

    >>> format_score("accuracy", 1.0), format_score("rmse", 0.12345), format_score("rmse", None)
    ('100.00 %', '0.1235', 'diverged')
    """
    if value is None:
        return "diverged"
    return f"{100 * value:.2f} %" if measure == "accuracy" else f"{value:.4g}"


def format_interval(measure: str, interval: list[float]) -> str:
    """Both ends of an interval.

    >>> format_interval("accuracy", [0.78, 0.98])
    '78.00 % to 98.00 %'
    """
    return " to ".join(format_score(measure, end) for end in interval)


def describe_precision(measure: str, interval: list[float] | None, noise_std: float | None) -> str:
    """The noise on a score, if any, and its confidence interval, to follow the score in a sentence.

    >>> describe_precision("accuracy", [0.9, 1.0], 0.0123)
    ' (noise of standard deviation 1.23 %; 95 % confidence interval 90.00 % to 100.00 %)'
    """
    parts = [] if noise_std is None else [f"noise of standard deviation {format_score(measure, noise_std)}"]
    parts += [] if interval is None else [f"95 % confidence interval {format_interval(measure, interval)}"]
    return f" ({'; '.join(parts)})" if parts else ""


@dataclass(frozen=True)
class Score:
    """The score of a model on test examples: `name` is "accuracy" or "rmse".

    `interval` is its 95 % confidence interval for other examples of the same kind; None if unknown. If the test
    examples are private, `noise_std` is the standard deviation of the noise on the score, and `event` its cost. `auc`
    is the area under the ROC curve, for classes and public examples only.
    """

    name: str
    value: float
    interval: list[float] | None = None
    noise_std: float | None = None
    event: Event | None = None
    auc: float | None = None

    def __str__(self) -> str:
        return describe_score(self.name, self.value)

    def as_row(self) -> dict[str, Any]:
        """The score as metrics.json holds it: without unknown parts, and None if training diverged."""
        event = None if self.event is None else json.loads(self.event.to_json())
        about = {"interval": self.interval, "noise_std": self.noise_std, "event": event}
        return {self.name: finite(self.value), **{name: value for name, value in about.items() if value is not None}}

    @staticmethod
    def of_row(row: dict[str, Any]) -> Score:
        """The score that `as_row` wrote; `ValueError` for another row."""
        about = {name: row[name] for name in ("interval", "noise_std", "event") if name in row}
        [(name, value)] = [(name, value) for name, value in row.items() if name not in about]
        if "event" in about:
            about["event"] = from_json(json.dumps(about["event"]))
        return Score(name, math.nan if value is None else value, **about)


def accuracy_of(model: nn.Module, inputs: Any, labels: Any) -> Score:
    """The share of examples whose own class gets the highest output; NaN if training diverged."""
    outputs = predict_outputs(model, inputs)
    if outputs.isnan().any():
        return Score("accuracy", math.nan, None)
    right = is_right(outputs, torch.from_numpy(labels)).numpy()
    share = float(right.mean(dtype=np.float64))
    interval = wilson_interval(share, len(right)) if len(right) else None
    return Score("accuracy", share, interval, auc=auc_of(outputs.numpy(), labels))


def auc_of(outputs: Any, labels: Any) -> float | None:
    """The area under the ROC curve of [examples, classes] outputs.

    For more than two classes it is the mean over all that occur, each against the rest, by softmax probabilities. None
    if fewer than two classes occur, or if an output is not finite.

    >>> auc_of(np.array([[0.0, -1.0], [0.0, 2.0], [0.0, 1.0]]), np.array([0, 1, 0]))
    1.0
    """
    if not np.isfinite(outputs).all():
        return None
    shares = special.softmax(outputs.astype(np.float64), axis=1)
    # A softmax may round to 1; the difference of two outputs keeps their order.
    shares = outputs[:, 1:] - outputs[:, :1] if outputs.shape[1] == 2 else shares
    names = [1] if outputs.shape[1] == 2 else range(outputs.shape[1])
    areas = [_measure_area(share, labels == name) for name, share in zip(names, shares.T, strict=True)]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else None


def _measure_area(scores: Any, is_member: Any) -> float | None:
    """The share of pairs of a member and another example in which the member scores higher (Mann and Whitney 1947)."""
    members = int(is_member.sum())
    others = len(is_member) - members
    if not members or not others:
        return None
    ranks = stats.rankdata(scores)[is_member].sum()
    return float((ranks - members * (members + 1) / 2) / (members * others))


def is_right(outputs: Tensor, labels: Tensor) -> Tensor:
    """Whether each example's own class has the highest output. Torch's argmax of NaN is 0, so NaN counts as wrong."""
    return (outputs.argmax(1) == labels) & ~outputs.isnan().any(1)


def error_of(errors: Any, unit: float) -> Score:
    """The root mean squared error, in this unit."""
    # If training diverged, squares may overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.square(errors)
        mean = float(squared.mean())
        ends = interval_of_rmse(squared) if math.isfinite(mean) else None
    return Score("rmse", unit * math.sqrt(mean), None if ends is None else [unit * end for end in ends])


def predict_outputs(model: nn.Module, inputs: Any) -> Tensor:
    """The outputs of the model for every input, without gradients."""
    with torch.no_grad():
        rows, outputs = torch.from_numpy(inputs), []
        for start in range(0, len(rows), _PIECE):
            outputs.append(model(rows[start : start + _PIECE]))
            drop_pages(inputs)
        return torch.cat(outputs)
