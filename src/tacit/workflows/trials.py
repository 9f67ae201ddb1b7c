"""The trials of `tacit tune`: what each costs, how one is made, and what is kept of the best."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, final

import torch
from safetensors.torch import save_file
from torch import Tensor

import tacit
from tacit import _validate
from tacit.accounting import curve
from tacit.accounting.events import Event
from tacit.accounting.selection import TruncatedNegativeBinomial
from tacit.budget import Budget
from tacit.cli.balance import standing
from tacit.cli.statement import Paragraph
from tacit.datasets import Data
from tacit.errors import InvalidArgument
from tacit.guarantee import Assumption
from tacit.ledger import Ledger
from tacit.methods.choices import as_texts
from tacit.reports.wording import neighbours, up
from tacit.stages.noise import GaussianNoise
from tacit.stages.sampling import Poisson
from tacit.training.plan import Plan
from tacit.training.run import PrivateRun
from tacit.training.tuning import Choices, LogUniform, Search, Space, Trial, Tuned, combinations, scaled_to, tune
from tacit.workflows.descent import Descent, gradients_for
from tacit.workflows.held_out import held_out_score, with_score
from tacit.workflows.scoring import Score, loss_for, network_for, score
from tacit.workflows.settings import GUARANTEE, METRICS, MODEL, Settings, Typed, free_folder, settle
from tacit.workflows.training import mechanism_of, written

# What changes the cost of a trial can be a list only: every price must be known in advance.
_PRICED = ("lot_size", "epochs", "steps")
# With a ledger, the share of delta that one search takes.
_SEARCHES = 10


@dataclass(frozen=True)
class Made:
    """What a trial leaves: its settings, its weights, and how well it did."""

    settings: Settings
    weights: dict[str, Tensor]
    score: Score


@final
@dataclass(frozen=True)
class Trials:
    """A search that is priced and ready. `base` holds the settings that all trials share."""

    data: Data
    base: Settings
    search: Search
    settings_of: Mapping[tuple[Any, ...], Settings]
    budget: Budget

    @staticmethod
    def planned(
        data: Data, typed: Typed, table: dict[str, str] | None, varied: dict[str, str], often: tuple[float, float]
    ) -> Trials:
        """Price all trials; find the noise with which the best of them stays within the budget."""
        base = settle(data, typed, table)
        space = _space(varied, base)
        repetitions = TruncatedNegativeBinomial.with_mean(often[0], often[1])
        # A ledger adds deltas up: a search that took all of it would leave none for any other release.
        delta = base.delta if base.ledger is None else base.delta / _SEARCHES
        budget = Budget(_validate.positive("epsilon", typed.epsilon), delta)
        single = {_priced(one): _settled(data, typed, table, one, budget) for one in combinations(space)}

        def events(factor: float) -> dict[tuple[Any, ...], Event]:
            return {key: _event(_noisier(settings, factor), data) for key, settings in single.items()}

        factor = scaled_to(lambda x: list(events(x).values()), repetitions, budget)
        prices = events(factor)
        search = Search(space, lambda settings: prices[_priced(settings)], repetitions)
        noisy = {key: _noisier(settings, factor) for key, settings in single.items()}
        _refuse_unless_scored(data, next(iter(noisy.values())))
        return Trials(data, base, search, noisy, budget)

    def go(self, out: Path | None) -> tuple[Path, Tuned[Made]]:
        """Make the trials, and write the best."""
        folder, base = out or free_folder(self.base.data), self.base
        seeds = count() if base.seed is None else count(base.seed * 1_000_003 + 1)
        tuned = tune(
            lambda chosen: self._trial(chosen, seeds),
            self.search,
            delta=self.budget.delta,
            ledger=self._ledger,
            dataset=base.data,
            about={"method": base.method, "mode": base.mode, "note": f"the best of several {base.method}"},
            seed=base.seed,
        )
        tuned = replace(tuned, guarantee=replace(tuned.guarantee, assumptions=self._assumptions(tuned)))
        self._write(folder, tuned)
        return folder, tuned

    @property
    def _ledger(self) -> Ledger | None:
        return None if self.base.ledger is None else Ledger(self.base.ledger)

    def _trial(self, chosen: dict[str, Any], seeds: Iterator[int]) -> Trial[Made]:
        settings = replace(
            self.settings_of[_priced(chosen)],
            learning_rate=chosen.get("learning_rate", self.base.learning_rate),
            clip_norm=chosen.get("clip_norm", self.base.clip_norm),
        )
        number = next(seeds)
        seed = None if self.base.seed is None else number
        torch.seed() if seed is None else torch.manual_seed(seed % 2**63)
        model = network_for(settings.model, self.data)
        descent = Descent(model, settings)
        run = PrivateRun(
            model,
            loss_for(self.data),
            data=self.data.train,
            mechanism=mechanism_of(settings),
            sampling=Poisson(settings.lot_size, settings.population),
            steps=settings.steps,
            micro_batch=settings.micro_batch,
            gradients=gradients_for(settings),
            seed=seed,
        )
        for lot in run:
            run.backward(lot)
            descent.step()
        model = descent.answering
        is_private = self.data.is_test_private
        found = held_out_score(model, self.data, run, seed) if is_private else score(model, self.data)
        assert found is not None
        better = found.value if found.name == "accuracy" else -found.value
        weights = {name: value.detach().clone().contiguous() for name, value in model.state_dict().items()}
        return Trial(better, Made(settings, weights, found), with_score(run.guarantee(), found))

    def _assumptions(self, tuned: Tuned[Made]) -> tuple[Assumption, ...]:
        base = self.base
        source = "declared by whoever trained" if base.is_declared else "it follows from its published size"
        population = Assumption("public_population", f"The population of {base.population:,} is public: {source}.")
        return (*tuned.guarantee.assumptions, population, *self.data.assumptions)

    def _write(self, folder: Path, tuned: Tuned[Made]) -> None:
        best = tuned.outcome
        about = {"data": best.settings.data, "model": best.settings.model, "method": best.settings.method}
        with written(folder):
            folder.mkdir(parents=True, exist_ok=True)
            replace(best.settings, epsilon=self.budget.epsilon).write(folder)
            save_file(best.weights, folder / MODEL, metadata=about)
            (folder / GUARANTEE).write_text(tuned.guarantee.to_json(), encoding="utf-8")
            (folder / METRICS).write_text(json.dumps(self.metrics(tuned), indent=1), encoding="utf-8")

    def metrics(self, tuned: Tuned[Made]) -> dict[str, Any]:
        """How well the best trial did, with which settings, and what was searched. Nothing about other trials."""
        best = tuned.outcome
        return {
            "settings": best.settings.public(),
            "multiplier": best.settings.multiplier,
            "steps": best.settings.steps,
            "is_finished": True,
            "test": [{"step": best.settings.steps, **best.score.as_row()}],
            "test_examples": None if self.data.is_test_private else len(self.data.test[1]),
            "tuning": self._sentence(),
            "space": {name: str(one) for name, one in self.search.space.items()},
        }

    def _sentence(self) -> str:
        return (
            "Accounted for: this is the best of a random and secret number of trials, "
            f"{self.search.repetitions.mean:g} on average, and the guarantee is about all of them (Liu and Talwar "
            "2019, Papernot and Steinke 2022)."
        )

    def plan(self) -> Paragraph:
        """What is about to happen, and what it will cost."""
        settings, budget, repetitions = self.base, self.budget, self.search.repetitions
        alone = max(curve(event).epsilon(budget.delta) for event in self.search.costs())
        adjacency = neighbours(self.search.costs()[0].adjacency)
        cost = self.search.event(budget.delta).epsilon
        tested = "rows held out, with noise that is paid for" if self.data.is_test_private else "public test examples"
        lines = [
            f"The search costs epsilon {up(cost)} at delta {budget.delta:g} ({adjacency}, private selection); a single "
            f"trial alone would cost {up(alone)}.",
            f"{repetitions.mean:g} trials on average, and more than {_quantile(repetitions)} in one search of a "
            "hundred. How many there were is not shown.",
            *(f"{name.replace('_', ' ')}: {_words(one)}" for name, one in self.search.space.items()),
            f"Trials are compared on {tested}.",
        ]
        if settings.seed is not None:
            lines.append("The seed makes this search repeatable, and its noise removable: it is not for release.")
        named = " ".join([settings.method, *as_texts(settings.choices)])
        return f"Plan: tune {named} on {settings.data}", lines

    def outcome(self, folder: Path, tuned: Tuned[Made]) -> list[Paragraph]:
        """The best settings, their score and the guarantee of the whole search."""
        best, ledger = tuned.outcome, self._ledger
        settings = best.settings
        chosen = [
            f"learning rate {settings.learning_rate:g}, clip norm {settings.clip_norm:g}, lots of "
            f"{settings.lot_size:g}, {settings.steps:,} steps, multiplier {settings.multiplier:.5g}"
        ]
        charged = []
        if ledger is not None:
            run = ledger.account(settings.data).charges[-1].run
            charged = [("Ledger", [standing(ledger, settings.data, run)])]
        return [
            (f"{best.score} by the best trial", chosen),
            ("Guarantee", str(tuned.guarantee).splitlines()),
            *charged,
            ("Files", [f"{folder}: model.safetensors, guarantee.json, metrics.json"]),
        ]

    def as_json(self, folder: Path, tuned: Tuned[Made]) -> dict[str, Any]:
        """The same for machines."""
        best = tuned.outcome
        return {
            "tacit": tacit.__version__,
            "folder": str(folder),
            **self.metrics(tuned),
            "score": best.score.as_row(),
            "guarantee": json.loads(tuned.guarantee.to_json()),
        }

    def stopped(self) -> str:
        """What a search that was interrupted costs."""
        if self.base.ledger is None:
            return "Stopped. Nothing was kept, and nothing of it is a release as long as nobody uses what was seen."
        return (
            "Stopped, and nothing was kept. The ledger has charged the search as a whole, for its trials were made; "
            "that stands."
        )


def _space(varied: dict[str, str], base: Settings) -> Space:
    if "epochs" in varied and "steps" in varied:
        raise InvalidArgument("Both of --epochs and --steps were given, and one of them says how long a trial is.")
    usual = LogUniform(base.learning_rate / 4, base.learning_rate * 4)
    return {"learning_rate": usual} | {name: _values(name, text) for name, text in varied.items()}


def _values(name: str, text: str) -> Choices | LogUniform:
    option = f"--{name.replace('_', '-')}"
    try:
        if ":" in text:
            low, high = map(_positive, text.split(":"))
            values: Choices | LogUniform = LogUniform(low, high)
        else:
            values = Choices(tuple(dict.fromkeys(map(_positive, text.split(",")))))
    except ValueError:
        raise InvalidArgument(
            f"{option} must be numbers above 0: a list such as 0.1,1,10, or a range such as 0.1:10. Got {text!r}."
        ) from None
    if name in _PRICED and isinstance(values, LogUniform):
        raise InvalidArgument(
            f"{option} changes what a trial costs, and all prices must be known in advance. Give a list, as in "
            f"{low:g},{math.sqrt(low * high):.3g},{high:g}."
        )
    return values


def _positive(text: str) -> float:
    return _validate.positive("a value", float(text))


def _priced(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the cost of a trial depends on."""
    return tuple(settings.get(name) for name in _PRICED)


