"""Random search whose best trial is chosen privately, at the cost of the whole search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count, repeat
from pathlib import Path
from typing import Any, final

from torch import Tensor

from tacit import _validate
from tacit.accounting import curve
from tacit.accounting.events import Event
from tacit.accounting.selection import TruncatedNegativeBinomial
from tacit.budget import Budget
from tacit.datasets import Data
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.reports.scores import Score
from tacit.reports.wording import neighbours, up
from tacit.stages.noise import GaussianNoise
from tacit.training.fit import fit
from tacit.training.folder import RunFolder, find_free_folder, refuse_unless_free
from tacit.training.tuning import Choices, LogUniform, Search, Trial, Tuned, combinations, scaled_to
from tacit.training.tuning import tune as search_privately
from tacit.workflows.cluster import map_on_cluster
from tacit.workflows.defaults import network_for, resolve_settings
from tacit.workflows.descent import Descent
from tacit.workflows.ledger import describe_standing
from tacit.workflows.network import make_mechanism, make_plan, make_run, set_torch_seed
from tacit.workflows.progress import Interrupted, explain_interrupt, show_status
from tacit.workflows.scoring import held_out_score, score, with_score
from tacit.workflows.settings import (
    NOT_FOR_RELEASE,
    Settings,
    TrainOptions,
    add_assumptions,
    describe_method,
    describe_run,
    export_run,
    load_data,
    refuse_people,
    warn_about,
    write_model,
)
from tacit.workflows.text import Paragraph, Printable
from tacit.workflows.train import Announce, describe_use, take_options

# What changes the cost of a trial can be a list only: every price must be known in advance.
_PRICED = ("lot_size", "epochs", "steps")
_VARIED = ("learning_rate", "clip_norm", *_PRICED)
# With a ledger, the share of delta that one search takes.
_SEARCHES = 10
_TUNING = (
    "Accounted for: this is the best of a random and secret number of trials, {trials:g} on average, and the guarantee "
    "is about all of them (Liu and Talwar 2019, Papernot and Steinke 2022)."
)
_SettingsByCost = Mapping[tuple[Any, ...], Settings]


def tune(
    data: Any,
    *,
    epsilon: float,
    trials: float = 10,
    shape: float = 1,
    learning_rate: str | Iterable[float] | None = None,
    clip_norm: str | Iterable[float] | None = None,
    lot_size: str | Iterable[float] | None = None,
    epochs: str | Iterable[float] | None = None,
    steps: str | Iterable[float] | None = None,
    cluster: str | None = None,
    announce: Announce | None = None,
    **options: Any,
) -> TunedRun:
    """Train a secret random number of trials (`trials` on average) and release the best; `epsilon` covers all of them.

    Values to try are a list such as [0.1, 1, 10], or a range on a logarithmic scale such as "0.1:10"; what changes the
    cost of a trial (lot size, epochs, steps) must be a list. `shape` is that of the negative binomial law of the number
    of trials. `data` and `options` are those of `tacit.train`. Trials are made here one after the other, or on the
    workers of the Dask or Ray `cluster` at this address, whose owner then sees how many there are.
    """
    given = replace(take_options(options), epsilon=epsilon)
    if _validate.positive("trials", trials) <= 1:
        raise InvalidArgument(f"trials must be a number above 1, the number of trials on average. Got {trials:g}.")
    values = learning_rate, clip_norm, lot_size, epochs, steps
    varied = {
        name: value if isinstance(value, str) else ",".join(map(str, value))
        for name, value in zip(_VARIED, values, strict=True)
        if value is not None
    }
    with explain_interrupt():
        refuse_unless_free(given.out)
        with show_status("Reading data"):
            loaded, table = load_data(data, given)
            refuse_people(loaded, "This command trains models of single rows too")
        with show_status("Accounting"):
            search = Trials.plan(loaded, given, table, varied, (trials, shape))
        warn_about(loaded, search.base)
        if announce is not None:
            announce([search.describe_plan()])
    try:
        with show_status("Tuning (no progress bar: the number of trials is secret)"):
            return search.go(given.out, cluster)
    except KeyboardInterrupt:
        raise Interrupted(search.describe_stop()) from None


@dataclass(frozen=True, eq=False)
class TunedRun(Printable):
    """The best trial of a search: its settings, score and folder, and the guarantee of the whole search."""

    folder: Path
    search: Trials
    tuned: Tuned[TrialResult]

    @property
    def best(self) -> TrialResult:
        """The best trial."""
        return self.tuned.outcome

    @property
    def guarantee(self) -> Guarantee:
        """What is proven about all trials together."""
        return self.tuned.guarantee

    def paragraphs(self) -> list[Paragraph]:
        """The best settings, their score and the guarantee of the whole search."""
        settings, ledger = self.best.settings, self.search.ledger
        chosen = [
            f"learning rate {settings.learning_rate:g}, clip norm {settings.clip_norm:g}, lots of "
            f"{settings.lot_size:g}, {settings.steps:,} steps, multiplier {settings.multiplier:.5g}"
        ]
        booked = []
        if ledger is not None:
            run = ledger.account(settings.data).charges[-1].run
            booked = [("Ledger", [describe_standing(ledger, settings.data, run)])]
        return [
            (f"{self.best.score} by the best trial", chosen),
            ("Guarantee", str(self.guarantee).splitlines()),
            *booked,
            ("Files", [f"{self.folder}: model.safetensors, guarantee.json, metrics.json"]),
            *describe_use(self.folder),
        ]

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return export_run(self.folder, self.search.metrics(self.tuned), self.best.score, self.guarantee)


@dataclass(frozen=True)
class TrialResult:
    """The settings of a trial, its weights and its score."""

    settings: Settings
    weights: dict[str, Tensor]
    score: Score


@final
@dataclass(frozen=True)
class Trials:
    """A planned search. `base` holds the settings that all trials share."""

    data: Data
    base: Settings
    search: Search
    settings_of: _SettingsByCost
    budget: Budget

    @staticmethod
    def plan(
        data: Data,
        options: TrainOptions,
        table: dict[str, str] | None,
        varied: dict[str, str],
        often: tuple[float, float],
    ) -> Trials:
        """Compute the cost of every trial; find the noise with which the whole search stays within the budget."""
        base = resolve_settings(data, options, table)
        if "epochs" in varied and "steps" in varied:
            raise InvalidArgument(
                "Both --epochs and --steps were given. Give exactly one: it sets the length of a trial."
            )
        usual = LogUniform(base.learning_rate / 4, base.learning_rate * 4)
        space = {"learning_rate": usual} | {name: _parse_values(name, text) for name, text in varied.items()}
        repetitions = TruncatedNegativeBinomial.with_mean(often[0], often[1])
        # A ledger adds deltas up: a search that took all of it would leave none for any other release.
        delta = base.delta if base.ledger is None else base.delta / _SEARCHES
        budget = Budget(_validate.positive("epsilon", options.epsilon), delta)
        single = {_find_cost_key(one): _resolve_trial(data, options, table, one, budget) for one in combinations(space)}

        def price(factor: float) -> dict[tuple[Any, ...], Event]:
            noisy = {key: _add_noise(settings, factor) for key, settings in single.items()}
            plans = {key: make_plan(one, network_for(one.model, data)) for key, one in noisy.items()}
            return {key: plan.total(plan.steps) for key, plan in plans.items()}

        factor = scaled_to(lambda x: list(price(x).values()), repetitions, budget)
        prices = price(factor)
        search = Search(space, lambda settings: prices[_find_cost_key(settings)], repetitions)
        noisy = {key: _add_noise(settings, factor) for key, settings in single.items()}
        _refuse_unless_scored(data, next(iter(noisy.values())))
        return Trials(data, base, search, noisy, budget)

    def go(self, out: Path | None, cluster: str | None = None) -> TunedRun:
        """Make the trials, here or on a cluster, and write the best."""
        folder, base = RunFolder(out or find_free_folder(self.base.data)), self.base
        seeds: Iterator[int | None] = repeat(None) if base.seed is None else count(base.seed * 1_000_003 + 1)
        shared = self.data, base, self.settings_of

        def make_all(_: Any, chosen: Sequence[dict[str, Any]]) -> Iterable[Trial[TrialResult]]:
            items = zip(chosen, seeds, strict=False)
            return map_on_cluster(cluster or "", _train_trial, shared, items, in_order=True)

        tuned = search_privately(
            lambda chosen: _train_trial(shared, (chosen, next(seeds))),
            self.search,
            each=map if cluster is None else make_all,
            delta=self.budget.delta,
            ledger=self.ledger,
            dataset=base.ledger_name,
            about={"method": base.method, "mode": base.mode, "note": f"the best of several {base.method}"},
            seed=base.seed,
        )
        tuned = replace(tuned, guarantee=add_assumptions(tuned.guarantee, base, self.data))
        self._write(folder, tuned)
        return TunedRun(folder.path, self, tuned)

    @property
    def ledger(self) -> Ledger | None:
        """The ledger that is charged for the search."""
        return None if self.base.ledger is None else Ledger(self.base.ledger)

    def _write(self, folder: RunFolder, tuned: Tuned[TrialResult]) -> None:
        best = tuned.outcome
        with folder.explain_errors():
            replace(best.settings, epsilon=self.budget.epsilon).write(folder.path)
        write_model(folder, self.data, best.settings, best.weights, tuned.guarantee)
        folder.write_metrics(self.metrics(tuned))
        folder.write_guarantee(tuned.guarantee)

    def metrics(self, tuned: Tuned[TrialResult]) -> dict[str, Any]:
        """How well the best trial did, with which settings, and what was searched. Nothing about other trials."""
        best, steps = tuned.outcome, tuned.outcome.settings.steps
        about = {
            "tuning": _TUNING.format(trials=self.search.repetitions.mean),
            "space": {name: str(one) for name, one in self.search.space.items()},
        }
        return describe_run(self.data, best.settings, {steps: best.score}, steps=steps, is_finished=True, **about)

    def describe_plan(self) -> Paragraph:
        """What is about to happen, and what it will cost."""
        settings, budget, repetitions = self.base, self.budget, self.search.repetitions
        alone = max(curve(event).epsilon(budget.delta) for event in self.search.costs())
        adjacency = neighbours(self.search.costs()[0].adjacency)
        cost = self.search.event(budget.delta).epsilon
        tested = "rows held out, with noise that is paid for" if self.data.is_test_private else "public test examples"
        lines = [
            f"The search costs epsilon {up(cost)} at delta {budget.delta:g} ({adjacency}, private selection); a single "
            f"trial alone would cost {up(alone)}.",
            f"There are {repetitions.mean:g} trials on average, and more than {_find_quantile(repetitions)} in one "
            "search out of a hundred. The actual number stays secret.",
            *(f"{name.replace('_', ' ')}: {_describe_values(one)}" for name, one in self.search.space.items()),
            f"Trials are compared on {tested}.",
        ]
        if settings.seed is not None:
            lines.append(NOT_FOR_RELEASE)
        return f"Plan: tune {describe_method(settings)} on {settings.data}", lines

    def describe_stop(self) -> str:
        """What a search that was interrupted costs."""
        if self.base.ledger is None:
            return "Stopped. Nothing was kept. Nothing was released either, as long as nobody uses what was seen."
        return "Stopped. Nothing was kept, but the ledger has charged the whole search, because trials were made."


def _train_trial(
    shared: tuple[Data, Settings, _SettingsByCost], item: tuple[dict[str, Any], int | None]
) -> Trial[TrialResult]:
    """Train with the chosen settings and a seed, or with secret noise. It may run in another process."""
    (data, base, settings_of), (chosen, seed) = shared, item
    varied = {name: chosen.get(name, getattr(base, name)) for name in ("learning_rate", "clip_norm")}
    settings = replace(settings_of[_find_cost_key(chosen)], **varied)
    set_torch_seed(seed)
    model = network_for(settings.model, data)
    descent = Descent(model, settings)
    run = make_run(data, settings, model, seed=seed)
    fit(run, descent)
    model = descent.averaged_model
    found = held_out_score(model, data, run, seed) if data.is_test_private else score(model, data)
    assert found is not None
    better = found.value if found.name == "accuracy" else -found.value
    weights = {name: value.detach().clone().contiguous() for name, value in model.state_dict().items()}
    return Trial(better, TrialResult(settings, weights, found), with_score(run.guarantee(), found))


def _parse_values(name: str, text: str) -> Choices | LogUniform:
    option = f"--{name.replace('_', '-')}"
    try:
        if ":" in text:
            low, high = map(_parse_positive, text.split(":"))
            values: Choices | LogUniform = LogUniform(low, high)
        else:
            values = Choices(tuple(dict.fromkeys(map(_parse_positive, text.split(",")))))
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


def _parse_positive(text: str) -> float:
    return _validate.positive("a value", float(text))


def _find_cost_key(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the cost of a trial depends on."""
    return tuple(settings.get(name) for name in _PRICED)


