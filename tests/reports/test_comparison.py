"""A comparison as facts, words, picture and page: every score is there with what its promise is worth."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from support.report_folders import METHODS, Outline, comparison_of
from tacit.accounting import curve
from tacit.datasets import load
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.ledger import fingerprint
from tacit.methods.registry import list_gradient_names
from tacit.reports import cells, comparison, score_plots
from tacit.reports.answer import Answer
from tacit.reports.page import render_comparison, write_comparison
from tacit.reports.scores import describe_mean
from tacit.reports.wording import up
from tacit.workflows.baseline import HOW


@pytest.fixture(scope="module")
def folder(comparison_folder):
    return comparison_folder


def cells_of(folder, row) -> list[dict]:
    cells = [json.loads(file.read_text()) for file in (folder / "cells").glob("*.json")]
    return [each for each in cells if all(each[name] == row[name] for name in ("method", "mode", "epsilon"))]


def trained(twin) -> list[dict]:
    """All rows but those that a method refused."""
    return [row for row in twin["rows"] if not row["refused"]]


@pytest.mark.slow
def test_there_is_a_row_for_every_method_form_and_epsilon(twin):
    assert len(twin["rows"]) == 1 + 2 * len(METHODS)
    assert twin["rows"][0]["label"] == "without privacy"


@pytest.mark.slow
def test_a_row_is_the_mean_of_its_seeds_with_an_interval_of_shares(folder, twin):
    for row in trained(twin):
        values = [cell["score"]["accuracy"] for cell in cells_of(folder, row)]
        assert len(values) == row["seeds"] == 2
        assert row["mean"] == pytest.approx(sum(values) / 2)
        assert 0 <= row["interval"][0] <= row["mean"] <= row["interval"][1] <= 1
        assert row["interval"][1] - row["interval"][0] > 0.02


@pytest.mark.slow
def test_every_rigorous_row_is_certified_for_what_was_asked(folder, twin):
    for row in twin["rows"]:
        if row["mode"] == "rigorous" and row["epsilon"] is not None:
            event = Guarantee.from_json(json.dumps(cells_of(folder, row)[0]["guarantee"])).event
            assert row["certified"] == curve(event).epsilon(1e-5) <= row["epsilon"] * (1 + 1e-6)
            assert row["certified"] > 0.9 * row["epsilon"]


@pytest.mark.slow
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
        assert not any(cells.is_proven(row) for row in published)
        assert f"{method} (as published)" in text
    assert "claims that do not hold: 3 of 5 (noisy_sgd, directional, input_perturbation)" in text


@pytest.mark.slow
def test_the_page_says_what_the_table_on_the_terminal_says(twin, html):
    text = Outline(html).text
    for row in trained(twin):
        assert row["score_words"] == describe_mean(row)
        assert row["score_words"] in text
        if row["certified"] is not None:
            assert up(row["certified"], 4) in text
    assert f"{twin['release']['in_words']} {' '.join(twin['release']['warnings'])}" in text
    assert "if the data are public" in twin["release"]["warnings"][-1]
    assert "if it takes them: steps 6." in text
    assert "None" not in re.findall(r'class="status (\w+)"', html)
    assert twin["commands"] == ["tacit compare iris --mode both --steps 6"]
    assert twin["commands"][0] in text
    for words in twin["words"]:
        assert " ".join(words.split()) in text


@pytest.mark.slow
def test_no_path_of_whoever_compared_is_on_the_page(folder, tmp_path):
    part = without(folder, tmp_path / "part", "dpsgd-1-seed1.json")
    plan = json.loads((part / "comparison.json").read_text())
    typed = f"tacit compare iris --data-path /home/ann/iris.zip --model=/home/ann/net.py:make --out {part}"
    plan["plans"][0]["command"] = typed
    (part / "comparison.json").write_text(json.dumps(plan))
    facts, (page, twin, _) = write_comparison(part, tmp_path)
    told = "tacit compare iris --data-path DATA --model=net.py:make --out FOLDER"
    assert facts["commands"] == [told]
    assert facts["progress"]["caveat"].endswith(f"Resume with: {told}")
    assert "DATA is your copy of the data. FOLDER is the folder of the comparison." in Outline(page.read_text()).text
    for text in (page.read_text(), twin.read_text()):
        assert "/home/ann" not in text
        assert str(tmp_path) not in text
    # On the terminal, the way on is the one that was typed.
    (part / "cells/dpsgd-1-seed0.json").write_text("{}")
    with pytest.raises(InvalidArgument, match=f"train it again: {re.escape(typed)}$"):
        comparison.read_comparison(part)


@pytest.mark.slow
def test_the_page_of_a_comparison_is_self_contained(html, twin):
    outline = Outline(html)
    assert outline.loaded == []
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.labels) <= set(outline.ids)
    assert html.count("<svg") == 2
    assert re.findall(r"url\((?!#)[^)]*\)", html) == []


@pytest.mark.slow
def test_each_adjacency_has_its_own_panel(twin):
    titles = [axes.get_title(loc="left") for axes in score_plots.draw_scores(twin).axes]
    assert titles == ["one example added or removed", "one example replaced"]


@pytest.mark.slow
def test_the_picture_is_written_beside_the_page(folder):
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")


def others(axes) -> list:
    """The grey lines."""
    return [line for line in axes.lines if str(line.get_gid()).startswith(score_plots.OTHERS)]


@pytest.mark.slow
def test_every_proven_row_is_in_the_picture_and_no_other(twin):
    for axes, panel in zip(score_plots.draw_scores(twin).axes, ("add_remove", "replace_one"), strict=True):
        named = [point[1] for bars in axes.containers for point in bars[0].get_xydata()]
        grey = [point[1] for line in others(axes) for point in line.get_xydata()]
        proven = [row["mean"] for row in trained(twin) if row["adjacency"] == panel and cells.is_proven(row)]
        assert sorted([*named, *grey]) == pytest.approx(sorted(proven))


@pytest.mark.slow
def test_the_named_methods_and_their_bars_are_within_the_axes(twin):
    for axes in score_plots.draw_scores(twin).axes:
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        ends = [end for bars in axes.containers for part in bars[2] for end in np.concatenate(part.get_segments())]
        assert ends
        assert all(left < x < right and low <= y <= high for x, y in ends)


@pytest.mark.slow
def test_the_chosen_methods_have_their_names_beside_their_lines(twin):
    for axes, panel in zip(score_plots.draw_scores(twin).axes, ("add_remove", "replace_one"), strict=True):
        written = [text.get_text() for text in axes.texts]
        chosen = [one["method"] for one in twin["answer"]["choices"] if one["adjacency"] == panel]
        assert chosen
        assert set(chosen) <= set(written)
        assert any(words.startswith("without privacy") for words in written)


def test_names_beside_lines_do_not_overlap():
    axes = Figure().subplots()
    axes.set_ylim(0, 1)
    rows = [(f"method {place}", mean, "#000000") for place, mean in enumerate((0.5, 0.51, 0.52, 0.9))]
    score_plots._write_names(axes, rows)
    heights = sorted(text.xy[1] for text in axes.texts)
    assert min(np.diff(heights)) >= 0.05


@pytest.mark.slow
def test_an_epsilon_of_zero_has_a_place(twin):
    """A large delta may leave nothing for epsilon; a logarithm has no zero."""
    rows = [{**row, "certified": 0.0} if row["certified"] is not None else row for row in trained(twin)]
    axes = score_plots.draw_scores({**twin, "rows": rows}).axes[0]
    assert axes.get_xticklabels()[0].get_text() == "≤ 0.001"


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.001, 1e-5])
def test_the_least_epsilon_is_drawn_without_a_warning(twin, epsilon):
    """Warnings are errors here; where all marks lie at one place, matplotlib once looked for the axis' ends at zero."""
    rows = [{**row, "certified": epsilon} for row in trained(twin) if row["method"] == "dpsgd"]
    plain = [row for row in trained(twin) if row["method"] == "non_private"]
    facts = {**twin, "rows": [*plain, *rows[:1]]}
    score_plots.draw_scores(facts).canvas.draw()
    assert render_comparison(facts)


