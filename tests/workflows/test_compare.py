"""`tacit.compare`: its plan, its folder and its answer."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import special
from sklearn.metrics import roc_auc_score

import tacit
from support.report_folders import comparison_of
from tacit.datasets import load
from tacit.errors import CannotResume, InvalidArgument
from tacit.methods.registry import list_gradient_names, list_methods
from tacit.reports.cells import NON_PRIVATE
from tacit.reports.comparison import read_comparison
from tacit.workflows.cells import run_job
from tacit.workflows.compare import list_fitting_methods
from tacit.workflows.linear import fit_linear, normalise_rows
from tacit.workflows.progress import Interrupted


def test_every_method_that_fits_is_compared():
    iris = load("iris")
    assert list_fitting_methods(iris, "linear") == tuple(one.name for one in list_methods())
    assert list_fitting_methods(iris, "mlp") == list_gradient_names()


def test_cells_of_another_comparison_are_not_taken_for_this_one(tmp_path):
    data, comparison = comparison_of()
    comparison.write(data, tmp_path, "first")
    comparison.write(data, tmp_path, "the same")
    others = {
        "steps": comparison_of(steps=7),
        "learning_rate": comparison_of(learning_rate=0.1),
        "data": (load("wine"), comparison),
    }
    for name, (other, changed) in others.items():
        with pytest.raises(CannotResume, match=rf"holds another comparison: {name} differ"):
            changed.write(other, tmp_path, "another")


def test_a_comparison_of_an_older_tacit_is_not_gone_on_with(tmp_path):
    data, comparison = comparison_of()
    comparison.write(data, tmp_path, "first")
    plan = json.loads((tmp_path / "comparison.json").read_text())
    (tmp_path / "comparison.json").write_text(json.dumps({**plan, "version": 1}))
    with pytest.raises(CannotResume, match="another version of tacit"):
        comparison.write(data, tmp_path, "again")


def test_going_on_keeps_the_secret_and_the_cells_that_belong(tmp_path):
    data, comparison = comparison_of(methods=("dpsgd",))
    plans = []
    for seeds in (2, 3):
        replace(comparison, seeds=seeds).write(data, tmp_path, "tacit compare iris")
        plans.append(json.loads((tmp_path / "comparison.json").read_text()))
    assert plans[0]["salt"] == plans[1]["salt"]
    assert [[len(each["cells"]) for each in plan["plans"]] for plan in plans] == [[2 * 3], [3 * 3]]


def test_the_population_is_the_one_that_lots_are_drawn_from(tmp_path):
    data, comparison = comparison_of(methods=("dpsgd",), population=60)
    comparison.write(data, tmp_path, "tacit compare iris --population 60")
    plan = json.loads((tmp_path / "comparison.json").read_text())
    assert data.population != 60
    assert plan["data"]["population"] == plan["settings"]["population"] == 60


def test_a_broken_plan_is_not_overwritten(tmp_path):
    data, comparison = comparison_of()
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(CannotResume, match=r"was not written by tacit compare"):
        comparison.write(data, tmp_path, "first")


def test_the_model_without_privacy_is_always_there():
    _, comparison = comparison_of(methods=("dpsgd",))
    assert [job.method for job in comparison.list_jobs()].count(NON_PRIVATE) == 1


@pytest.mark.slow
def test_a_choice_goes_into_the_cells_and_is_part_of_the_comparison(tmp_path):
    data, comparison = comparison_of(methods=("directional",), seeds=1)
    chosen = replace(comparison, modes=("rigorous",), choices={"directional": ("variant=w1",)})
    (job,) = (job for job in chosen.list_jobs() if job.choices)
    run_job(job, data, chosen.options, tmp_path)
    (cell,) = (json.loads(file.read_text(encoding="utf-8")) for file in tmp_path.glob("cells/*.json"))
    assert cell["choices"] == ["variant=w1"]
    chosen.write(data, tmp_path, "first")
    assert read_comparison(tmp_path)["rows"][0]["label"] == "directional variant=w1 (repaired)"
    with pytest.raises(CannotResume, match="choices differ"):
        replace(chosen, choices={}).write(data, tmp_path, "second")


def test_the_recipe_is_compared_with_and_without_privacy():
    _, comparison = comparison_of(methods=("recipe", "dpsgd"))
    jobs = [(job.method, job.mode, job.epsilon) for job in comparison.list_jobs() if job.method == "recipe"]
    assert jobs == [("recipe", "rigorous", None), ("recipe", "rigorous", 1.0)]


@pytest.mark.parametrize(
    ("data", "options", "is_there"),
    [
        ("iris", {}, True),
        ("diabetes", {}, False),
        ("iris", {"model": "mlp"}, False),
        ("iris", {"mode": "paper"}, False),
    ],
    ids=["classes", "numbers", "a model", "as published"],
)
def test_the_recipe_is_compared_by_default_if_it_fits(data, options, is_there, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("tacit.workflows.compare.run_jobs", lambda jobs, *_: bool(asked.extend(jobs)))
    with pytest.raises(Interrupted):
        tacit.compare(data, epsilon=1, out=tmp_path / "out", **options)
    assert ("recipe" in {job.method for job in asked}) == is_there


@pytest.mark.slow
def test_the_recipe_of_a_comparison_is_the_one_of_train(tmp_path):
    data, comparison = comparison_of(methods=("recipe",), seeds=1, delta=1e-5)
    for job in comparison.list_jobs():
        if job.method == "recipe":
            run_job(job, data, comparison.options, tmp_path)
    trained = tacit.train("iris", epsilon=1.0, delta=1e-5, seed=0, out=tmp_path / "run")
    private = json.loads((tmp_path / "cells/recipe-1-seed0.json").read_text())
    without = json.loads((tmp_path / "cells/recipe-seed0.json").read_text())
    assert private["score"]["accuracy"] == trained.score.value
    assert private["guarantee"]["event"] == json.loads(trained.guarantee.to_json())["event"]
    assert without["score"]["accuracy"] > 0.8
    assert "guarantee" not in without


@pytest.mark.slow
def test_a_linear_method_is_scored_as_its_own_estimator_scores_it(tmp_path):
    data, comparison = comparison_of(methods=("output_perturbation",), seeds=1, epsilons=(100.0,))
    (job,) = (job for job in comparison.list_jobs() if job.method != NON_PRIVATE and job.mode == "rigorous")
    run_job(job, data, comparison.options, tmp_path)
    (file,) = tmp_path.glob("cells/*.json")
    cell = json.loads(file.read_text())
    fitted = fit_linear(
        data, method=job.method, mode="rigorous", epsilon=100.0, delta=comparison.settings.delta, seed=0
    )
    rows, truth = normalise_rows(data.test[0]), data.test[1]
    assert cell["score"]["accuracy"] == pytest.approx((fitted.predict(rows) == truth).mean())
    shares = special.softmax(fitted.decision_function(rows), axis=1)
    assert cell["auc"] == pytest.approx(roc_auc_score(truth, shares, multi_class="ovr"))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A finished comparison on iris, by the public function; no test changes it."""
    folder = tmp_path_factory.mktemp("compared")
    return tacit.compare(
        "iris", epsilon=[8, 1], methods=["dpsgd", "output_perturbation"], seeds=2, steps=6, workers=1, out=folder
    )


