"""What is said about scores: how sure they are, and that a lucky private model is no miracle."""

import json

import pytest

from tacit.accounting import Gaussian, gdp
from tacit.reports.scores import utility_facts
from tacit.reports.wording import up

OTHER = {"final": 0.9, "interval": None, "how": "somehow"}


def said(value: float, measure: str = "accuracy", other=None, **about) -> str:
    row = {"step": 5, measure: value, **about}
    found = utility_facts({"test": [row], "test_examples": 30}, other, is_held_out=False)
    return " ".join(found["sentences"])


def test_a_private_model_that_does_better_is_no_privacy_for_free():
    assert "did better than the one without privacy. That is no merit of the noise" in said(0.95, other=OTHER)
    assert "the difference is within the interval" in said(0.95, other=OTHER)
    assert "within the interval" not in said(0.95, other=OTHER, interval=[0.94, 0.96])


@pytest.mark.parametrize(("value", "measure"), [(0.9, "accuracy"), (0.85, "accuracy"), (0.95, "rmse")])
def test_one_that_does_not_is_nothing_to_remark(value, measure):
    assert "no merit" not in said(value, measure, OTHER)


def test_of_errors_the_smaller_one_is_better():
    assert "no merit" in said(0.8, "rmse", OTHER)


def test_what_was_scored_before_there_were_intervals_gets_one_where_the_count_is_known():
    assert said(0.9) == "Test accuracy 90.00 % on 30 public examples (95 % interval 74.38 % to 96.54 %)."


def test_a_score_that_was_chosen_by_is_said_to_flatter():
    found = utility_facts({"test": [{"step": 5, "accuracy": 0.9}], "tuning": "yes"}, None, is_held_out=False)
    assert found["sentences"][-1].startswith("It is the best of several trials")


def test_nothing_measured_is_nothing_said():
    found = utility_facts({"test": []}, None, is_held_out=True)
    assert found["final"] is None
    assert found["sentences"] == ["Nothing was measured."]


def test_training_that_diverged_is_said_to_and_is_no_number():
    rows = [{"step": 5, "rmse": 60.0}, {"step": 9, "rmse": 70.0}, {"step": 12, "rmse": None}]
    found = utility_facts({"test": rows, "test_examples": 30}, {**OTHER, "final": 50.0}, is_held_out=False)
    assert found["final"] is None
    assert found["by_step"] == [[5, 60.0], [9, 70.0]]
    assert found["sentences"] == [
        "No finite test score, for the training diverged (take a smaller learning rate), on 30 public examples."
    ]


def test_what_the_score_of_private_rows_cost_them_is_read_off_its_event():
    event = Gaussian(2.0)
    row = {"step": 5, "accuracy": 0.9, "interval": [0.8, 1.0], "noise_std": 0.05, "event": json.loads(event.to_json())}
    found = utility_facts({"test": [row]}, None, is_held_out=True, delta=1e-5)
    # A single Gaussian release has a closed form.
    exact = gdp.epsilon(1e-5, 1 / 2.0)
    assert found["cost"]["epsilon"] == pytest.approx(exact, rel=1e-6)
    assert (found["measure"], found["cost"]["delta"]) == ("accuracy", 1e-5)
    said = f"The score cost the rows held out epsilon {up(found['cost']['epsilon'])} at delta 1e-05."
    assert any(sentence.startswith(said) for sentence in found["sentences"])
    # That of the best of several trials is part of what the whole search cost.
    assert utility_facts({"test": [row], "tuning": "yes"}, None, is_held_out=True, delta=1e-5)["cost"] is None


def test_a_run_of_a_version_that_wrote_no_event_is_reported_all_the_same():
    row = {"step": 5, "accuracy": 0.9, "interval": [0.8, 1.0], "noise_std": 0.05}
    found = utility_facts({"test": [row]}, None, is_held_out=True, delta=1e-5)
    assert found["cost"] is None
    assert not any("cost the rows" in sentence for sentence in found["sentences"])
