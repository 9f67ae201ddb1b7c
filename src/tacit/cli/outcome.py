"""What `tacit train` says: the plan before, the result after, and how to go on if it was stopped."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import tacit
from tacit.accounting import curve
from tacit.cli.balance import standing
from tacit.cli.statement import Paragraph
from tacit.cli.warned import Doubt, is_doubtful
from tacit.datasets import Data
from tacit.errors import NotProven
from tacit.guarantee import Guarantee
from tacit.ledger import Reservation
from tacit.methods.choices import as_texts
from tacit.reports.scores import describe_precision
from tacit.reports.wording import interval, near, neighbours, step_words, up
from tacit.workflows.following import following_words
from tacit.workflows.scoring import Score
from tacit.workflows.training import Training

NOT_FOR_RELEASE = "The seed makes this run repeatable, and its noise removable: what it trains is not for release."


def warning(training: Training) -> str | None:
    """What to know before a method is trained whose claim does not stand; None for all others."""
    method = training.run.mechanism.method
    if not is_doubtful(method):
        return None
    proven = _proven(training)
    consequence = "Nothing is proven about this run." if proven is None else f"Proven is epsilon {proven[1]} instead."
    return Doubt.of(method).line(consequence, "paper")


def _proven(training: Training) -> tuple[str, str] | None:
    """The certified interval of all planned steps; None where nothing is proven."""
    try:
        bounds = curve(training.run.plan.total(training.run.steps)).epsilon_bounds(training.settings.delta)
    except NotProven:
        return None
    return interval(*bounds) if math.isfinite(bounds[1]) else None


def plan(training: Training) -> Paragraph:
    """What is about to happen, what it will cost, and what that takes for granted."""
    settings, run = training.settings, training.run
    weights = sum(parameter.numel() for parameter in training.model.parameters())
    size = "which you declared" if settings.is_declared else f"which follows from the published size of {settings.data}"
    tested = "which rows are held out" if training.data.is_test_private else "the test examples"
    rate = settings.lot_size / settings.population
    lines = [
        *_cost(training),
        f"{step_words(settings.steps)} with lots of {settings.lot_size:g} expected out of {settings.population:,} "
        f"examples (rate {rate:.4g}, {settings.steps * rate:.3g} epochs).",
        f"{settings.model} model with {weights:,} weights, clip norm {settings.clip_norm:g}, learning rate "
        f"{settings.learning_rate:g}{following_words(settings)}.",
        f"Taken as public: the population of {settings.population:,}, {size} and is not counted from your copy "
        f"(--population declares another); how inputs are scaled; {tested}.",
        f"The run lives in {training.folder}.",
    ]
    if run.step:
        lines.insert(0, f"Going on after step {run.step:,} of {run.steps:,}: epsilon {training.spent()} is spent.")
    if run.steps < settings.steps:
        lost = settings.steps - run.steps
        lines.insert(1, f"That is {step_words(lost)} fewer than planned, to pay for those lost since the last save.")
    if settings.seed is not None:
        lines.append(NOT_FOR_RELEASE)
    published = " as published" if settings.mode == "paper" else ""
    named = " ".join([settings.method, *as_texts(settings.choices)])
    return f"Plan: {named}{published} on {settings.data}", lines


def _cost(training: Training) -> list[str]:
    """How much noise, where that comes from, and what is proven of it."""
    settings, run = training.settings, training.run
    if settings.multiplier is not None:
        found = "as given"
    elif settings.mode == "paper":
        found = f"by the paper's rule for a claimed epsilon of {settings.epsilon:g}"
    else:
        found = f"found from the budget of epsilon {settings.epsilon:g}"
    noise = f"multiplier {near(run.multiplier)}, {found}"
    proven = _proven(training)
    if proven is None:
        return [f"{noise}: no finite epsilon is proven at delta {settings.delta:g}"]
    lower, upper = proven
    compared = f"({neighbours(run.plan.total(run.steps).adjacency)}, PLD, {step_words(settings.steps)})"
    return [
        f"{noise}: epsilon {upper} at delta {settings.delta:g} {compared}",
        f"Certified: the true epsilon lies in [{lower}, {upper}].",
    ]


def outcome(training: Training) -> list[Paragraph]:
    """The score, the guarantee in sentences, and where everything is."""
    return result(training.data, training.last_score, training.guarantee(), training.folder, training.run.booking)


def result(
    data: Data, score: Score | None, guarantee: Guarantee, folder: Path, booking: Reservation | None
) -> list[Paragraph]:
    """The same of any training on a data set with a name."""
    charged = [] if booking is None else [("Ledger", [standing(booking.ledger, data.name, booking.run)])]
    return [
        (_tested(data, score), []),
        ("Guarantee", str(guarantee).splitlines()),
        *charged,
        ("Files", [f"{folder}: model.safetensors, guarantee.json, metrics.json"]),
    ]


def _tested(data: Data, score: Score | None) -> str:
    if not data.is_test_private:
        return f"{score} on {len(data.test[1]):,} public examples{_how_sure(score)}"
    if not data.is_tested:
        return "No score: no rows are held out, as declared"
    if score is None:
        return "No score: on private rows one can be released with Gaussian noise only, and once"
    return f"{score} on rows held out, measured with noise{_how_sure(score)}"


def _how_sure(score: Score | None) -> str:
    return "" if score is None else describe_precision(score.name, score.interval, score.noise_std)


def stopped(training: Training, command: str) -> str:
    """Where the run was stopped, what that costs, and the command that goes on."""
    run, settings = training.run, training.settings
    of = "" if settings.epsilon is None else f" of {up(settings.epsilon)}"
    return (
        f"Stopped after step {run.step:,} of {run.steps:,} and saved. Spent so far: epsilon {training.spent()}{of} at "
        f"delta {settings.delta:g}; if it was for what you saw that you stopped, count all of it."
        f"{reserved(run.booking)} Go on with: {command}"
    )


def reserved(booking: Reservation | None) -> str:
    """What the ledger still keeps for a run that was stopped, and how to give that back."""
    if booking is None:
        return ""
    settle = shlex.join(["tacit", "ledger", "settle", str(booking.ledger.path), booking.run])
    return f" The ledger keeps the rest reserved; if you will not go on: {settle}."


def as_json(training: Training) -> dict[str, Any]:
    """The same for machines."""
    return result_json(training.folder, training.metrics(), training.last_score, training.guarantee())


def result_json(folder: Path, metrics: dict[str, Any], score: Score | None, guarantee: Guarantee) -> dict[str, Any]:
    """The same of any training."""
    return {
        "tacit": tacit.__version__,
        "folder": str(folder),
        **metrics,
        "score": score and score.as_row(),
        "guarantee": json.loads(guarantee.to_json()),
    }
