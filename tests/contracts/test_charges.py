"""What every way to release must keep to: the ledger is charged for the noise that was drawn, no more and no less.

Draws are noted as they happen (support/emissions.py), and held against the ledger. A new way gets this by being listed.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tacit
import tacit.workflows.tune
from support.emissions import singles, watch
from support.small_runs import N, small_model, small_run, train
from tacit.accounting import Adjacency, Allocated, EpsilonDelta, Event, Gaussian, ShuffledReports, curve, from_json
from tacit.accounting.lots import FixedSize, Truncated
from tacit.accounting.selection import BestOf, TruncatedNegativeBinomial
from tacit.budget import Budget
from tacit.cli import app
from tacit.erm import NoisyDescent, NoisyLots, NoisyPass, NoisySnapshots, Reporting
from tacit.errors import OutOfOrder
from tacit.estimators import PrivateClassifier, PrivateLogisticRegression
from tacit.features import KnotsAndCells, PrivateCells, PrivateCentring, PrivateWhitening, PrivateWordWeights
from tacit.features.cells import GRIDS
from tacit.ledger import Ledger
from tacit.methods import dpsgd, encoded, gradient_perturbation, objective_perturbation, output_perturbation
from tacit.methods.objective_perturbation import _LinearTerm
from tacit.recipes.recipe import RecipePlan, auto
from tacit.reports.scores import Score
from tacit.stages.bounds import QuantileClip
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise
from tacit.training.charging import refuse_unless_reserved
from tacit.training.tuning import Choices, LogUniform, Search, Trial, tune
from tacit.types import Release
from tacit.workflows.scoring import release_terms, with_score

# What is imported here draws; `watch` replaces draws in what is there already.
DRAWING = (gradient_perturbation, objective_perturbation, output_perturbation)
DELTA = 1e-5
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (200, 3))
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture
def emissions(monkeypatch):
    """Everything that is drawn in the test."""
    return watch(monkeypatch)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "all.ledger")


def charged(ledger: Ledger, name: str = "data") -> Event:
    """All that was charged to the data set."""
    return reduce(add, [charge.event for charge in ledger.account(name).charges])


# Gradient methods and how their lots are drawn.
RUNS: dict[str, dict[str, Any]] = {
    "dpsgd": {},
    "dpsgd in pieces": {"micro_batch": 3},
    "dpsgd on all examples": {"sampling": tacit.FullBatch(population=N)},
    "dpsgd by a schedule": {"schedule": tacit.Schedule(multiplier=[1.0, 1.0, 2.0, 2.0, 0.5], lot_size=[1, 2, 1, 1, 1])},
    "at a quantile": {"mechanism": Mechanism(QuantileClip(), GaussianNoise(1.3))},
    "encoded": {"mechanism": encoded(multiplier=2.0)},
    "directional": {"mechanism": tacit.methods.directional(multiplier=1.5)},
    "directional as published": {
        "mechanism": tacit.methods.directional(mode="paper"),
        "budget": Budget(2.0, DELTA),
    },
    "adaclip": {"mechanism": tacit.methods.adaclip(multiplier=1.5)},
    "pruned": {"mechanism": tacit.methods.pruned(multiplier=1.5)},
    "dp_lssgd": {"mechanism": tacit.methods.dp_lssgd(multiplier=1.5)},
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS)
def test_a_run_is_charged_for_what_it_drew(emissions, ledger, changes):
    run = small_run(ledger=ledger, dataset="data", **changes)
    train(run)
    emitted = emissions.taken()
    assert len(emitted) >= run.steps
    assert singles(charged(ledger)) == Counter(emitted) == singles(run.guarantee().event)


# Other lots, and what ten steps of the noise below cost on them, written out by hand.
NOISE = Gaussian(1.1)
LOTS: dict[str, tuple[Any, Event]] = {
    "random allocation": (tacit.RandomAllocation(40, N), Allocated(NOISE, 5, 5) * 2),
    "cyclic Poisson": (tacit.CyclicPoisson(20, N, groups=5), NOISE.sampled(0.5) * 2),
    "truncated Poisson": (tacit.TruncatedPoisson(20, N, most=40), Truncated(NOISE, 0.1, 40, N) * 10),
    "fixed size": (tacit.FixedLots(20, N), FixedSize(Gaussian(0.55, Adjacency.REPLACE_ONE), 0.1) * 10),
}


@pytest.mark.slow
@pytest.mark.parametrize(("sampling", "cost"), LOTS.values(), ids=LOTS)
def test_other_lots_are_charged_for_the_noise_that_was_drawn(emissions, ledger, sampling, cost):
    run = small_run(ledger=ledger, dataset="data", sampling=sampling, steps=10)
    train(run)
    assert Counter(getattr(event, "inside", event) for event in emissions.taken()) == {NOISE: 10}
    assert singles(charged(ledger)) == singles(run.guarantee().event) == singles(cost)


@pytest.mark.slow
def test_a_run_that_is_settled_early_is_charged_for_the_steps_it_made(emissions, ledger):
    run = small_run(ledger=ledger, dataset="data", steps=9)
    train(run, steps=4)
    run.settle()
    assert singles(charged(ledger)) == Counter(emissions.taken()) == singles(run.guarantee().event)


@pytest.mark.slow
@pytest.mark.parametrize(
    "preparation",
    [
        PrivateCentring(30.0, 200),
        PrivateWordWeights(30.0, 200),
        PrivateWhitening(30.0, 200, axes=(3,)),
        PrivateWhitening(30.0, 200, axes=(3, 1)),
        PrivateCells(30.0, 200, cells=3 * sum(GRIDS), per_row=3 * len(GRIDS)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_preparation_costs_what_it_drew(emissions, preparation):
    rows = KnotsAndCells(3).fit_transform(X) if isinstance(preparation, PrivateCells) else X
    assert singles(preparation.fit(rows).event_) == Counter(emissions.taken())


TEXTS = ["a splendid film", "a dreadful film"] * 100
RECIPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "table": (X, {"recipe": "auto", "numbers": 3}),
    "text": (TEXTS, {"recipe": "auto"}),
    **{
        preparation: (
            X,
            {"recipe": replace(auto("table", population=200, epsilon=1, delta=DELTA), preparation=preparation)},
        )
        for preparation in ("none", "centring", "whitening")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(("x", "settings"), RECIPES.values(), ids=RECIPES)
def test_an_estimator_by_recipe_is_charged_for_preparation_and_steps(emissions, ledger, x, settings):
    fitted = PrivateClassifier(epsilon=1.0, population=200, classes=[0, 1], ledger=ledger, dataset="data", **settings)
    fitted.fit(x, Y)
    emitted = emissions.taken()
    assert len(emitted) == fitted.recipe_.steps + fitted.recipe_.releases
    assert singles(charged(ledger)) == Counter(emitted) == singles(fitted.guarantee_.event)


@pytest.mark.parametrize("kind", ["table", "text", "image", "handwriting"])
def test_a_ledger_reserves_for_a_recipe_what_its_noise_was_found_for(kind):
    plan = RecipePlan.of(auto(kind, population=5_000, epsilon=2.0, delta=DELTA), Budget(2.0, DELTA))
    course = plan.course(is_repeatable=False)
    whole = course.cost([(0, course.steps)])
    assert singles(whole) == singles(plan.event(plan.recipe.steps))
    assert 1.99 < curve(whole).epsilon(DELTA) <= 2.0


def tacit_train(*words: str, code: int = 0):
    ran = CliRunner().invoke(app, ["train", *words])
    assert ran.exit_code == code, ran.output
    return ran


@pytest.mark.slow
@pytest.mark.parametrize("seed", [(), ("--seed", "0")])
def test_the_command_line_by_recipe_charges_what_was_drawn(emissions, ledger, tmp_path, seed):
    words = ("iris", "--epsilon", "5", "--recipe", "auto", "--ledger", str(ledger.path), "--out", str(tmp_path / "run"))
    tacit_train(*words, *seed)
    guarantee = tacit.Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    assert singles(charged(ledger, "iris")) == Counter(emissions.taken()) == singles(guarantee.event)


@pytest.mark.slow
def test_a_recipe_that_was_stopped_and_resumed_is_charged_for_every_draw_once(
    emissions, ledger, tmp_path, interrupted_at
):
    interrupted_at(30)
    words = ("iris", "--epsilon", "5", "--recipe", "auto", "--ledger", str(ledger.path), "--out", str(tmp_path / "run"))
    tacit_train(*words, code=130)
    tacit_train("--resume", str(tmp_path / "run"))
    assert singles(charged(ledger, "iris")) == Counter(emissions.taken())


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["preparation", "step"])
def test_a_recipe_whose_noise_emits_something_else_than_was_reserved_hands_nothing_out(
    monkeypatch, ledger, tmp_path, stage
):
    if stage == "preparation":
        release = GaussianNoise.release
        monkeypatch.setattr(
            GaussianNoise, "release", lambda *args: replace(release(*args), event=GaussianNoise(0.1).event(1))
        )
    else:
        released = Mechanism.release_mean

        def another(*args, **kwargs):
            made, state = released(*args, **kwargs)
            return replace(made, event=GaussianNoise(0.1).event(1)), state

        monkeypatch.setattr(Mechanism, "release_mean", another)
    words = ("iris", "--epsilon", "5", "--recipe", "auto", "--ledger", str(ledger.path), "--out", str(tmp_path / "run"))
    ran = CliRunner().invoke(app, ["train", *words])
    assert isinstance(ran.exception, OutOfOrder), ran.output
    assert "Gaussian(multiplier=0.1" in str(ran.exception)
    assert not (tmp_path / "run" / "model.safetensors").exists()


BOUNDS = 'rows = 300\n[columns]\nsize = { low = -1, high = 1 }\nlabel = ["no", "yes"]\n'


@pytest.fixture
def own_table(tmp_path, monkeypatch):
    """A table of the user's own, of which some rows are held out, and the words that train on it."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).uniform(-1, 1, 300)
    lines = [f"{value:.6f},{'yes' if value > 0 else 'no'}" for value in values]
    (tmp_path / "own.csv").write_text("\n".join(["size,label", *lines]))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    return "own.csv", "--target", "label", "--bounds", "bounds.toml", "--ledger", "all.ledger"


