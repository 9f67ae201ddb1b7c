"""The private training of a network: stepping, testing, saving and resuming, and how it is described."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import torch
from torch import nn

from tacit.accounting import Event, curve
from tacit.budget import Budget
from tacit.datasets import Data
from tacit.errors import InvalidArgument, NotProven
from tacit.guarantee import Guarantee, Status
from tacit.ledger import Ledger, Reservation
from tacit.methods.registry import find_method
from tacit.reports.scores import Score
from tacit.reports.wording import interval, near, neighbours, step_words, up
from tacit.stages.mechanism import Mechanism
from tacit.stages.more_samplings import CyclicPoisson
from tacit.stages.noise import BandedNoise
from tacit.stages.sampling import Poisson
from tacit.training.fit import Callback, Step, fit
from tacit.training.folder import RunFolder, find_free_folder
from tacit.training.plan import Plan
from tacit.training.run import PrivateRun
from tacit.types import Sampling
from tacit.workflows.defaults import network_for, refuse_unless_fitting, resolve_settings
from tacit.workflows.descent import Descent, choose_gradients, describe_descent
from tacit.workflows.progress import (
    SECONDS_BETWEEN_SAVES,
    Timer,
    TrainingProgress,
    stop_on_interrupt,
)
from tacit.workflows.scoring import (
    held_out_score,
    loss_for,
    measure_lot_loss,
    read_scores,
    refuse_unless_charged,
    score,
    with_score,
)
from tacit.workflows.settings import (
    NOT_FOR_RELEASE,
    Settings,
    Table,
    TrainOptions,
    add_assumptions,
    describe_data,
    describe_method,
    describe_reservation,
    describe_run,
    write_model,
    write_resume_command,
)
from tacit.workflows.text import Paragraph

DOUBTFUL = (Status.REFUTED, Status.UNPROVEN)


@final
class NetworkTraining:
    """The private training of a network, and its folder.

    `scores` holds the scores on public test examples, by step. Nothing else that was measured is kept: a loss or a
    duration would tell about private examples.
    """

    def __init__(
        self,
        data: Data,
        settings: Settings,
        folder: Path,
        build: Callable[[nn.Module, Descent], PrivateRun],
        scores: dict[int, Score] | None = None,
    ) -> None:
        self.data, self.settings, self.folder = data, settings, RunFolder(folder)
        network = network_for(settings.model, data)
        self._descent = Descent(network, settings)
        self.run = build(network, self._descent)
        self._proven: tuple[int, Guarantee] | None = None
        # Scores after the last save are measured again: the weights may differ.
        self.scores = {step: one for step, one in (scores or {}).items() if step <= self.run.step}

    @classmethod
    def begin(cls, data: Data, options: TrainOptions, table: Table | None = None) -> Self:
        """Plan a run and save it once, so that from now on no step is forgotten."""
        settings = resolve_settings(data, options, table)
        refuse_unless_fitting(settings.model, data)
        set_torch_seed(settings.seed)

        def build(model: nn.Module, _: Descent) -> PrivateRun:
            ledger = None if settings.ledger is None else Ledger(settings.ledger)
            return make_run(
                data, settings, model, seed=settings.seed, budget=_resolve_budget(settings, model), ledger=ledger
            )

        training = cls(data, settings, options.out or find_free_folder(settings.data), build)
        budget = training.run.plan.budget
        training.settings = replace(settings, epsilon=None if budget is None else budget.epsilon)
        with training.folder.explain_errors():
            training.settings.write(training.folder.path)
        training.save()
        return training

    @staticmethod
    def plan_cost(data: Data, options: TrainOptions) -> Event:
        """What a run with these options would release."""
        settings = resolve_settings(data, options)
        model = network_for(settings.model, data)
        plan = make_plan(settings, model, _resolve_budget(settings, model)).calibrate()
        return plan.total(plan.steps)

    @classmethod
    def resume(cls, folder: Path, settings: Settings, data: Data, options: TrainOptions) -> Self:
        """Resume the run that was saved in the folder."""

        def build(model: nn.Module, descent: Descent) -> PrivateRun:
            return PrivateRun.resume(
                folder,
                model,
                loss_for(data),
                data=data.train,
                optimizer=descent.optimizer,
                scheduler=descent.mean,
                gradients=choose_gradients(settings),
                unit=data.people.get("unit"),
                ledger=None if options.ledger is None else Ledger(options.ledger),
            )

        return cls(data, settings, folder, build, read_scores(RunFolder(folder)))

    @property
    def model(self) -> nn.Module:
        """The model that is handed out: the running mean of the weights, if there is one."""
        return self._descent.averaged_model

    @property
    def booking(self) -> Reservation | None:
        """The entry in the ledger, if there is one."""
        return self.run.booking

    @property
    def final_score(self) -> Score | None:
        """The score of the present weights. For private test examples, the one that `go` released at the end."""
        if self.run.step not in self.scores and not self.data.is_test_private:
            self.scores[self.run.step] = score(self.model, self.data)
        return self.scores.get(self.run.step)

    def guarantee(self) -> Guarantee:
        """What is proven about all steps so far, and what that assumes about data and population."""
        if self._proven is None or self._proven[0] != self.run.step:
            self._proven = self.run.step, add_assumptions(self.run.guarantee(), self.settings, self.data)
        return with_score(self._proven[1], self.scores.get(self.run.step))

    def go(self, callbacks: Sequence[Callback] = ()) -> bool:
        """Make the remaining steps. False if Ctrl-C came first; the run is saved either way."""
        timer = Timer(SECONDS_BETWEEN_SAVES)
        progress = TrainingProgress(self.run.step, self.run.steps, self.settings.epsilon)
        with stop_on_interrupt() as is_asked, progress:

            def show_and_save(step: Step) -> bool:
                self._show(step, progress)
                if is_asked() or timer.is_due():
                    self.save()
                return is_asked()

            if not fit(self.run, self._descent, [*callbacks, show_and_save]):
                self.save()
                return False
        self._finish()
        return True

    def _show(self, step: Step, progress: TrainingProgress) -> None:
        per_epoch = self.settings.steps_per_epoch
        if step.number % per_epoch == 0:
            progress.show_score(step.number // per_epoch, step.number, str(self.final_score or ""))
        lot, model = step.lot, self.run.model
        progress.show_step(
            step.number, lambda: measure_lot_loss(model, self.run.loss, lot.inputs, lot.targets), self._describe_spent
        )

    def _describe_spent(self) -> str:
        epsilon = self.guarantee().epsilon(self.settings.delta)
        return "unbounded" if math.isinf(epsilon) else up(epsilon, 4)

    def save(self) -> None:
        """Write everything that resuming needs, the guarantee and the scores so far."""
        with self.folder.explain_errors():
            self.run.save(self.folder.path, self._descent.optimizer, self._descent.mean)
        self.folder.write_guarantee(self.guarantee())
        self.folder.write_metrics(self.metrics())

    def _finish(self) -> None:
        if self.data.is_test_private:
            self._score_held_out()
        self.final_score  # noqa: B018 - measured now, to be among the metrics
        self.save()
        write_model(self.folder, self.data, self.settings, self.model.state_dict(), self.guarantee())

    def _score_held_out(self) -> None:
        """Release the one score of private rows. A crash after the mark and before the next save costs the score."""
        if self.run.step in self.scores or self.folder.score_begun.exists():
            return
        with self.folder.explain_errors():
            self.folder.score_begun.touch()
        found = held_out_score(self.model, self.data, self.run, self.settings.seed)
        with_score(self.guarantee(), found)
        refuse_unless_charged(self.run.booking, found)
        if found is not None:
            self.scores[self.run.step] = found

    def metrics(self) -> dict[str, Any]:
        """Public settings, and the scores on public examples."""
        about = {"multiplier": self.run.multiplier, "data": self._data_facts}
        steps, is_finished = self.run.step, not len(self.run)
        return describe_run(self.data, self.settings, self.scores, steps=steps, is_finished=is_finished, **about)

    @cached_property
    def _data_facts(self) -> dict[str, Any]:
        return describe_data(self.data, self.settings.salt)

    def describe_plan(self) -> Paragraph:
        """What is about to happen, what it will cost, and what is taken as public."""
        settings, run = self.settings, self.run
        weights = sum(parameter.numel() for parameter in run.model.parameters())
        size = "declared by you" if settings.is_declared else f"the published size of {settings.data}"
        tested = "which rows are held out" if self.data.is_test_private else "the test examples"
        rate = settings.lot_size / settings.population
        lines = [
            *_describe_cost(settings, run),
            f"{step_words(settings.steps)} with lots of {settings.lot_size:g} expected out of {settings.population:,} "
            f"{self.data.units_name} (rate {rate:.4g}, {settings.steps * rate:.3g} epochs).",
            f"{settings.model} model with {weights:,} weights, clip norm {settings.clip_norm:g}, learning rate "
            f"{settings.learning_rate:g}{describe_descent(settings)}.",
            f"Taken as public: the population of {settings.population:,} ({size}, not counted from your copy; "
            f"--population declares another), how inputs are scaled, {tested}.",
            f"Folder: {self.folder.path}",
        ]
        if run.step:
            lines.insert(
                0, f"Resuming after step {run.step:,} of {run.steps:,}: epsilon {self._describe_spent()} is spent."
            )
        if run.steps < settings.steps:
            lost = settings.steps - run.steps
            lines.insert(1, f"{step_words(lost)} fewer than planned, to pay for steps lost since the last save.")
        if settings.seed is not None:
            lines.append(NOT_FOR_RELEASE)
        return f"Plan: {describe_method(settings)} on {settings.data}", lines

    def describe_doubt(self) -> str | None:
        """A warning if the method runs as published although its claim is refuted or unproven."""
        method = self.run.mechanism.method
        if method.mode != "paper" or method.status not in DOUBTFUL:
            return None
        proven = _certify(self.settings, self.run)
        instead = "Nothing is proven about this run." if proven is None else f"Proven is epsilon {proven[1]} instead."
        return describe_doubt(method.name, method.source, method.status, method.because, method.unprotected, instead)

    def describe_stop(self, *, is_mid_step: bool) -> str:
        """Where the run stopped, what it has cost and how to resume it."""
        command = write_resume_command(self.folder.path)
        if is_mid_step:
            return f"Stopped at once. Steps since the last save are charged when the run is resumed: {command}"
        settings, run = self.settings, self.run
        of = "" if settings.epsilon is None else f" of {settings.epsilon:g}"
        return (
            f"Stopped after step {run.step:,} of {run.steps:,} and saved. Spent so far: epsilon "
            f"{self._describe_spent()}{of} at delta {settings.delta:g}; if intermediate results made you stop, count "
            f"the full planned budget.{describe_reservation(run.booking)} Resume with: {command}"
        )


def set_torch_seed(seed: int | None) -> None:
    """Draw first weights afresh, or from the seed."""
    torch.seed() if seed is None else torch.manual_seed(seed % 2**63)


def make_run(
    data: Data,
    settings: Settings,
    model: nn.Module,
    *,
    seed: int | None,
    budget: Budget | None = None,
    ledger: Ledger | None = None,
) -> PrivateRun:
    """The private run of a network with these settings."""
    mechanism = make_mechanism(settings)
    return PrivateRun(
        model,
        loss_for(data),
        data=data.train,
        mechanism=mechanism,
        sampling=make_sampling(settings, mechanism),
        steps=settings.steps,
        budget=budget,
        micro_batch=settings.micro_batch,
        gradients=choose_gradients(settings),
        seed=seed,
        **data.people,
        ledger=ledger,
        dataset=None if ledger is None else settings.ledger_name,
    )


def make_mechanism(settings: Settings) -> Mechanism:
    """The method of the settings; its multiplier is None until it is found from a budget."""
    method = find_method(settings.method).load()
    made: Mechanism = method(settings.clip_norm, settings.multiplier, mode=settings.mode, **settings.choices)
    return made


def make_plan(settings: Settings, model: nn.Module, budget: Budget | None = None) -> Plan:
    """The plan of a run of this model: what it will release, and what that costs."""
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    mechanism = make_mechanism(settings)
    return Plan(mechanism, make_sampling(settings, mechanism), settings.steps, weights, budget)


def make_sampling(settings: Settings, mechanism: Mechanism) -> Sampling:
    """Poisson lots; for noise that is correlated over steps, of groups that take turns."""
    if isinstance(mechanism.noise, BandedNoise):
        return CyclicPoisson(settings.lot_size, settings.population, groups=mechanism.noise.bands)
    return Poisson(settings.lot_size, settings.population)


def _resolve_budget(settings: Settings, model: nn.Module) -> Budget | None:
    """The given budget, or what the given multiplier costs; None if that is no finite epsilon."""
    if settings.epsilon is not None:
        return Budget(settings.epsilon, settings.delta)
    if make_mechanism(settings).guide is not None:
        raise InvalidArgument(
            f"{settings.method} as published adds noise to gradients and to a direction w, and its rule finds both "
            "from a budget. Give --epsilon in place of --multiplier."
        )
    try:
        epsilon = curve(make_plan(settings, model).total(settings.steps)).epsilon(settings.delta)
    except NotProven:
        return None
    if epsilon == 0:
        raise InvalidArgument(
            f"At delta {settings.delta:g} this run costs epsilon 0: delta alone covers everything that leaks, so the "
            f"guarantee is empty. Choose a --delta far below 1/{settings.population:,}, one over the population."
        )
    return Budget(epsilon, settings.delta) if math.isfinite(epsilon) else None


def _certify(settings: Settings, run: PrivateRun) -> tuple[str, str] | None:
    """The certified interval of all planned steps, as text; None where nothing is proven."""
    try:
        bounds = curve(run.plan.total(run.steps)).epsilon_bounds(settings.delta)
    except NotProven:
        return None
    return interval(*bounds) if math.isfinite(bounds[1]) else None


def _describe_cost(settings: Settings, run: PrivateRun) -> list[str]:
    if settings.multiplier is not None:
        source = "as given"
    elif settings.mode == "paper":
        source = f"by the paper's rule for a claimed epsilon of {settings.epsilon:g}"
    else:
        source = f"for a budget of epsilon {settings.epsilon:g}"
    noise, proven = f"multiplier {near(run.multiplier)}, {source}", _certify(settings, run)
    if proven is None:
        return [f"{noise}: no finite epsilon is proven at delta {settings.delta:g}"]
    compared = (
        f"({neighbours(run.plan.total(run.steps).adjacency, unit=run.plan.unit)}, PLD, {step_words(settings.steps)})"
    )
    return [
        f"{noise}: epsilon {proven[1]} at delta {settings.delta:g} {compared}",
        f"Certified: the true epsilon lies in [{proven[0]}, {proven[1]}].",
    ]


def describe_doubt(
    name: str, source: str, status: object, because: str, unprotected: Sequence[str], instead: str, mode: str = "paper"
) -> str:
    """A warning about a method whose published claim does not hold; `instead` says what is proven."""
    exposed = f" Not protected: {', '.join(unprotected)}." if unprotected else ""
    return (
        f"the claim of {source} about {name} as published is {status}. {because} {instead}{exposed} Leave out "
        f"--mode {mode} for a form with a proof; see `tacit methods {name}`."
    )
