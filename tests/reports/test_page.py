"""The page about a run: complete, self-contained, the same as its twin, and nothing in it that must stay secret."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from support.report_folders import Outline, run_command
from tacit.accounting import Gaussian, curve
from tacit.cli import main
from tacit.guarantee import Guarantee
from tacit.reports import run
from tacit.reports.curves import Spending
from tacit.reports.page import to_svg, write_run
from tacit.reports.plots import draw_spending, draw_tradeoff
from tacit.reports.wording import percent_up, up


@pytest.fixture(scope="module")
def folder(run_folder) -> Path:
    return run_folder


@pytest.mark.slow
def test_the_page_loads_nothing_from_anywhere(html):
    assert Outline(html).loaded == []
    assert "@import" not in html
    assert re.findall(r"url\((?!#)[^)]*\)", html) == []


@pytest.mark.slow
def test_every_identifier_is_there_once_and_every_label_leads_to_one(html):
    outline = Outline(html)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.labels) <= set(outline.ids)
    assert re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', html)
    assert set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', html)) <= set(outline.ids)


@pytest.mark.slow
def test_headings_go_down_one_by_one(html):
    levels = [int(tag[1]) for tag in Outline(html).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


@pytest.mark.slow
def test_the_numbers_on_the_page_are_those_of_the_event(folder, html, twin):
    guarantee = Guarantee.from_json((folder / "guarantee.json").read_text())
    certified = curve(guarantee.event)
    text = Outline(html).text
    lower, upper = certified.epsilon_bounds(1e-4)
    assert (twin["guarantee"]["epsilon"]["lower"], twin["guarantee"]["epsilon"]["upper"]) == (lower, upper)
    assert f"ε = {up(upper)} and δ = 0.0001" in text
    for rate in (0.001, 0.01):
        assert f"With {100 * rate:g} % false alarms, no attack finds more than" in text
        assert percent_up(certified.true_positive_rate(rate)) in text
    for row in twin["guarantee"]["profile"]:
        assert row["upper"] == certified.epsilon(row["delta"])
        assert up(row["upper"]) in text
    assert twin["guarantee"]["attacker"]["mu"] == certified.mu(1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "add/remove one example",
        "one example (one row)",
        "Sampling, as implemented Poisson",
        "Poisson: each example is in each lot independently, at rate",
        "PLD: privacy loss distributions",
        "The weights after every step",
        "What is not protected Everything declared public: the population",
        "Test examples, which are assumed to be public.",
        "Tuning Not included",
        "Abadi et al. 2016, moments accountant",
        "GaussianNoise",
        "Baseline without privacy",
        "tacit train iris --method dpsgd",
        "whoever trains the model: they hold the data",
        "Fingerprint",
    ],
)
def test_everything_that_a_report_must_say_is_said(html, words):
    assert words in Outline(html).text


@pytest.mark.slow
def test_the_page_carries_its_twin(html, twin):
    [carried] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', html, re.DOTALL)
    assert json.loads(carried) == twin


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["<!--<script>", "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>']
)
def test_a_name_with_markup_stays_text(folder, tmp_path, name):
    page, _ = write_run({**run.read_run(folder), "title": name}, tmp_path)
    html = page.read_text()
    assert html.count("<script") == 1
    assert "<!--" not in html
    assert "<img" not in html
    [carried] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', html, re.DOTALL)
    assert json.loads(carried)["title"] == name


@pytest.mark.slow
def test_what_the_page_says_of_its_terms_is_in_the_twin(html, twin):
    guarantee, text = twin["guarantee"], Outline(html).text
    assert len(guarantee["unprotected"]) == 4
    for words in (*guarantee["unprotected"], guarantee["trusted"], guarantee["accountant"]["version"]):
        assert words in text
    assert guarantee["sampling"]["implemented"].startswith("Poisson: each example is in each lot")
    assert guarantee["sampling"]["assumed"].startswith("Poisson: each example is in each lot")
    for name, words in twin["settings_in_words"]:
        assert f"{name} {words}" in text
    for words in (*twin["command_in_words"], *twin["utility"]["sentences"]):
        assert words in text


@pytest.mark.slow
def test_every_curve_that_is_drawn_is_in_the_twin(folder, twin):
    event = Guarantee.from_json((folder / "guarantee.json").read_text()).event
    over = twin["epsilon_over_steps"]
    assert over["upper"][-1] == twin["guarantee"]["epsilon"]["upper"]
    for by in ("rdp", "moments", "clt"):
        assert over["others"][by][-1] == curve(event, by=by).epsilon(1e-4)
    labels = [line.get_label() for line in draw_spending(Spending(**over), Figure().subplots(), 3.0).get_lines()]
    assert len(labels) == 5
    [middle] = [place for place, rate in enumerate(twin["tradeoff"]["false_alarms"]) if rate == 1.0]
    assert twin["tradeoff"]["central_limit"][middle] == pytest.approx(0.0, abs=1e-9)
    assert twin["tradeoff"]["marked"] == [[rate, curve(event).true_positive_rate(rate)] for rate in (0.001, 0.01)]


@pytest.mark.slow
def test_the_claim_is_judged_in_one_sentence(html):
    text = Outline(html).text
    assert re.search(r"Status of the claim: proven ; here it is [a-z]", text)
    assert "here it is here it is" not in text


@pytest.mark.slow
def test_the_fingerprint_is_of_the_data_and_the_salt(folder, twin):
    import numpy as np

    from tacit.datasets import load
    from tacit.ledger import fingerprint

    salt = bytes.fromhex(json.loads((folder / "settings.json").read_text())["salt"])
    assert twin["data"]["fingerprint"] == fingerprint(np.frombuffer(salt, np.uint8), *load("iris").train)
    assert twin["data"]["fingerprint"] != fingerprint(*load("iris").train)


@pytest.mark.slow
def test_the_command_repeats_the_run(folder, twin, tmp_path):
    run_command(f"{twin['command'].removeprefix('tacit ')} --out {tmp_path / 'again'}")
    first, again = (json.loads((each / "metrics.json").read_text()) for each in (folder, tmp_path / "again"))
    assert first["settings"] == again["settings"]
    assert first["multiplier"] == again["multiplier"]


@pytest.mark.slow
def test_the_model_without_privacy_is_trained_once(folder, twin):
    written = json.loads((folder / "baseline.json").read_text())
    assert twin["utility"]["non_private"] == written
    assert written["final"] > 0.8


def test_figures_are_vectors_with_names_and_follow_the_theme():
    drawn = Figure(layout="constrained")
    draw_tradeoff(curve(Gaussian(2.0)), delta=1e-5, axes=drawn.subplots())
    svg = to_svg(drawn, key="k", title="A <title>", description="words")
    assert svg.startswith("<svg ")
    assert '<title id="k-title">A &lt;title&gt;</title><desc id="k-words">words</desc>' in svg
    assert 'role="img" aria-labelledby="k-title k-words"' in svg
    assert "<text" in svg
    assert "<image" not in svg
    assert "<style" not in svg
    # Every colour is the theme's.
    assert re.findall(r"#[0-9a-fA-F]{6}", svg) == []


def test_a_folder_without_a_run_is_refused(tmp_path):
    from tacit.errors import InvalidArgument

    with pytest.raises(InvalidArgument, match=r"There is no run in .*settings.json cannot be read"):
        run.read_run(tmp_path)


@pytest.mark.parametrize("name", ["nothing", "patients.csv", "."])
def test_the_command_says_that_there_is_no_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patients.csv").write_text("age\n1\n")
    monkeypatch.setattr("sys.argv", ["tacit", "report", name])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert f"There is no run in {name}: settings.json cannot be read" in capsys.readouterr().err


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_an_error(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tacit", "report", str(folder), "--out", str(folder / "metrics.json")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "The report cannot be written to" in capsys.readouterr().err