@pytest.mark.slow
def test_the_frame_has_a_row_for_every_method_and_epsilon(compared):
    frame = compared.frame()
    private = frame[frame["epsilon"].notna()]
    assert set(zip(private["method"], private["epsilon"], strict=True)) == {
        (method, epsilon) for method in ("dpsgd", "output_perturbation") for epsilon in (1, 8)
    }
    assert (private["certified_epsilon"] <= private["epsilon"] * (1 + 1e-6)).all()
    assert (frame["seeds"] == 2).all()
    # The scores are the means of what the cells hold.
    for row in private.itertuples():
        files = compared.folder.glob(f"cells/{row.method}-{row.epsilon:g}-seed*.json")
        scores = [json.loads(file.read_text())["score"]["accuracy"] for file in files]
        assert (len(scores), row.accuracy) == (2, pytest.approx(np.mean(scores)))


@pytest.mark.slow
def test_the_answer_names_the_best_method_and_what_privacy_costs(compared):
    frame, answer = compared.frame(), compared.answer
    baseline = frame.loc[frame["method"] == NON_PRIVATE, "accuracy"].item()
    assert (answer.measure, answer.baseline.score) == ("accuracy", baseline)
    # Add/remove and replace-one guarantees are never compared with each other.
    of = {"add_remove": "dpsgd", "replace_one": "output_perturbation"}
    assert [(choice.epsilon, choice.adjacency) for choice in answer.choices] == [(e, a) for a in of for e in (1, 8)]
    for choice in answer.choices:
        here = frame[(frame["epsilon"] == choice.epsilon) & (frame["method"] == of[choice.adjacency])]
        if choice.method is None:
            assert here["accuracy"].max() <= answer.constant
            continue
        assert (choice.score, choice.ties) == (here["accuracy"].max(), ())
        assert choice.cost == pytest.approx(baseline - choice.score)
    assert str(compared).splitlines() == [*str(answer).splitlines(), f"Page: {compared.page}"]
    assert f"{100 * baseline:.1f} %" in str(answer)