@pytest.fixture
def scoring(emissions, monkeypatch):
    """Pairs of what was drawn before a score was, and for the score itself."""
    pairs: list[tuple[Counter, Counter]] = []

    def scored(*args):
        before = Counter(emissions.taken())
        found = release_terms(*args)
        assert isinstance(found, Release)
        drawn = Counter(emissions.taken())
        assert singles(found.event) == drawn
        pairs.append((before, drawn))
        return found

    monkeypatch.setattr("tacit.workflows.scoring.release_terms", scored)
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("how", [("--epsilon", "8", "--recipe", "auto"), ("--multiplier", "2", "--steps", "7")])
def test_a_score_of_rows_held_out_costs_them_no_more_than_the_ledger_was_charged(
    scoring, ledger, own_table, tmp_path, how
):
    tacit_train(*own_table, *how, "--out", "run")
    [(training, score)] = scoring
    whole = singles(charged(ledger, "own"))
    # Each row is trained on or held out: the data set pays for the dearer of the two.
    assert whole == training
    assert score <= training
    [row] = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]
    assert singles(from_json(json.dumps(row["event"]))) == score
    guarantee = tacit.Guarantee.from_json((tmp_path / "run" / "guarantee.json").read_text())
    assert singles(guarantee.event) == training


def test_a_score_that_costs_more_than_training_is_in_no_guarantee():
    run = small_run()
    train(run)
    guarantee = run.guarantee()
    assert with_score(guarantee, Score("accuracy", 0.5, event=guarantee.event)) is guarantee
    assert with_score(guarantee, Score("accuracy", 0.5)) is guarantee
    with pytest.raises(OutOfOrder, match="The score was not released"):
        with_score(guarantee, Score("accuracy", 0.5, event=guarantee.event + guarantee.event))


