"""`tacit.report`: a page and the same facts as JSON, of a run or a comparison."""

import json

import pytest
import torch

import tacit
from support.report_folders import comparison_of, trained
from tacit.errors import TacitError
from tacit.workflows.compare import read_comparison_folder

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")


@pytest.mark.slow
def test_the_report_of_a_run_holds_its_guarantee_and_a_baseline(tmp_path):
    run = tacit.train("iris", epsilon=3, delta=1e-5, steps=6, out="first")
    report = tacit.report("first", "page")
    assert report.page.parent.resolve() == tmp_path / "page"
    facts = json.loads(report.json.read_text())
    assert facts["guarantee"]["epsilon"]["upper"] == run.guarantee.epsilon(1e-5)
    assert facts["utility"]["final"] == run.score.value
    assert facts["utility"]["non_private"]["final"] > 0.8
    assert report.headline in str(report)
    assert "<html" in report.page.read_text()


@pytest.mark.slow
def test_no_baseline_is_trained_if_none_is_wanted(monkeypatch):
    tacit.train("iris", epsilon=3, steps=2, out="first")
    monkeypatch.setattr("tacit.workflows.report.keep_baseline", lambda *_: pytest.fail("trained a baseline"))
    assert tacit.report("first", baseline=False).page.exists()


@pytest.mark.slow
def test_the_report_of_an_unfinished_comparison_says_what_is_missing(tmp_path):
    data, comparison = comparison_of(methods=("output_perturbation",), seeds=1)
    folder = trained(tmp_path / "whole", data, comparison)
    report = tacit.report(folder)
    assert report.caveat is None
    # The same text as that of `tacit compare`.
    assert str(report) == str(read_comparison_folder(folder))
    next(folder.glob("cells/output_perturbation-*.json")).unlink()
    report = tacit.report(folder)
    assert "2 of 3" in report.caveat
    assert str(report).splitlines()[2].startswith("Unfinished: 2 of 3 cells are trained")


def test_a_run_of_ones_own_program_has_a_report_with_the_backend_in_one_line(tmp_path):
    model = torch.nn.Linear(3, 2)
    run = tacit.PrivateRun(
        model, torch.nn.functional.cross_entropy, data=(torch.randn(30, 3), torch.randint(2, (30,))),
        mechanism=tacit.methods.dpsgd(), sampling=tacit.Poisson(10, 30), steps=3, budget=tacit.Budget(3, 1e-3),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    run.save("own", optimizer)
    report = tacit.report("own")
    assert report.facts["guarantee"]["epsilon"]["upper"] == run.guarantee().epsilon(1e-3)
    words = dict(report.facts["settings_in_words"])
    assert words["Gradients of single examples"] == str(run.backend)
    assert words["Lots"] == "10 examples on average (sampling rate 0.3333)"
    page = report.page.read_text()
    assert "one backward pass, with a rule for each operation" in page
    assert "3 of 3 planned steps were released" in page
    assert report.json.is_file()


def test_a_folder_with_neither_is_refused(tmp_path):
    with pytest.raises(TacitError):
        tacit.report(tmp_path)
