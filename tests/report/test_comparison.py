"""A comparison as facts, words, picture and page: every score is there with what its promise is worth."""

import json
import math
import re

import numpy as np
import pytest

from report_folders import METHODS, Outline
from tacit.accounting import curve
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.report import comparison, overview
from tacit.report.wording import up


@pytest.fixture(scope="module")
def folder(comparison_folder):
    return comparison_folder


def cells_of(folder, row) -> list[dict]:
    cells = [json.loads(file.read_text()) for file in (folder / "cells").glob("*.json")]
    return [each for each in cells if all(each[name] == row[name] for name in ("method", "mode", "epsilon"))]


def trained(twin) -> list[dict]:
    """All rows but those that a method refused."""
    return [row for row in twin["rows"] if not row["refused"]]


def test_there_is_a_row_for_every_method_form_and_epsilon(twin):
    assert len(twin["rows"]) == 1 + 2 * len(METHODS)
    assert twin["rows"][0]["label"] == "without privacy"


def test_a_row_is_the_mean_of_its_seeds_with_their_interval(folder, twin):
    for row in trained(twin):
        values = [cell["score"]["accuracy"] for cell in cells_of(folder, row)]
        assert len(values) == row["seeds"] == 2
        assert row["mean"] == pytest.approx(sum(values) / 2)
        # Student's t with one degree of freedom is the Cauchy law, whose 97.5 % point is tan(0.475 pi).
        exact = math.tan(0.475 * math.pi) * abs(values[0] - values[1]) / 2
        assert row["half"] == pytest.approx(min(exact, max(row["mean"], 1 - row["mean"])))


def test_every_rigorous_row_is_certified_for_what_was_asked(folder, twin):
    for row in twin["rows"]:
        if row["mode"] == "rigorous" and row["epsilon"] is not None:
            event = Guarantee.from_json(json.dumps(cells_of(folder, row)[0]["guarantee"])).event
            assert row["certified"] == curve(event).epsilon(1e-5) <= row["epsilon"] * (1 + 1e-6)
            assert row["certified"] > 0.9 * row["epsilon"]


def test_refuted_methods_are_labelled_in_either_form(twin, html):
    text = Outline(html).text
    for method in ("noisy_sgd", "directional", "input_perturbation"):
        rigorous, published = (
            [row for row in twin["rows"] if (row["method"], row["mode"]) == (method, mode)]
            for mode in ("rigorous", "paper")
        )
        assert {row["label"] for row in rigorous} == {f"{method} (repaired)"}
        assert all("as published: refuted" in row["claim_words"] for row in rigorous)
        assert {row["status"] for row in published} == {"refuted"}
        assert not any(comparison.is_proven(row) for row in published)
        assert f"{method.replace('_', ' ')} (as published)" in text
    assert "Refuted as published, and repaired so that a proof holds" in text


def test_the_page_says_what_the_table_on_the_terminal_says(twin, html):
    text = Outline(html).text
    for row in trained(twin):
        assert comparison.scored_words(row) in text
        if row["certified"] is not None:
            assert up(row["certified"], 4) in text
    assert "Not for release." in text
    assert twin["command"] in text
    for words in twin["words"]:
        assert " ".join(words.split()) in text


def test_the_page_of_a_comparison_is_self_contained(html):
    outline = Outline(html)
    assert outline.loaded == []
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.labels) <= set(outline.ids)
    assert html.count("<svg") == 2
    assert re.findall(r"url\((?!#)[^)]*\)", html) == []


def test_what_has_no_proof_is_drawn_apart_from_every_epsilon(twin):
    figure = overview.draw_scores(twin)
    for axes in figure.axes:
        names = [each.get_text() for each in axes.get_xticklabels()]
        assert names[-1] == "nothing\nproven"
        assert len(names) > 1
    assert (figure.axes[0].get_title(loc="left"), figure.axes[1].get_title(loc="left")) == (
        "one example added or removed",
        "one example replaced",
    )


def test_the_picture_is_written_beside_the_page(folder):
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")


def row(label="a", mean=0.9, half=0.01, **changes) -> dict:
    given = {"label": label, "method": label, "mean": mean, "half": half, "mode": "rigorous", "epsilon": 1.0}
    about = {"measure": "accuracy", "certified": 1.0, "adjacency": "add_remove", "unprotected": [], "is_idle": False}
    return {**given, **about, "is_repaired": False, "refused": None, "seconds": 1.0, "claim": None, **changes}


DATA = {"test": "public", "constant": 0.7}


def test_the_best_is_named_with_those_that_are_as_good():
    rows = [row("a", 0.9), row("b", 0.905), row("c", 0.5), row("d", 0.99, mode="paper"), row("e", 0.95, certified=None)]
    words = comparison._words(rows, "accuracy", DATA)
    assert words[0] == (
        "At ε = 1 the best with a proof: b with 90.5 ± 1.0 % "
        "(one example added or removed; 1 more within the interval)."
    )


def test_of_errors_the_least_is_the_best():
    rows = [row("a", 50.0, 1.0, measure="rmse"), row("b", 80.0, 1.0, measure="rmse")]
    assert "proof: a with 50 ± 1 (" in comparison._words(rows, "rmse", DATA)[0]


def test_who_learns_nothing_is_told_apart():
    words = " ".join(comparison._words([row("a"), row("b", 0.7, is_idle=True)], "accuracy", DATA))
    assert "no better than one answer for all (70.0 %): b." in words


def test_what_a_method_refuses_is_said_in_its_words():
    rows = [row("a", compares="add/remove", status="proven"), row("b", None, None, refused="No.", certified=None)]
    assert "b does not fit: No." in comparison._words(rows, "accuracy", DATA)
    table = comparison.lines({"rows": rows, "measure": "accuracy"})
    assert table[0] == ["a", "90.0 ± 1.0 %", "1.00", "add/remove", "proven", "1"]
    assert table[1][:2] == ["b", "does not fit"]


def test_one_seed_has_the_interval_of_the_test_examples():
    assert comparison._half(np.array([0.9]), "accuracy", 100) == pytest.approx((0.9448 - 0.8256) / 2, abs=1e-4)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds no comparison that tacit compare wrote"),
        ({"comparison.json": "{"}, "holds no comparison that tacit compare wrote"),
        ({"comparison.json": "[1]"}, "holds no comparison that tacit compare wrote"),
        ({"comparison.json": '{"command": "tacit compare iris"}'}, "holds no comparison that tacit compare wrote"),
        (
            {"comparison.json": '{"command": "tacit compare iris", "data": {}, "settings": {}}'},
            "Go on with: tacit compare iris",
        ),
    ],
)
def test_a_folder_without_cells_is_refused(tmp_path, files, words):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument, match=words):
        comparison.read_comparison(tmp_path)
