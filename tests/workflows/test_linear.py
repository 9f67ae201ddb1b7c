"""`tacit train` with every method that is listed: a run folder, its guarantee, its charge, predictions and a report."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_iris

import tacit
from support.report_folders import flowers_in
from tacit.accounting import Adjacency
from tacit.datasets import load
from tacit.errors import CannotResume, InvalidArgument
from tacit.ledger import Ledger
from tacit.methods.registry import list_methods
from tacit.workflows.cells import Job, run_job
from tacit.workflows.settings import TrainOptions

pytestmark = [
    pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread"),
    pytest.mark.filterwarnings("ignore::tacit.errors.Caution"),
]
# Its authors give no form with a proof.
AS_PUBLISHED_ONLY = ("influence_perturbation",)


@pytest.mark.slow
@pytest.mark.parametrize("method", [one.name for one in list_methods()])
def test_train_takes_every_method_that_is_listed(method, tmp_path):
    mode = "paper" if method in AS_PUBLISHED_ONLY else "rigorous"
    kind = next(one.kind for one in list_methods() if one.name == method)
    short = {"steps": 4} if kind == "gradient" else {}
    run = tacit.train("iris", method=method, mode=mode, epsilon=5, ledger="it.ledger", out="run", **short)
    [charge] = Ledger("it.ledger").account("iris").charges
    assert charge.is_settled
    assert charge.event == run.guarantee.event
    assert charge.about["method"].startswith(method)
    if mode == "rigorous":
        assert 0 < run.guarantee.epsilon(run.settings.delta) <= 5
    assert set(tacit.predict("run", load_iris().data)) <= {"setosa", "versicolor", "virginica"}
    if kind == "linear":
        # Reports of methods with steps are tested with their pages.
        assert tacit.report("run", baseline=False).page.is_file()
        assert json.loads((tmp_path / "run" / "report.json").read_text())["settings"]["method"] == method


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iris", "diabetes"])
def test_train_and_compare_make_the_same_linear_model(name, tmp_path):
    run = tacit.train(name, method="objective_perturbation", epsilon=5, seed=3, out="run")
    run_job(Job("objective_perturbation", "rigorous", 5.0, (3,)), load(name), TrainOptions(epsilon=5.0), tmp_path)
    [cell] = [json.loads(path.read_text()) for path in (tmp_path / "cells").iterdir()]
    assert cell["score"][run.score.name] == pytest.approx(run.score.value, rel=1e-6)


def test_a_linear_method_trains_on_every_row_of_a_table(tmp_path):
    path = flowers_in(tmp_path)
    run = tacit.train(path, target="target", bounds="bounds.toml", method="output_perturbation", epsilon=3, out="run")
    assert len(run.data.train[0]) == 150
    assert run.score is None
    assert run.settings.population == 150
    assert run.guarantee.adjacency is Adjacency.REPLACE_ONE


def test_a_run_of_one_release_is_finished_and_is_not_resumed():
    tacit.train("iris", method="output_perturbation", epsilon=3, out="run")
    with pytest.raises(CannotResume, match="nothing to resume"):
        tacit.train(resume="run")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 5}, "--steps"),
        ({"multiplier": 5.0, "epsilon": None}, "--multiplier"),
        ({"model": "mlp"}, "linear"),
        ({"epsilon": None}, "--epsilon"),
        ({"recipe": "auto"}, "--method"),
        ({"method": "objective"}, "Did you mean objective_perturbation?"),
        ({"method": "output_pertubation"}, "Did you mean output_perturbation?"),
    ],
)
def test_what_has_no_meaning_for_one_release_is_refused(options, words, tmp_path):
    with pytest.raises(InvalidArgument, match=words.replace("?", r"\?")):
        tacit.train("iris", **{"method": "output_perturbation", "epsilon": 3, **options})
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_before_the_release_spends_and_writes_nothing(monkeypatch, tmp_path):
    from tacit.workflows import linear
    from tacit.workflows.progress import Interrupted

    def press(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(linear, "fit_linear", press)
    with pytest.raises(Interrupted, match="nothing is spent or written"):
        tacit.train("iris", method="output_perturbation", epsilon=3, ledger="it.ledger", out="run")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "it.ledger").exists()


def test_binary_probabilities_are_those_of_the_estimator():
    from tacit.workflows.linear import fit_linear, normalise_rows

    data = load("breast-cancer")
    tacit.train("breast-cancer", method="output_perturbation", epsilon=3, delta=1e-5, seed=1, out="run")
    fitted = fit_linear(data, method="output_perturbation", mode="rigorous", epsilon=3, delta=1e-5, seed=1)
    expected = fitted.predict_proba(normalise_rows(data.test[0]))
    model = tacit.load("run")
    scores = model.score_inputs(data.test[0])
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert np.allclose(shares, expected)
