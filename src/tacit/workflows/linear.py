"""Linear models with noise on their objective, output, gradients or data: one release, in `tacit train` and `compare`.

These methods draw their noise for the longest row, so every row is first divided by its own norm: that tells nothing
about other rows, and is what the papers do. Their guarantees are about one example replaced by another, so the number
of rows is public and every row is trained on: holding rows out by their hash would change that number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from tacit import _validate
from tacit.accounting import Event
from tacit.datasets import Data
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.estimators import PrivateLinearRegression, PrivateLogisticRegression
from tacit.guarantee import FIXED_SEED, Guarantee, Status
from tacit.ledger import Ledger, Reservation, fingerprint
from tacit.ledger.course import Course
from tacit.methods.registry import find_method
from tacit.reports.scores import Score
from tacit.reports.settings import command_of
from tacit.reports.wording import up
from tacit.training.fit import Callback
from tacit.training.folder import RunFolder, find_free_folder
from tacit.workflows.ledger import explain_over_budget
from tacit.workflows.network import DOUBTFUL, describe_doubt
from tacit.workflows.progress import show_status
from tacit.workflows.scoring import score
from tacit.workflows.settings import (
    NOT_FOR_RELEASE,
    ModeName,
    Settings,
    Table,
    TrainOptions,
    add_assumptions,
    describe_data,
    describe_method,
    describe_run,
    refuse_people,
    resolve_population,
    write_model,
)
from tacit.workflows.text import Paragraph

# Published without a delta.
_PURE = {("output_perturbation", "paper")}
_OF_STEPS = (
    *("--multiplier", "--lot-size", "--steps", "--epochs", "--clip-norm", "--learning-rate"),
    *("--micro-batch", "--momentum", "--views", "--averaging", "--set"),
)


@final
class NormalisedLinear(nn.Module):
    """A linear model of rows divided by their norms, in double precision: one output per class, or one number."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight.double()), nn.Parameter(bias.double())

    def forward(self, inputs: Tensor) -> Tensor:
        """One row of outputs per input."""
        rows = inputs.flatten(1).double()
        norms = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        return nn.functional.linear(rows / norms, self.weight, self.bias)


def normalise_rows(inputs: Any) -> Any:
    """Every row divided by its own norm; a row of zeros stays."""
    rows = inputs.reshape(len(inputs), -1).astype(np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)


def fit_linear(
    data: Data, *, method: str, mode: ModeName, epsilon: float | None, delta: float, seed: int | None
) -> PrivateLogisticRegression | PrivateLinearRegression:
    """The estimator, fitted on the normalised training rows. Its guarantee protects one example replaced."""
    refuse_people(data, f"{method} makes one release of single rows")
    (inputs, targets), shared = data.train, _share(method, mode, epsilon, delta, seed)
    if data.classes is None:
        return PrivateLinearRegression(**shared, target_bound=1.0).fit(normalise_rows(inputs), targets[:, 0])
    model = PrivateLogisticRegression(**shared, classes=list(range(data.classes)))
    return model.fit(normalise_rows(inputs), targets)


def _share(method: str, mode: ModeName, epsilon: float | None, delta: float, seed: int | None) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "delta": None if (method, mode) in _PURE else delta,
        "method": method.removesuffix("_perturbation"),
        "mode": mode,
        "data_norm": 1.0,
        "random_state": seed,
    }


def make_module(fitted: PrivateLogisticRegression | PrivateLinearRegression) -> NormalisedLinear:
    """The same model as the estimator; of two classes, the first one scores 0."""
    weight, bias = np.atleast_2d(fitted.coef_), np.atleast_1d(fitted.intercept_)
    if isinstance(fitted, PrivateLogisticRegression) and len(weight) == 1:
        weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
    return NormalisedLinear(torch.from_numpy(weight.copy()), torch.from_numpy(bias.copy()))


def resolve_linear(data: Data, options: TrainOptions, table: Table | None) -> Settings:
    """The settings of a linear run; `InvalidArgument` for options that belong to training in steps."""
    method = find_method(options.method or "")
    refuse_people(data, f"{method.name} makes one release of single rows")
    given = [name for name in options.list_given() if name in _OF_STEPS]
    if given:
        raise InvalidArgument(f"{method.name} makes one release, without lots and steps. Leave out {', '.join(given)}.")
    if options.model not in (None, "linear") or data.vocabulary:
        unfit = (
            f"--model {options.model}" if options.model not in (None, "linear") else f"{data.name}, words or ratings"
        )
        raise InvalidArgument(f"{method.name} trains linear models of features, and does not fit {unfit}.")
    if options.epsilon is None:
        raise InvalidArgument(f"{method.name} needs --epsilon: the noise follows from it.")
    return Settings.of(
        data,
        options,
        table,
        method=method.name,
        mode=options.mode or "rigorous",
        model="linear",
        epsilon=_validate.positive("epsilon", options.epsilon),
        lot_size=float(resolve_population(data, options)),
        steps=1,
        clip_norm=1.0,
        learning_rate=1.0,
    )


