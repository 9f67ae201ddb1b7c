"""From cells to rows: what is damaged is named and never guessed, and what diverged has no score."""

import itertools
import json
import math
import shutil
from dataclasses import replace

import pytest

from support.report_folders import Outline, comparison_of, trained
from tacit.errors import InvalidArgument
from tacit.reports import cells, comparison, score_plots
from tacit.reports.page import render_comparison, write_comparison
from tacit.workflows.cells import Job

NAME = "output_perturbation-1-seed0.json"
JOB = Job("output_perturbation", "rigorous", 1.0, (0,))


@pytest.fixture
def one(comparison_folder, tmp_path):
    """A comparison of which a single cell is there."""
    (tmp_path / "cells").mkdir()
    for name in ("comparison.json", f"cells/{NAME}"):
        shutil.copy(comparison_folder / name, tmp_path / name)
    return tmp_path


def changed(cell, **changes) -> str:
    return json.dumps({name: value for name, value in {**cell, **changes}.items() if value != "gone"})


def detailed(cell, **changes) -> str:
    return changed(cell, details={**cell["details"], **changes})


# Earlier versions wrote the curve of every row.
CURVE = {
    "false_alarms": [0.0, 0.5, 1.0],
    "missed_lower": [1.0, 0.2, 0.0],
    "missed_upper": [1.0, 0.3, 0.0],
    "central_limit": None,
    "marked": [[0.001, 0.01]],
    "delta": 1e-5,
    "epsilon": 1.0,
}
# Sentences as they were written before assumptions had keys.
OLD_ASSUMPTIONS = {
    "rows_clipped": "Every row was clipped to a norm of 1, which was declared and not looked up.",
    "public_count": "The number of examples is public.",
}
DAMAGES = {
    "cut off": lambda cell: changed(cell)[:100],
    "no cell": lambda cell: "[]",
    "a method alone": lambda cell: '{"method": "output_perturbation"}',
    "no score": lambda cell: changed(cell, score="gone"),
    "a list as score": lambda cell: changed(cell, score=[0.5]),
    "a word as score": lambda cell: changed(cell, score={"accuracy": "high"}),
    "no seconds": lambda cell: changed(cell, seconds="gone"),
    "no guarantee": lambda cell: changed(cell, guarantee={}),
    "no details": lambda cell: changed(cell, details="gone"),
    "few details": lambda cell: changed(cell, details={"guarantee": {}}),
    "no such method": lambda cell: changed(cell, method="magic"),
    "no such mode": lambda cell: changed(cell, mode=[]),
    "no epsilon": lambda cell: changed(cell, epsilon=None),
    "an epsilon in quotes": lambda cell: changed(cell, epsilon="1"),
    "a seed in quotes": lambda cell: changed(cell, seed="0"),
    "an accuracy above all": lambda cell: changed(cell, score={"accuracy": 7.5}),
    "an error below zero": lambda cell: changed(cell, score={"rmse": -1.0}),
    "two scores": lambda cell: changed(cell, score={"rmse": 1.0, "accuracy": 1.0}),
    "half an interval": lambda cell: changed(cell, interval=[0.5]),
    "seconds in words": lambda cell: changed(cell, seconds="x"),
    "no seconds at all": lambda cell: changed(cell, seconds=None),
    "a refusal without words": lambda cell: changed(cell, refused=3),
    "a choice that is none": lambda cell: changed(cell, choices=[3]),
    "a list as guarantee": lambda cell: changed(cell, guarantee=[]),
    "no such adjacency": lambda cell: changed(cell, guarantee={**cell["guarantee"], "adjacency": "none"}),
    "an epsilon in words": lambda cell: changed(
        cell, guarantee={**cell["guarantee"], "proven": {"epsilon_upper": "x"}}
    ),
    "an empty curve": lambda cell: detailed(cell, tradeoff={}),
    "a curve cut off": lambda cell: detailed(cell, tradeoff={**CURVE, "missed_lower": [1.0]}),
    "a curve with more": lambda cell: detailed(cell, tradeoff={**CURVE, "more": []}),
    "an empty guarantee": lambda cell: detailed(cell, guarantee={}),
    "nothing of the spending": lambda cell: detailed(cell, epsilon_over_steps={"steps": [1]}),
    "a number as what is released": lambda cell: detailed(cell, released=[1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_cell_is_named_with_its_remedy_and_trained_again(one, damage):
    path = one / "cells" / NAME
    assert JOB.missing(one).seeds == ()
    path.write_text(damage(json.loads(path.read_text())))
    assert JOB.missing(one).seeds == (0,)
    with pytest.raises(InvalidArgument, match=rf"{NAME} is damaged: .*Delete it, and train it again: tacit compare"):
        comparison.read_comparison(one)


def parts(values, path=()):
    """The way to every part of a cell."""
    for name, inner in values.items():
        yield (*path, name)
        if isinstance(inner, dict) and name != "event":
            yield from parts(inner, (*path, name))


@pytest.mark.slow
def test_no_damage_comes_as_far_as_the_page(one):
    """Whatever is taken away or made something else is found in the file, or does not matter to the page."""
    path = one / "cells" / NAME
    whole = path.read_text()
    for (*way, last), instead in zip(parts(json.loads(whole)), itertools.cycle(({}, "x", None, 7))):
        cell = json.loads(whole)
        at = cell
        for name in way:
            at = at[name]
        at[last] = instead
        path.write_text(json.dumps(cell))
        try:
            facts = comparison.read_comparison(one)
        except InvalidArgument:
            continue
        assert render_comparison(facts)


@pytest.mark.slow
def test_a_cell_from_before_assumptions_had_keys_is_read_as_one_of_now(one):
    path = one / "cells" / NAME
    now = cells.read_cell(path, remedy="")
    told = now["details"]["guarantee"]
    told["assumptions"] = [{"key": key, "text": text} for key, text in OLD_ASSUMPTIONS.items()]
    texts = list(OLD_ASSUMPTIONS.values())
    sentences = [*told["sentences"], f"It rests on this: {' '.join(texts)}", *told["notes"]]
    old = {**now["details"], "guarantee": {**told, "assumptions": texts, "sentences": sentences}}
    path.write_text(changed(now, guarantee={**now["guarantee"], "version": 1}, details=old))
    assert cells.read_cell(path, remedy="")["details"] == now["details"]
    page = render_comparison(comparison.read_comparison(one))
    assert page.count(f"<li>{texts[0]}</li>") == 1
    assert "It rests on this" not in page


@pytest.mark.slow
def test_a_cell_with_the_curve_that_earlier_versions_wrote_is_kept(one):
    path = one / "cells" / NAME
    path.write_text(detailed(json.loads(path.read_text()), tradeoff=CURVE))
    assert JOB.missing(one).seeds == ()
    assert render_comparison(comparison.read_comparison(one))


@pytest.mark.slow
def test_a_copy_of_a_cell_is_no_other_seed(comparison_folder, tmp_path):
    shutil.copytree(comparison_folder, tmp_path / "twice")
    cells = tmp_path / "twice/cells"
    shutil.copy(cells / "dpsgd-1-seed0.json", cells / "dpsgd-1-seed0 (copy).json")
    with pytest.raises(
        InvalidArgument, match=r"dpsgd-1-seed0 \(copy\)\.json and .*dpsgd-1-seed0\.json hold the same cell"
    ):
        comparison.read_comparison(tmp_path / "twice")


@pytest.mark.slow
def test_a_cell_of_other_data_is_not_averaged_with_the_rest(comparison_folder, tmp_path):
    shutil.copytree(comparison_folder, tmp_path / "mixed")
    path = tmp_path / "mixed/cells/dpsgd-1-seed0.json"
    path.write_text(changed(json.loads(path.read_text()), score={"rmse": 1.0}))
    with pytest.raises(InvalidArgument, match="some by rmse"):
        comparison.read_comparison(tmp_path / "mixed")


@pytest.mark.slow
def test_a_cell_under_the_name_of_another_is_trained_again(one):
    shutil.copy(one / "cells" / NAME, one / "cells" / "output_perturbation-2-seed0.json")
    assert Job("output_perturbation", "rigorous", 2.0, (0,)).missing(one).seeds == (0,)


@pytest.mark.slow
def test_a_training_that_diverges_is_said_to_and_has_no_mark(tmp_path):
    data, planned = comparison_of(methods=("dpsgd",), seeds=1, name="diabetes", learning_rate=9e29)
    trained(tmp_path, data, replace(planned, modes=("rigorous",)))
    cell = (tmp_path / "cells/dpsgd-1-seed0.json").read_text()
    assert json.loads(cell, parse_constant=pytest.fail)["score"] == {"rmse": None}
    facts = json.loads((tmp_path / "report.json").read_text())
    assert comparison.write_table(facts).splitlines()[2].split()[:2] == ["dpsgd", "diverged"]
    text = Outline((tmp_path / "report.html").read_text()).text
    assert "Training diverged: dpsgd at ε = 1." in text
    assert "diverged (1 of 1 seed)" in text
    assert not any("proven at this ε" in words for words in facts["words"])


def scored(*values, method="dpsgd") -> dict:
    """The row of cells with such errors, as an older tacit wrote them."""
    about = {"method": method, "mode": "rigorous", "epsilon": 1.0, "seconds": 1.0, "interval": None}
    proven = {"proven": {"epsilon_upper": 1.0}, "claim": None, "unprotected": [], "status": "proven"}
    guarantee = {**proven, "adjacency": "add_remove"}
    made = [{**about, "seed": n, "score": {"rmse": value}, "guarantee": guarantee} for n, value in enumerate(values)]
    (row,) = cells.make_rows(made, {"constant": 2.0, "test_examples": 10})
    return row


@pytest.mark.slow
def test_where_rows_have_other_numbers_of_seeds_each_says_its_own(comparison_folder, tmp_path):
    shutil.copytree(comparison_folder, tmp_path / "part")
    (tmp_path / "part/cells/dpsgd-1-seed1.json").unlink()
    facts, (page, _, _) = write_comparison(tmp_path / "part", tmp_path)
    said = {row["label"]: row["score_words"] for row in facts["rows"]}
    assert said["dpsgd"].endswith("), 1 seed")
    assert said["output_perturbation"].endswith("), 2 seeds")
    assert "Rows with one seed have an interval over test examples only" in facts["interval_in_words"]
    text = Outline(page.read_text()).text
    assert "δ = 1e-05, 1 to 2 seeds," in text
    assert said["dpsgd"] in text
    assert score_plots.draw_scores(facts).get_suptitle().endswith("1 to 2 seeds, unfinished: 21 of 22 cells)")


@pytest.mark.parametrize("value", [math.inf, math.nan, None])
def test_one_seed_that_diverges_leaves_no_mean(value):
    row = scored(1.0, value, 1.0)
    assert (row["mean"], row["interval"], row["diverged"], row["is_idle"]) == (None, None, 1, False)
    assert scored(1.0, 1.5)["mean"] == 1.25


@pytest.mark.slow
def test_a_model_without_privacy_that_diverged_has_no_line(comparison_folder):
    twin = json.loads((comparison_folder / "report.json").read_text())
    gone = {"mean": None, "interval": None, "diverged": 2}
    facts = {**twin, "rows": [{**row, **gone} if row["method"] == "non_private" else row for row in twin["rows"]]}
    for axes in score_plots.draw_scores(facts).axes:
        assert not any("without privacy" in text.get_text() for text in axes.texts)
