"""A CSV of texts as data: trained on by the recipe of texts, scored on held-out ones, predicted from a file."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import tacit
from tacit.cli import app
from tacit.datasets import Bounds, load_table
from tacit.errors import InvalidArgument

BOUNDS = """
rows = 250
[columns]
review = { type = "text" }
stars = { ignore = true }
mood = ["bad", "good"]
"""


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("reviews"), np.random.default_rng(0)
    words = {"bad": ["dull", "boring", "slow"], "good": ["lovely", "funny", "bright"]}
    with (folder / "reviews.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["review", "stars", "mood"])
        for number in range(250):
            mood = ("bad", "good")[number % 2]
            text = " ".join(["a", *rng.choice(words[mood], 3), "film", str(number)])
            out.writerow([text, number % 5, mood])
    (folder / "bounds.toml").write_text(BOUNDS)
    return folder


@pytest.mark.slow
def test_texts_are_trained_on_and_predicted(reviews, tmp_path):
    where = ["--target", "mood", "--bounds", str(reviews / "bounds.toml")]
    words = ["train", str(reviews / "reviews.csv"), *where, "--epsilon", "20", "--out", str(tmp_path / "run"), "--json"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["settings"]["recipe"]["kind"] == "text"
    assert told["test_examples"] is None
    model = tacit.load(tmp_path / "run")
    assert model.predict(["a lovely funny film", "a dull slow film"]).tolist() == ["good", "bad"]
    (tmp_path / "new.csv").write_text("review\na bright and lovely one\n")
    assert tacit.predict(tmp_path / "run", str(tmp_path / "new.csv")).tolist() == ["good"]


def test_what_does_not_fit_texts_is_refused(reviews, tmp_path):
    table, own = str(reviews / "reviews.csv"), {"target": "mood", "epsilon": 1, "out": tmp_path / "run"}
    with pytest.raises(InvalidArgument, match="automatic recipe"):
        tacit.train(table, bounds=reviews / "bounds.toml", steps=3, **own)
    for old, new, said in (
        ("{ ignore = true }", "{ low = 0, high = 5 }", "Beside the text"),
        ('["bad", "good"]', "{ low = 0, high = 5 }", "list of all its values"),
        ("{ ignore = true }", '{ type = "text" }', "are all texts"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            load_table(table, target="mood", bounds=Bounds.parse(BOUNDS.replace(old, new)))


def test_a_text_moves_no_other_text_to_the_other_side(reviews):
    data = load_table(str(reviews / "reviews.csv"), target="mood", bounds=reviews / "bounds.toml")
    lines = (reviews / "reviews.csv").read_text().splitlines()
    fewer = reviews / "fewer.csv"
    fewer.write_text("\n".join(lines[:1] + lines[2:]))
    without = load_table(str(fewer), target="mood", bounds=reviews / "bounds.toml")
    before, after = ({" ".join(text) for text in each.words[0]} for each in (data, without))
    assert after <= before
    assert len(data.words[0]) + len(data.words[1]) == 250