@dataclass(frozen=True)
class Erm:
    """A method for linear models, and what else it is given."""

    method: str
    delta: float | None = DELTA
    options: tuple[tuple[str, Any], ...] = ()
    data_norm: float | str = 2.0
    mode: str = "rigorous"

    def __str__(self) -> str:
        return f"{self.method} {self.mode} {self.delta} {[str(value) for _, value in self.options]} {self.data_norm}"

    def fit(self, ledger: Ledger) -> PrivateLogisticRegression:
        return PrivateLogisticRegression(
            epsilon=1.0,
            delta=self.delta,
            method=self.method,
            mode=self.mode,
            options=dict(self.options),
            data_norm=self.data_norm,
            classes=[0, 1],
            ledger=ledger,
            dataset="data",
        ).fit(X, Y)


COMPOSED = [
    Erm("output"),
    Erm("output", delta=None),
    Erm("output", delta=None, mode="paper"),
    Erm("gradient", options=(("training", NoisyDescent(10)),)),
    Erm("gradient", options=(("training", NoisyDescent(10)),), mode="paper"),
    Erm("gradient", options=(("training", NoisyLots(10, lot_size=50)),)),
    Erm("gradient", options=(("training", NoisySnapshots(2, 3, lot_size=50)),)),
]


@pytest.mark.slow
@pytest.mark.parametrize("erm", COMPOSED, ids=str)
def test_noise_on_the_output_or_the_gradients_is_charged_as_it_was_drawn(emissions, ledger, erm):
    fitted = erm.fit(ledger)
    assert singles(charged(ledger)) == Counter(emissions.taken()) == singles(fitted.guarantee_.event)


