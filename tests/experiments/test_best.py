"""The experiment on the best accuracy: what it runs and shows, and that a small data set goes through all of it."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from experiments.library import Record, Records, targets
from experiments.library.running import records_of, run_missing, tables_in
from experiments.library.targets import Target

from tacit import datasets

TARGET = Target(Path(__file__).resolve().parents[2] / "experiments" / "best")


def order_for_iris():
    """The same settings, for a data set that comes with scikit-learn."""
    order = TARGET.order("quick")
    about = {"data": "iris", "kind": "table", "numbers": 4, "epsilons": [8.0]}
    expected = {"wanted": {"Iris": {"8": 80.0}}, "papers": {}}
    return dataclasses.replace(order, settings={**order.settings, "data": {"Iris": about}}, expected=expected)


def test_every_aim_is_at_an_epsilon_that_is_run():
    order = TARGET.order("full")
    assert order.settings["seeds"] >= 5
    for name, about in order.settings["data"].items():
        assert order.expected["wanted"][name]
        assert set(order.expected["wanted"][name]) <= {f"{epsilon:g}" for epsilon in about["epsilons"]}


def test_a_small_table_goes_through_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    order, experiment, records = order_for_iris(), TARGET.experiment(), Records(tmp_path / "results.jsonl")
    assert run_missing(experiment, order, records, ["Iris"], lambda said: None) == ()
    found = records_of(experiment, order, records)
    private = found[1].found
    assert private["accuracy"] > 0.7
    assert 7.9 < private["certified"] <= 8
    table = experiment.tables(order, found)["accuracy"]
    assert f"| {100 * private['accuracy']:.2f}" in table
    assert experiment.tables(order, found)["targets"].splitlines()[-1].startswith("| Iris | 80 |")
    full = experiment.tables(order, found)["full"].splitlines()
    assert full[-2].startswith(f"| Iris | {100 * private['accuracy']:.2f}")
    assert full[-1].startswith("| Iris, AUC |")
    assert f"{100 * found[0].found['accuracy']:.1f} %" in table


def test_preparations_are_compared_on_training_examples_that_are_held_out(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    order, experiment, records = order_for_iris(), TARGET.experiment(), Records(tmp_path / "results.jsonl")
    compared = {"data": ["Iris"], "epsilon": 8.0, "one_in": 6}
    order = dataclasses.replace(order, settings={**order.settings, "preparation": compared})
    assert run_missing(experiment, order, records, ["preparation"], lambda said: None) == ()
    found = records_of(experiment, order, records)
    assert [each.asked["form"] for each in found] == ["none", "centring", "whitening"]
    # A sixth of the training examples is scored, so many of which are right.
    hits = [len(datasets.load("iris").train[1]) // 6 * each.found["accuracy"] for each in found]
    assert hits == pytest.approx([round(each) for each in hits], abs=1e-6)
    assert all(7.9 < each.found["certified"] <= 8 for each in found)
    row = experiment.tables(order, found)["preparation"].splitlines()[-1]
    assert row == "| Iris | " + " | ".join(f"{100 * each.found['accuracy']:.2f}" for each in found) + " |"


@pytest.mark.slow
def test_changes_are_tried_on_training_examples_that_are_held_out(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    order, experiment, records = order_for_iris(), TARGET.experiment(), Records(tmp_path / "results.jsonl")
    order = dataclasses.replace(order, settings={**order.settings, "tried": {"Iris": [8.0]}})
    assert run_missing(experiment, order, records, ["tried"], lambda said: None) == ()
    found = records_of(experiment, order, records)
    assert len({each.asked["change"] for each in found}) == len(found) >= 5
    # A fifth of the training examples is scored, so many of which are right.
    hits = [math.ceil(len(datasets.load("iris").train[1]) / 5) * each.found["accuracy"] for each in found]
    assert hits == pytest.approx([round(each) for each in hits], abs=1e-6)
    assert all(7.9 < each.found["certified"] <= 8 for each in found)
    rows = experiment.tables(order, found)["tried"].splitlines()[2:]
    assert rows == [f"| {each.asked['change']} | {100 * each.found['accuracy']:.2f} |" for each in found]


def order_with_few_images(monkeypatch):
    """The quick settings of the network, for 300 images of noise in place of MNIST."""
    rng = np.random.default_rng(0)
    parts = [
        (rng.random((count, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, count, dtype=np.int64))
        for count in (300, 40)
    ]
    data = datasets.Data("mnist", *parts, classes=10, population=300, scaling="as they are")
    monkeypatch.setitem(targets._LOADED, "mnist", data)
    order = TARGET.order("quick")
    ingredients = {**order.settings["ingredients"], "last": 60, "steps": 2}
    network = {**order.settings["network"], "lot_size": 100, "steps": 3}
    return dataclasses.replace(order, settings={**order.settings, "ingredients": ingredients, "network": network})


@pytest.mark.slow
def test_a_network_is_tested_and_its_ingredients_are_compared_on_images_held_out(tmp_path, monkeypatch):
    order, records = order_with_few_images(monkeypatch), Records(tmp_path / "results.jsonl")
    experiment = TARGET.experiment()
    assert run_missing(experiment, order, records, ["network", "ingredients"], lambda said: None) == ()
    (network, *compared) = records_of(experiment, order, records)
    assert [each.asked["form"] for each in compared] == list(order.settings["ingredients"]["forms"])
    for record, count in ((network, 40), *((each, 60) for each in compared)):
        hits = [count * record.found[name] for name in ("accuracy", "averaged")]
        assert hits == pytest.approx([round(each) for each in hits], abs=1e-6)
        assert 2.9 < record.found["certified"] <= 3
    shown = experiment.tables(order, [network, *compared])
    assert f"{100 * network.found['averaged']:.2f} % with the running mean" in shown["network"]
    assert f"| {100 * compared[-1].found['accuracy']:.2f} |" in shown["ingredients"].splitlines()[-1]


def test_another_number_makes_another_run():
    order = TARGET.order("full")
    changed = {**order.settings["network"], "learning_rate": 0.123}
    other = dataclasses.replace(order, settings={**order.settings, "network": changed})
    cells = [TARGET.experiment().cells(each, Records(Path("unused"))) for each in (order, other)]
    one, another = ({cell.key for cell in each if cell.part == "network"} for each in cells)
    assert one
    assert not one & another


def test_seeds_that_are_missing_are_said():
    order, experiment = TARGET.order("full"), TARGET.experiment()
    asked = {"epsilon": 1.0, "seed": 0, "size": "full"}
    record = Record("MNIST", asked, {"accuracy": 0.98}, 30.0, "2026-01-01", "2 cores")
    assert "98.00, 1 of 5 seeds" in experiment.tables(order, [record])["accuracy"]


def test_what_was_not_run_is_said():
    table = TARGET.experiment().tables(TARGET.order("full"), [])["accuracy"]
    assert table.count("not run") == 25


def test_the_page_shows_the_runs_that_are_kept(tmp_path):
    kept = Records(TARGET.folder / "results.jsonl")
    assert kept.read()
    order, experiment = TARGET.order("full"), TARGET.experiment()
    page = (TARGET.folder / "README.md").read_text(encoding="utf-8")
    tables = dict(experiment.tables(order, records_of(experiment, order, kept)))
    # The front page shows what the page of the experiment has in full.
    del tables["accuracy"]
    assert tables_in(page) == tables


def test_the_front_page_shows_the_table_of_the_experiment():
    root = TARGET.folder.parents[1]
    shown = tables_in((root / "README.md").read_text(encoding="utf-8"))["accuracy"]
    order, experiment = TARGET.order("full"), TARGET.experiment()
    found = records_of(experiment, order, Records(TARGET.folder / "results.jsonl"))
    assert shown == experiment.tables(order, found)["accuracy"]
