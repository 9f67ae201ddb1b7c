"""`tacit train --recipe auto`: a model, its guarantee and its files, within the budget and on the ledger."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from tacit.cli import app
from tacit.guarantee import Guarantee
from tacit.ledger import Budget, Ledger


def tacit(*words):
    return CliRunner().invoke(app, ["train", *words])


def test_a_table_by_recipe(tmp_path):
    out = tmp_path / "run"
    ran = tacit("iris", "--epsilon", "8", "--recipe", "auto", "--seed", "0", "--out", str(out), "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["test"]["accuracy"] > 0.7
    guarantee = Guarantee.from_json((out / "guarantee.json").read_text())
    assert 7.9 < guarantee.epsilon(guarantee.delta) <= 8
    # Four numbers of ten hats, and the constant.
    assert load_file(out / "model.safetensors")["weight"].shape == (3, 41)
    assert json.loads((out / "metrics.json").read_text())["settings"]["recipe"]["kind"] == "table"


def test_the_ledger_is_charged_first_and_refuses_what_does_not_fit(tmp_path):
    path = tmp_path / "iris.ledger"
    Ledger(path).set_budget("iris", Budget(epsilon=1.2, delta=1e-5))
    words = ("iris", "--epsilon", "1", "--recipe", "auto", "--ledger", str(path))
    first, second = (tacit(*words, "--out", str(tmp_path / name)) for name in ("one", "two"))
    assert first.exit_code == 0, first.output
    assert "stands at epsilon 1" in first.output
    assert second.exit_code != 0
    assert not (tmp_path / "two").exists()


def test_words_make_a_model_of_words(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 2
    # Words 2 and 3 tell, the others do not; numbers count from 2.
    words = np.stack([2 + labels, *rng.integers(4, 40, (6, 600))], axis=1).reshape(-1)
    part = {"flat": words.astype(np.uint16), "offsets": np.arange(601) * 7, "y": labels}
    arrays = {f"{key}_{name}": value for key, value in part.items() for name in ("train", "test")}
    np.savez(tmp_path / "imdb.npz", vocab=np.array([f"word{i}" for i in range(40)]), **arrays)
    ran = tacit(
        *("imdb", "--data-path", str(tmp_path), "--epsilon", "8", "--recipe", "auto", "--population", "600"),
        *("--seed", "0", "--out", str(tmp_path / "run")),
    )
    assert ran.exit_code == 0, ran.output
    assert "First the mean of the features: noise with multiplier" in ran.output
    accuracy = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]["accuracy"]
    assert accuracy > 0.8
    assert set(load_file(tmp_path / "run" / "model.safetensors")) == {"scores.weight", "mean"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("iris", "--recipe", "auto"), "needs --epsilon"),
        (("iris", "--recipe", "auto", "--epsilon", "1", "--steps", "9"), "chooses what --steps would say"),
        (("diabetes", "--recipe", "auto", "--epsilon", "1"), "the target of diabetes is a number"),
    ],
)
def test_what_contradicts_a_recipe_is_refused(words, complaint):
    ran = tacit(*words)
    assert ran.exit_code != 0
    assert complaint in " ".join((ran.output + str(ran.exception)).split())