@pytest.mark.slow
def test_a_pass_over_disjoint_lots_is_charged_for_the_one_lot_that_an_example_is_in(emissions, ledger):
    Erm("gradient", delta=None, options=(("training", NoisyPass(passes=2, lot_size=50)),)).fit(ledger)
    lots = len(X) // 50
    assert Counter({event: lots * times for event, times in singles(charged(ledger)).items()}) == Counter(
        emissions.taken()
    )


@pytest.mark.slow
@pytest.mark.parametrize("delta", [DELTA, None])
def test_noise_on_the_objective_is_charged_for_no_less_than_its_scale_costs(emissions, ledger, monkeypatch, delta):
    """What the linear term costs follows from its scale by the theorem; the solver's noise is charged as it is."""
    plans: list[_LinearTerm] = []
    draw = _LinearTerm.draw
    monkeypatch.setattr(_LinearTerm, "draw", lambda self, *args: plans.append(self) or draw(self, *args))
    Erm("objective", delta=delta).fit(ledger)
    [plan], [solver] = plans, emissions.taken()
    whole = singles(charged(ledger))
    assert whole[solver] == 1
    [term] = whole - Counter([solver])
    if delta is None:
        [scale] = emissions.scales
        least = plan.setting.determinant_cost() + plan.setting.shift / scale
        assert (term.delta, term.adjacency) == (0.0, plan.setting.adjacency)
    else:
        least = plan.setting.epsilon(term.delta, plan.std)
    assert term.epsilon >= least * (1 - 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["input", "data"])
@pytest.mark.parametrize("shuffled", [True, False])
def test_noise_on_the_data_is_charged_as_each_report_was_drawn(emissions, ledger, method, shuffled):
    Erm(method, options=(("reporting", Reporting(shuffled=shuffled)),)).fit(ledger)
    features, labels = emissions.taken()
    report = features + labels
    assert charged(ledger) == (ShuffledReports(report, len(X)) if shuffled else report)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["input", "data"])
def test_noise_on_the_data_without_a_delta_is_charged_by_its_scale(emissions, ledger, method):
    Erm(method, delta=None).fit(ledger)
    [scale], [labels] = emissions.scales, emissions.taken()
    # Two rows of norm 2 differ by 4 at most.
    features = EpsilonDelta(4.0 / scale, 0.0, Adjacency.REPLACE_ONE)
    found = singles(charged(ledger))
    assert found[labels] == 1
    [rest] = found - Counter([labels])
    assert rest.epsilon == pytest.approx(features.epsilon)
    assert curve(charged(ledger)).epsilon(1e-12) <= 1.0


@pytest.mark.slow
def test_published_noise_on_features_proves_nothing_of_labels_and_is_charged_so(ledger):
    """No noise touches the labels, so that nothing is proven of whole examples: a ledger must not add that up."""
    Erm("data", mode="paper").fit(ledger)
    assert ledger.account("data").epsilon(DELTA) == math.inf


@pytest.mark.slow
def test_an_estimate_of_the_norm_is_charged_by_its_scale(emissions, ledger):
    Erm("output", data_norm="estimate").fit(ledger)
    [scale], [output] = emissions.scales, emissions.taken()
    # Another row in place of one changes two counts by one each.
    estimate = EpsilonDelta(2 / scale, 0.0, Adjacency.REPLACE_ONE)
    found = singles(charged(ledger))
    assert found[output] == 1
    [rest] = found - Counter([output])
    assert rest.epsilon == pytest.approx(estimate.epsilon)
    assert rest.delta == 0