@pytest.mark.slow
def test_the_plot_draws_the_methods_of_one_adjacency(compared):
    for adjacency, method in ((None, "dpsgd"), ("replace_one", "output_perturbation")):
        axes = compared.plot(Figure().subplots(), adjacency=adjacency)
        assert {text.get_text() for text in axes.texts} >= {method}
        assert (axes.get_xscale(), axes.get_ylabel()) == ("log", "test accuracy")


@pytest.mark.slow
def test_the_report_is_a_page_beside_the_results(compared):
    assert compared.report() == compared.folder / "report.html"
    assert "output_perturbation" in compared.report().read_text()
    assert compared.picture.stat().st_size > 0


@pytest.mark.slow
def test_the_same_call_trains_nothing_twice(compared, monkeypatch):
    trained = []

    def run_here(jobs, data, options, folder, *_):
        trained.extend(job for job in (job.missing(folder) for job in jobs) if job.seeds)
        return True

    monkeypatch.setattr("tacit.workflows.compare.run_jobs", run_here)
    same = {"methods": ["dpsgd", "output_perturbation"], "seeds": 2, "steps": 6, "out": compared.folder}
    assert tacit.compare("iris", epsilon=[8, 1], **same).frame().equals(compared.frame())
    assert trained == []


def test_a_comparison_that_is_stopped_says_how_to_continue(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.workflows.compare.run_jobs", lambda *_: False)
    with pytest.raises(Interrupted, match=r"0 of 9 results .* tacit compare iris --epsilon 1,2 --out"):
        tacit.compare("iris", epsilon=(2, 1), methods=["dpsgd"], out=tmp_path / "out")


def test_one_epsilon_needs_no_list(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("tacit.workflows.compare.run_jobs", lambda jobs, *_: bool(asked.extend(jobs)))
    with pytest.raises(Interrupted):
        tacit.compare("iris", epsilon=1, methods=["dpsgd"], seeds=1, out=tmp_path / "out")
    assert [job.epsilon for job in asked] == [None, 1.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilons": [1]}, "'epsilons'.*Did you mean 'epsilon'"),
        ({"epsilon": []}, "budgets"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"methods": ["sgd"]}, "no method 'sgd'"),
        ({"methods": ["output_perturbation"], "model": "mlp"}, "linear models"),
        ({"choices": ["variant=w1"]}, "Which method"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_written(tmp_path, options, words):
    with pytest.raises(InvalidArgument, match=words):
        tacit.compare("iris", out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
