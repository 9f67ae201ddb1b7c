"""The page about a run: complete, self-contained, the same as its twin, and nothing in it that must stay secret."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path

import pytest

from report_folders import Outline, tacit
from tacit.accounting import Gaussian, Unproven, curve
from tacit.cli import main
from tacit.guarantee import Claim, Guarantee, Status
from tacit.report import facts, figures, page, run
from tacit.report.wording import percent_up, up


@pytest.fixture(scope="module")
def folder(run_folder) -> Path:
    return run_folder


def test_the_page_loads_nothing_from_anywhere(html):
    assert Outline(html).loaded == []
    assert "@import" not in html
    assert re.findall(r"url\((?!#)[^)]*\)", html) == []


def test_every_identifier_is_there_once_and_every_label_leads_to_one(html):
    outline = Outline(html)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.labels) <= set(outline.ids)
    assert re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', html)
    assert set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', html)) <= set(outline.ids)


def test_headings_go_down_one_by_one(html):
    levels = [int(tag[1]) for tag in Outline(html).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


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


@pytest.mark.parametrize(
    "words",
    [
        "add/remove one example",
        "one example (one row)",
        "Sampling, as implemented Poisson",
        "Poisson: each example enters each lot by a coin of its own",
        "PLD: privacy loss distributions",
        "The weights after every step",
        "What is not protected What was declared public: the population",
        "Test examples, which are taken as public.",
        "Tuning Not accounted for",
        "Abadi et al. 2016, moments accountant",
        "GaussianNoise",
        "Without privacy",
        "tacit train iris --method dpsgd",
        "whoever trains: they hold the data",
        "Fingerprint",
    ],
)
def test_everything_that_a_report_must_say_is_said(html, words):
    assert words in Outline(html).text


def test_the_page_carries_its_twin(html, twin):
    [carried] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', html, re.DOTALL)
    assert json.loads(carried) == twin


def test_neither_seed_nor_salt_nor_paths_are_in_the_report(tmp_path):
    tacit(f"train iris --epsilon 3 --steps 4 --seed 987654321 --out {tmp_path / 'run'}")
    tacit(f"report {tmp_path / 'run'} --no-baseline")
    settings = json.loads((tmp_path / "run/settings.json").read_text())
    for name in ("report.html", "report.json"):
        text = (tmp_path / "run" / name).read_text()
        for secret in ("987654321", settings["salt"], str(tmp_path)):
            assert secret not in text
    assert "Not for release." in Outline((tmp_path / "run/report.html").read_text()).text


def test_the_fingerprint_is_of_the_data_and_the_salt(folder, twin):
    import numpy as np

    from tacit.datasets import load
    from tacit.ledger import fingerprint

    salt = bytes.fromhex(json.loads((folder / "settings.json").read_text())["salt"])
    assert twin["data"]["fingerprint"] == fingerprint(np.frombuffer(salt, np.uint8), *load("iris").train)
    assert twin["data"]["fingerprint"] != fingerprint(*load("iris").train)


def test_the_command_repeats_the_run(folder, twin, tmp_path):
    tacit(f"{twin['command'].removeprefix('tacit ')} --out {tmp_path / 'again'}")
    first, again = (json.loads((each / "metrics.json").read_text()) for each in (folder, tmp_path / "again"))
    assert first["settings"] == again["settings"]
    assert first["multiplier"] == again["multiplier"]


def test_the_model_without_privacy_is_trained_once(folder, twin):
    written = json.loads((folder / "baseline.json").read_text())
    assert twin["utility"]["non_private"] == written
    assert written["final"] > 0.8


def test_where_nothing_is_proven_the_page_says_so_and_draws_no_curve():
    event = Unproven("directional", "the noise is least where it matters", Gaussian(1.0).adjacency)
    claim = Claim(1.0, 1e-5, "somebody")
    guarantee = Guarantee(event, 1e-5, method="directional", status=Status.REFUTED, claim=claim, violations=("leaks",))
    found = {
        **dict.fromkeys(("tradeoff", "epsilon_over_steps", "mechanism", "audit")),
        "title": "directional on iris",
        "made": run.made(),
        "release": {"is_for_release": False, "released": [], "not_released": [], "noise_from": "somewhere"},
        "guarantee": facts.guarantee_facts(guarantee),
        "tuning": "",
        "settings": {"epsilon": None},
        "data": dict.fromkeys(
            ("name", "source", "example", "scaling", "test", "test_examples", "fingerprint", "population_is"), ""
        )
        | {"population": 10},
        "utility": {"measure": None, "final": None, "interval": None, "by_step": [], "non_private": None},
        "command": "tacit train iris",
    }
    text = Outline(page.run_page(guarantee, found)).text
    assert "Nothing finite is proven about this run." in text
    assert "No finite ε is proven at δ = 1e-05" in text
    assert "refuted" in text
    assert "<figure" not in page.run_page(guarantee, found)


def test_figures_are_vectors_with_names_and_follow_the_theme():
    svg = figures.as_svg(figures.tradeoff(curve(Gaussian(2.0)), 1e-5), key="k", title="A <title>", description="words")
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


def test_a_report_that_cannot_be_written_is_an_error(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tacit", "report", str(folder), "--out", str(folder / "metrics.json")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "The report cannot be written to" in capsys.readouterr().err


@pytest.mark.parametrize(("right", "count"), [(0, 30), (27, 30), (30, 30), (450, 500)])
def test_the_interval_holds_the_share_and_is_that_of_wilson(right, count):
    low, high = run.wilson(right / count, count)
    assert 0 <= low <= right / count <= high <= 1
    # Its ends are the shares from which what was seen is 1.96 standard deviations away.
    for end in (low, high):
        if 0 < end < 1:
            assert abs(right / count - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / count), rel=1e-6)