@pytest.mark.slow
def test_an_accuracy_is_never_drawn_above_all(twin):
    for axes in score_plots.draw_scores(twin).axes:
        assert all(end[1] <= 1 + 1e-9 for bars in axes.containers for end in np.concatenate(bars[2][0].get_segments()))


@pytest.mark.slow
def test_every_row_says_all_about_its_guarantee(folder, twin, html):
    said = Outline(html).text
    for row in trained(twin):
        if row["method"] == "non_private":
            assert row["details"] is None
            continue
        guarantee = row["details"]["guarantee"]
        event = Guarantee.from_json(json.dumps(cells_of(folder, row)[0]["guarantee"])).event
        assert guarantee["statement"] in said
        assert guarantee["sampling"]["implemented"] in said
        assert guarantee["event"] == json.loads(event.to_json())
        for words in (*guarantee["unprotected"], *row["details"]["released"], *row["details"]["not_released"]):
            assert " ".join(words.split()) in said
        if row["certified"] is None:
            assert guarantee["attacker"] is None
            assert guarantee["accountant"] is None
            continue
        few, more = guarantee["attacker"]["found"]
        assert (few["false_alarms"], more["false_alarms"]) == (0.001, 0.01)
        assert more["members_found"] == curve(event).true_positive_rate(0.01)
        assert len(guarantee["profile"]) >= 5
        assert guarantee["epsilon"]["lower"] <= guarantee["epsilon"]["upper"] == row["certified"]
        assert guarantee["accountant"]["version"] == twin["made"]["tacit"]
        assert guarantee["sampling"]["assumed"] in said