@final
class LinearTraining:
    """A linear model by one release. It is charged before anything is written, and is finished or has not happened."""

    def __init__(self, data: Data, settings: Settings, folder: Path) -> None:
        self.data, self.settings, self.folder = data, settings, RunFolder(folder)
        self.booking: Reservation | None = None
        self.final_score: Score | None = None
        self._model: NormalisedLinear | None = None
        self._proven: Guarantee | None = None

    @classmethod
    def begin(cls, data: Data, options: TrainOptions, table: Table | None) -> Self:
        """Plan a new run. Nothing is released, charged or written yet."""
        settings = resolve_linear(data, options, table)
        return cls(data, settings, options.out or find_free_folder(settings.data))

    @property
    def model(self) -> nn.Module:
        """The linear model, once it is trained."""
        assert self._model is not None
        return self._model

    def _fit(self, epsilon: float | None, delta: float) -> PrivateLogisticRegression | PrivateLinearRegression:
        """The fitted estimator. Nothing of it may leave this process before it is charged."""
        one = self.settings
        return fit_linear(self.data, method=one.method, mode=one.mode, epsilon=epsilon, delta=delta, seed=one.seed)

    def go(self, callbacks: Sequence[Callback] = ()) -> bool:
        """Fit, charge and write. There are no steps, so `callbacks` are not called."""
        with show_status("Training"):
            fitted = self._fit(self.settings.epsilon, self.settings.delta)
        self._model = make_module(fitted)
        self._proven = add_assumptions(fitted.guarantee_, self.settings, self.data)
        self._charge()
        if not self.data.is_test_private:
            self.final_score = score(self._model, self.data)
        self._write()
        return True

    def _charge(self) -> None:
        settings = self.settings
        if settings.ledger is None:
            return
        course = Course.of(self.guarantee().event)
        violations = [FIXED_SEED] if settings.seed is not None else []
        booking = Reservation(
            Ledger(settings.ledger),
            course,
            dataset=settings.ledger_name,
            fingerprint=fingerprint(*self.data.train),
            about={"method": settings.method, "mode": settings.mode, "violations": violations},
        )
        try:
            booking.check()
        except BudgetExceeded as refused:
            assert settings.epsilon is not None

            def cost(epsilon: float, delta: float) -> Event:
                return self._fit(epsilon, delta).guarantee_.event

            where = booking.ledger, settings.ledger_name
            raise explain_over_budget(refused, *where, cost, (settings.epsilon, settings.delta)) from None
        for step in range(course.steps):
            booking.begin(step)
        booking.settle()
        self.booking = booking

    def _write(self) -> None:
        with self.folder.explain_errors():
            self.settings.write(self.folder.path)
        write_model(self.folder, self.data, self.settings, self.model.state_dict(), self.guarantee())
        self.folder.write_metrics(self.metrics())
        self.folder.write_guarantee(self.guarantee())

    def guarantee(self) -> Guarantee:
        """What is proven about the release."""
        assert self._proven is not None
        return self._proven

    def metrics(self) -> dict[str, Any]:
        """Public settings and the score on public examples, in the form of any other run."""
        scores = {} if self.final_score is None else {1: self.final_score}
        about = describe_data(self.data, self.settings.salt)
        return describe_run(self.data, self.settings, scores, steps=1, is_finished=True, data=about)

    def describe_plan(self) -> Paragraph:
        """What is about to happen and what it will cost."""
        settings, entry = self.settings, find_method(self.settings.method)
        assert settings.epsilon is not None
        lines = [
            f"epsilon {up(settings.epsilon)} at delta {settings.delta:g} for one release ({entry.protects}).",
            f"A linear model of {math.prod(self.data.shape):,} inputs; every row is divided by its own norm.",
            "Trains on every row at once: it cannot be stopped half way and resumed.",
            f"Folder: {self.folder.path}",
        ]
        if settings.seed is not None:
            lines.append(NOT_FOR_RELEASE)
        return f"Plan: {describe_method(settings)} on {settings.data}", lines

    def describe_doubt(self) -> str | None:
        """A warning if the method runs as published although its claim is refuted or unproven."""
        one = find_method(self.settings.method)
        if self.settings.mode != "paper" or Status(one.status) not in DOUBTFUL:
            return None
        instead = "The guarantee says what is proven, if anything."
        return describe_doubt(one.name, one.paper, one.status, one.verdict, one.exposed, instead)

    def describe_stop(self, *, is_mid_step: bool) -> str:
        """What was spent, and how to start again."""
        again = f"Start again with: {command_of(asdict(self.settings), with_paths=True)}"
        if self.booking is None:
            return f"Stopped before anything was released: nothing is spent or written. {again}"
        return (
            f"Stopped before the model was written. {self.booking.ledger.path} is charged for it as run "
            f"{self.booking.run}. {again}"
        )