@pytest.mark.slow
def test_a_filter_is_charged_for_the_budget_that_it_keeps(emissions, ledger):
    """What single steps cost depends on earlier ones, so the filter states the cost: it covers no more than it may."""
    fitted = Erm("influence").fit(ledger)
    assert emissions.taken()
    assert charged(ledger) == fitted.guarantee_.event
    assert 0.98 < curve(charged(ledger)).epsilon(DELTA) <= 1.0


@pytest.mark.slow
def test_a_network_behind_fit_is_charged_for_what_it_drew(emissions, ledger):
    settings = {"steps": 6, "lot_size": 20, "population": 200, "classes": [0, 1], "ledger": ledger, "dataset": "data"}
    fitted = PrivateClassifier(epsilon=1.0, **settings).fit(X, Y)
    assert singles(charged(ledger)) == Counter(emissions.taken()) == singles(fitted.guarantee_.event)


@pytest.mark.slow
def test_a_search_is_charged_for_no_less_than_any_of_its_trials_drew(emissions, ledger):
    trials: list[Event] = []
    # Without sampling, what a selection costs is found in no time.
    whole = tacit.FullBatch(population=N)

    def trial(settings):
        run = small_run(small_model(), seed=None, steps=settings["steps"], sampling=whole)
        train(run, lr=settings["learning_rate"])
        trials.append(run.guarantee().event)
        assert singles(trials[-1]) == Counter(emissions.taken())
        return Trial(float(settings["learning_rate"]), None, run.guarantee())

    space = {"learning_rate": LogUniform(0.1, 1.0), "steps": Choices((2, 4))}
    planned = {steps: small_run(steps=steps, sampling=whole).plan.total(steps) for steps in (2, 4)}
    often = TruncatedNegativeBinomial.with_mean(4)
    search = Search(space, lambda settings: planned[settings["steps"]], often)
    tuned = tune(trial, search, delta=DELTA, ledger=ledger, dataset="data", seed=3)
    price = charged(ledger)
    assert price == tuned.guarantee.event
    # The dearest trial alone costs less; a selection of one kind of it costs as much.
    dearest = max(curve(event).epsilon(DELTA) for event in trials)
    assert curve(price).epsilon(DELTA) >= dearest
    assert price.epsilon == pytest.approx(BestOf(planned[4], often).epsilon(DELTA), rel=1e-6)


@pytest.mark.slow
def test_a_search_whose_trial_draws_something_else_ends_without_an_outcome(ledger):
    def trial(settings):
        run = small_run(small_model(), seed=None, steps=2, mechanism=dpsgd(clip_norm=0.5, multiplier=0.3))
        train(run)
        return Trial(1.0, None, run.guarantee())

    planned = small_run(steps=2, sampling=tacit.FullBatch(population=N)).plan.total(2)
    search = Search({"steps": Choices((2,))}, lambda _: planned)
    with pytest.raises(OutOfOrder, match="the search was charged for"):
        tune(trial, search, delta=DELTA, ledger=ledger, dataset="data", seed=0)


@pytest.mark.slow
def test_the_command_line_tunes_at_the_price_of_trials_with_their_scores(scoring, ledger, own_table, tmp_path):
    words = [*own_table, "--epsilon", "4", "--steps", "3", "--lot-size", "240", "--trials", "2", "--seed", "5"]
    ran = CliRunner().invoke(app, ["tune", *words, "--out", "best"])
    assert ran.exit_code == 0, ran.output
    assert scoring
    for training, score in scoring:
        assert score <= training
    [whole] = singles(charged(ledger, "own"))
    guarantee = tacit.Guarantee.from_json((tmp_path / "best" / "guarantee.json").read_text())
    assert guarantee.event == whole
    dearest = max(curve(reduce(add, training.elements())).epsilon(whole.delta) for training, _ in scoring)
    assert dearest <= whole.epsilon <= 4.0


def test_what_was_reserved_is_held_against_what_was_emitted():
    one, other = GaussianNoise(1.0).event(1), GaussianNoise(2.0).event(1)
    refuse_unless_reserved(None, one, other)
    with pytest.raises(OutOfOrder, match="the ledger reserved"):
        refuse_unless_reserved(object(), one, other)