@pytest.mark.slow
def test_cells_of_before_there_was_an_auc_still_have_their_page(folder, tmp_path):
    old = without(folder, tmp_path / "old", "[!d]*")
    for file in (old / "cells").glob("*.json"):
        cell = json.loads(file.read_text())
        del cell["auc"]
        curve = {"false_alarms": [0.0, 1.0], "missed_lower": [1.0, 0.0], "missed_upper": [1.0, 0.0]}
        cell["details"]["tradeoff"] = {**curve, "central_limit": None, "marked": [[0.001, 0.1]]}
        file.write_text(json.dumps(cell))
    facts, (page, _, _) = write_comparison(old, old)
    assert {row["auc"] for row in facts["rows"]} == {None}
    assert page.read_text().count("<svg") == 1


@pytest.mark.slow
def test_the_page_is_small_without_its_details(html):
    shown = re.sub(r"<details>.*</details>", "", html, flags=re.DOTALL)
    assert len(shown.encode()) < 150_000


@pytest.mark.slow
def test_the_page_holds_its_facts_without_the_guarantees(html, twin):
    (text,) = re.findall(r'id="facts">(.*?)</script>', html, flags=re.DOTALL)
    embedded = json.loads(text)
    assert embedded["answer"] == twin["answer"]
    assert embedded["rows"] == [{name: row[name] for name in row if name != "details"} for row in twin["rows"]]


@pytest.mark.slow
def test_gradient_methods_say_their_noise_rate_and_steps(twin, html):
    for row in trained(twin):
        if row["method"] in list_gradient_names() and row["mode"] == "rigorous":
            assert row["multiplier"] > 0
            assert row["learning_rate"] > 0
            spent = row["details"]["epsilon_over_steps"]
            assert spent["steps"][-1] == twin["settings"]["steps"]
            assert spent["upper"][-1] == row["certified"]
    assert twin["settings"].get("learning_rate", 0) is not None
    assert "Multiplier" in html
    methods = len({row["label"] for row in twin["rows"] if row["details"] is not None})
    assert html.count("<details>") == html.count("<summary>") == 5 + methods


@pytest.mark.slow
def test_the_fingerprint_is_that_of_the_data_with_a_secret(folder, twin, html):
    plan = json.loads((folder / "comparison.json").read_text())
    secret = np.frombuffer(bytes.fromhex(plan["salt"]), np.uint8)
    assert twin["data"]["fingerprint"] == fingerprint(secret, *load("iris").train)
    assert twin["data"]["fingerprint"] in html
    assert plan["salt"] not in html
    assert plan["salt"] not in json.dumps(twin)


@pytest.mark.slow
def test_how_the_model_without_privacy_came_about_is_said(twin, html):
    assert twin["baseline_in_words"] == HOW
    assert HOW in Outline(html).text