def _resolve_trial(
    data: Data, options: TrainOptions, table: dict[str, str] | None, chosen: Mapping[str, Any], budget: Budget
) -> Settings:
    """The settings of a trial, with the noise that it alone would need to stay within the budget."""
    changes = {name: chosen[name] for name in _PRICED if name in chosen}
    settings = resolve_settings(data, replace(options, **changes), table)
    plan = make_plan(replace(settings, epsilon=None), network_for(settings.model, data), budget).calibrate()
    return replace(settings, multiplier=plan.mechanism.noise.multiplier)


def _add_noise(settings: Settings, factor: float) -> Settings:
    assert settings.multiplier is not None
    return replace(settings, multiplier=settings.multiplier * factor)


def _refuse_unless_scored(data: Data, settings: Settings) -> None:
    mechanism = make_mechanism(settings)
    if not data.is_test_private:
        return
    if not data.is_tested:
        raise InvalidArgument(
            "Trials are compared by a score, and the bounds declare held_out = 0, so there are no rows to score. "
            "Declare a share, or a file of public rows as test."
        )
    if not isinstance(mechanism.noise, GaussianNoise) or mechanism.guide is not None:
        raise InvalidArgument(
            f"The rows that would tell trials of {settings.method} apart are private, and their score can be released "
            "with Gaussian noise only. Use --method dpsgd."
        )


def _find_quantile(repetitions: TruncatedNegativeBinomial) -> int:
    """The number of trials that 99 % of searches do not exceed."""
    shares = accumulate(map(repetitions.probability, count(1)))
    return next(times for times, share in enumerate(shares, start=1) if share >= 0.99)


def _describe_values(one: Choices | LogUniform) -> str:
    if isinstance(one, LogUniform):
        return f"from {one.low:g} to {one.high:g}, on a logarithmic scale"
    listed = ", ".join(f"{value:g}" for value in one.values)
    return listed if len(one.values) == 1 else f"one of {listed}"