def _settled(
    data: Data, typed: Typed, table: dict[str, str] | None, chosen: Mapping[str, Any], budget: Budget
) -> Settings:
    """The settings of a trial, with the noise that it alone would need to stay within the budget."""
    changes = {name: chosen[name] for name in _PRICED if name in chosen}
    settings = settle(data, replace(typed, **changes), table)
    plan = _plan(replace(settings, epsilon=None), data, budget).settled()
    return replace(settings, multiplier=plan.mechanism.noise.multiplier)


def _noisier(settings: Settings, factor: float) -> Settings:
    assert settings.multiplier is not None
    return replace(settings, multiplier=settings.multiplier * factor)


def _plan(settings: Settings, data: Data, budget: Budget | None = None) -> Plan:
    weights = sum(one.numel() for one in network_for(settings.model, data).parameters() if one.requires_grad)
    sampling = Poisson(settings.lot_size, settings.population)
    return Plan(mechanism_of(settings), sampling, settings.steps, weights, budget)


def _event(settings: Settings, data: Data) -> Event:
    return _plan(settings, data).total(settings.steps)


def _refuse_unless_scored(data: Data, settings: Settings) -> None:
    mechanism = mechanism_of(settings)
    if not data.is_test_private:
        return
    if not data.is_tested:
        raise InvalidArgument(
            "Trials are told apart by a score, and the bounds declare held_out = 0: there are no rows to score. "
            "Declare a share, or a file of public rows as test."
        )
    if not isinstance(mechanism.noise, GaussianNoise) or mechanism.guide is not None:
        raise InvalidArgument(
            f"The rows that would tell trials of {settings.method} apart are private, and their score can be released "
            "with Gaussian noise only. Use --method dpsgd."
        )


def _quantile(repetitions: TruncatedNegativeBinomial) -> int:
    """The number of trials that 99 % of searches do not exceed."""
    times, left = 0, 0.01
    total = 0.0
    while total < 1 - left:
        times += 1
        total += repetitions.probability(times)
    return times


def _words(one: Choices | LogUniform) -> str:
    if isinstance(one, LogUniform):
        return f"from {one.low:g} to {one.high:g}, on a logarithmic scale"
    return f"one of {', '.join(f'{value:g}' for value in one.values)}"