def without(folder, to, *patterns):
    """A copy of the comparison without some of its cells, as after Ctrl-C."""
    shutil.copytree(folder, to)
    for pattern in patterns:
        for file in (to / "cells").glob(pattern):
            file.unlink()
    return to


@pytest.mark.slow
def test_an_unfinished_comparison_is_not_passed_off_as_whole(folder, tmp_path, twin):
    part = without(folder, tmp_path / "part", "non_private*", "directional*", "dpsgd-1-seed1.json")
    facts, (page, _, picture) = write_comparison(part, part)
    text = Outline(page.read_text()).text
    planned = 2 * (1 + 2 * len(METHODS))
    assert facts["progress"]["done"] == planned - 2 - 4 - 1
    assert f"Unfinished. {planned - 7} of {planned} cells are trained" in text
    assert "dpsgd at ε = 1 (1 seed), " in text
    assert "without privacy (2 seeds)" in text
    assert "directional (as published) at ε = 1 (2 seeds)" in text
    assert "Resume with: tacit compare iris" in text
    assert not facts["answer"]["choices"]
    assert twin["answer"]["choices"]
    assert facts["seeds"] == [1, 2]
    lines = Answer.of(facts).lines(page)
    assert any(line.startswith(f"Unfinished: {planned - 7} of {planned} cells are trained") for line in lines)
    assert all(len(line) <= 80 for line in lines[:-1])
    assert picture.is_file()
    assert "Unfinished." not in (folder / "report.html").read_text()


@pytest.mark.slow
def test_what_an_earlier_command_asked_for_is_still_missing_after_a_smaller_one(folder, tmp_path):
    data, planned = comparison_of(methods=("dpsgd", "output_perturbation"))
    shutil.copytree(folder / "cells", tmp_path / "cells")
    for file in tmp_path.glob("cells/output_perturbation*"):
        file.unlink()
    planned.write(data, tmp_path, "the larger one")
    for name in ("another", "the smaller one"):
        replace(planned, methods=("dpsgd",), seeds=1).write(data, tmp_path, name)
    facts = comparison.read_comparison(tmp_path)
    assert facts["commands"] == ["the larger one", "the smaller one"]
    assert (facts["progress"]["cells"], facts["progress"]["done"]) == (10, 6)
    assert "Missing: output_perturbation at ε = 1 (2 seeds), " in facts["progress"]["caveat"]
    assert facts["progress"]["caveat"].endswith("Resume with: the larger one")


@pytest.mark.slow
def test_a_comparison_without_a_finished_cell_says_how_to_go_on(folder, tmp_path):
    with pytest.raises(InvalidArgument, match=r"no finished cell yet\. Resume with: tacit compare iris"):
        comparison.read_comparison(without(folder, tmp_path / "none", "*"))


@pytest.mark.slow
def test_one_model_without_privacy_alone_is_no_error(folder, tmp_path):
    part = without(folder, tmp_path / "part", "[!n]*", "noisy*")
    facts, _ = write_comparison(part, part)
    assert [row["label"] for row in facts["rows"]] == ["without privacy"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds no comparison"),
        ({"comparison.json": "{"}, "holds no comparison"),
        ({"comparison.json": "[1]"}, "holds no comparison"),
        ({"comparison.json": '{"command": "tacit compare iris"}'}, "holds no comparison"),
        ({"comparison.json": '{"command": "c", "data": {}, "settings": {}}'}, "holds no comparison"),
        (
            {"comparison.json": '{"command": "c", "data": {}, "settings": {}, "planned": []}'},
            "holds no comparison",
        ),
    ],
)
def test_a_folder_without_cells_is_refused(tmp_path, files, words):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument, match=words):
        comparison.read_comparison(tmp_path)


@pytest.mark.slow
def test_the_switch_is_there_only_if_it_shows_something(twin):
    assert 'for="others"' in render_comparison(twin)
    best = {label for panel in score_plots.list_panels(twin) for label in score_plots.choose_best_methods(twin, panel)}
    few = [row for row in twin["rows"] if row["epsilon"] is None or row["label"] in best]
    assert 'for="others"' not in render_comparison({**twin, "rows": few})
