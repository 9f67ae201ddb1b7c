"""A run from its first lot to its last file: stepping, testing, saving, stopping and going on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import torch
from safetensors.torch import save_file
from torch import nn

from tacit.accounting import curve
from tacit.budget import Budget
from tacit.cli.progress import Display, Every, stop_on_interrupt
from tacit.datasets import Data
from tacit.errors import InvalidArgument, NotProven, TacitError
from tacit.guarantee import Assumption, Guarantee
from tacit.ledger import Ledger, salted_fingerprint
from tacit.methods.registry import find_method
from tacit.reports.wording import up
from tacit.stages.mechanism import Mechanism
from tacit.stages.sampling import Poisson
from tacit.training.lots import Lot
from tacit.training.plan import Plan
from tacit.training.run import PrivateRun
from tacit.workflows.descent import Descent, gradients_for
from tacit.workflows.held_out import held_out_score, refuse_unless_charged, with_score
from tacit.workflows.scoring import Score, loss_for, lot_loss, network_for, score
from tacit.workflows.settings import GUARANTEE, METRICS, MODEL, Settings, free_folder

_SECONDS_BETWEEN_SAVES = 30.0


@final
class Training:
    """A private run on a data set with a name, and the folder that it lives in.

    `scores` holds what was measured on public test examples, by step. Nothing else that was measured is kept: a loss
    or a duration would tell about the private ones.
    """

    def __init__(
        self,
        data: Data,
        settings: Settings,
        folder: Path,
        build: Callable[[nn.Module, Descent], PrivateRun],
        scores: dict[int, Score] | None = None,
    ) -> None:
        self.data, self.settings, self.folder = data, settings, folder
        self.model = network_for(settings.model, data)
        self._descent = Descent(self.model, settings)
        self.run = build(self.model, self._descent)
        self._proven: tuple[int, Guarantee] | None = None
        # What was scored after the last save is scored again, on weights that may differ.
        self.scores = {step: one for step, one in (scores or {}).items() if step <= self.run.step}

    @classmethod
    def begin(cls, data: Data, settings: Settings, out: Path | None) -> Self:
        """A run that has not made a step, saved once so that from now on no step is forgotten."""
        if settings.seed is None:
            torch.seed()
        else:
            torch.manual_seed(settings.seed % 2**63)

        def build(model: nn.Module, _: Descent) -> PrivateRun:
            return PrivateRun(
                model,
                loss_for(data),
                data=data.train,
                mechanism=mechanism_of(settings),
                sampling=Poisson(settings.lot_size, settings.population),
                steps=settings.steps,
                budget=_budget(settings, model),
                micro_batch=settings.micro_batch,
                gradients=gradients_for(settings),
                seed=settings.seed,
                ledger=None if settings.ledger is None else Ledger(settings.ledger),
                dataset=None if settings.ledger is None else settings.data,
            )

        training = cls(data, settings, out or free_folder(settings.data), build)
        budget = training.run.plan.budget
        training.settings = replace(settings, epsilon=None if budget is None else budget.epsilon)
        with written(training.folder):
            training.folder.mkdir(parents=True, exist_ok=True)
            training.settings.write(training.folder)
        training.save()
        return training

    @classmethod
    def resume(cls, folder: Path, data_path: Path | None, ledger: str | None = None) -> Self:
        """The run that was saved in the folder, where it stopped; `data_path` and `ledger` say what has moved."""
        settings = Settings.read(folder)
        data = settings.load(data_path)

        def build(model: nn.Module, descent: Descent) -> PrivateRun:
            return PrivateRun.resume(
                folder,
                model,
                loss_for(data),
                data=data.train,
                optimizer=descent.optimizer,
                scheduler=descent.mean,
                gradients=gradients_for(settings),
                ledger=None if ledger is None else Ledger(ledger),
            )

        return cls(data, settings, folder, build, read_scores(folder))

    @property
    def last_score(self) -> Score | None:
        """The score of the weights as they are. None for private test examples, of which `_finish` releases one."""
        if self.run.step not in self.scores and not self.data.is_test_private:
            self.scores[self.run.step] = score(self._descent.answering, self.data)
        return self.scores.get(self.run.step)

    def guarantee(self) -> Guarantee:
        """What the run proves, with what the command took for granted beside it."""
        # Asked for several times after the last step, and each time it would be accounted for anew.
        if self._proven is None or self._proven[0] != self.run.step:
            self._proven = self.run.step, self._fresh_guarantee()
        return with_score(self._proven[1], self.scores.get(self.run.step))

    def _fresh_guarantee(self) -> Guarantee:
        return completed(self.run.guarantee(), self.settings, self.data)

    def go(self) -> bool:
        """Make the steps that are left. False if Ctrl-C came first; the run is saved either way."""
        saving = Every(_SECONDS_BETWEEN_SAVES)
        display = Display(self.run.step, self.run.steps, self.settings.epsilon)
        with stop_on_interrupt() as asked, display:
            for lot in self.run:
                self.run.backward(lot)
                self._descent.step()
                self._show(lot, display)
                if asked() or saving.due():
                    self.save()
                if asked():
                    break
        if len(self.run):
            return False
        self._finish()
        return True

    def _show(self, lot: Lot, display: Display) -> None:
        done, per_epoch = self.run.step, self.settings.steps_per_epoch
        if done % per_epoch == 0:
            display.epoch(done // per_epoch, done, str(self.last_score or ""))
        display.step(done, lambda: lot_loss(self.model, self.run.loss, lot.inputs, lot.targets), self.spent)

    def spent(self) -> str:
        """The epsilon of all steps so far, rounded up."""
        epsilon = self.guarantee().epsilon(self.settings.delta)
        return "unbounded" if math.isinf(epsilon) else up(epsilon, 4)

    def save(self) -> None:
        """Write all that is needed to go on, the guarantee so far and the scores so far."""
        with written(self.folder):
            self.run.save(self.folder, self._descent.optimizer, self._descent.mean)
            write_text(self.folder / GUARANTEE, self.guarantee().to_json())
            write_text(self.folder / METRICS, json.dumps(self.metrics(), indent=1, allow_nan=False))

    def _finish(self) -> None:
        if self.data.is_test_private:
            self._score_held_out()
        self.last_score  # noqa: B018 - it is measured now, to be among the metrics
        self.save()
        about = {"data": self.settings.data, "model": self.settings.model, "method": self.settings.method}
        weights = {name: value.contiguous() for name, value in self._descent.answering.state_dict().items()}
        with written(self.folder):
            save_file(weights, self.folder / MODEL, metadata=about)

    def _score_held_out(self) -> None:
        """Release the one score of private rows; a crash between this note and the next save costs the score."""
        begun = self.folder / "score.begun"
        if self.run.step in self.scores or begun.exists():
            return
        with written(self.folder):
            begun.touch()
        found = held_out_score(self._descent.answering, self.data, self.run, self.settings.seed)
        with_score(self.guarantee(), found)
        refuse_unless_charged(self.run.booking, found)
        if found is not None:
            self.scores[self.run.step] = found

    def metrics(self) -> dict[str, Any]:
        """How well the model did on public examples, and with which settings."""
        return {
            "settings": self.settings.public(),
            "multiplier": self.run.multiplier,
            "steps": self.run.step,
            "is_finished": not len(self.run),
            "test": [{"step": step, **one.as_row()} for step, one in self.scores.items()],
            "test_examples": None if self.data.is_test_private else len(self.data.test[1]),
            "data": self._about_data,
        }

    @cached_property
    def _about_data(self) -> dict[str, Any]:
        return about_data(self.data, self.settings.salt)


def completed(proven: Guarantee, settings: Settings, data: Data) -> Guarantee:
    """What is proven, with what the command took for granted beside it."""
    source = "declared by whoever trained"
    if not settings.is_declared:
        source = f"it follows from the published size of {settings.data}"
    population = Assumption("public_population", f"The population of {settings.population:,} is public: {source}.")
    return replace(proven, assumptions=(*proven.assumptions, population, *data.assumptions))


def about_data(data: Data, salt: str | None) -> dict[str, Any]:
    """What may be told about the data. The fingerprint commits to them, and tells nothing without the salt."""
    return {
        "example": data.example,
        "scaling": data.scaling,
        "source": data.source,
        "classes": data.classes,
        "shape": list(data.shape),
        "test": "held out" if data.is_test_private else "public",
        "fingerprint": None if salt is None else salted_fingerprint(salt, *data.train),
    }


def mechanism_of(settings: Settings) -> Mechanism:
    """The method of the settings, with the noise that was given; without one it is still to be found."""
    method = find_method(settings.method).load()
    made: Mechanism = method(settings.clip_norm, settings.multiplier, mode=settings.mode, **settings.choices)
    return made


def _budget(settings: Settings, model: nn.Module) -> Budget | None:
    """What was typed, or what the typed multiplier costs. None where it costs no finite epsilon."""
    if settings.epsilon is not None:
        return Budget(settings.epsilon, settings.delta)
    mechanism = mechanism_of(settings)
    if mechanism.guide is not None:
        raise InvalidArgument(
            f"--multiplier says how much noise gradients get, but {settings.method} as published also has noise on a "
            "direction w, and its rule finds both from a budget. Give --epsilon in place of --multiplier."
        )
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    sampling = Poisson(settings.lot_size, settings.population)
    planned = Plan(mechanism, sampling, settings.steps, weights).total(settings.steps)
    try:
        epsilon = curve(planned).epsilon(settings.delta)
    except NotProven:
        return None
    if epsilon == 0:
        raise InvalidArgument(
            f"At delta {settings.delta:g} this run costs epsilon 0: delta alone covers all that leaks, which promises "
            f"nobody anything. Choose a --delta far below 1/{settings.population:,}, one over the population."
        )
    return Budget(epsilon, settings.delta) if math.isfinite(epsilon) else None


def read_scores(folder: Path) -> dict[int, Score]:
    """Those of a saved run, by step."""
    try:
        rows = json.loads((folder / METRICS).read_text(encoding="utf-8"))["test"]
        return {int(row.pop("step")): Score.of_row(row) for row in rows}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        # A crash while they were written costs the scores so far, and no more.
        return {}


@contextmanager
def written(folder: Path) -> Iterator[None]:
    """Say in a sentence what keeps the folder from being written."""
    try:
        yield
    except OSError as error:
        raise TacitError(
            f"The run cannot be written to {folder}: {error.strerror or error}. Make room or choose another --out; "
            "steps after the last save will be charged when the run is resumed."
        ) from error


def write_text(path: Path, text: str) -> None:
    """All of the text or nothing of it."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
