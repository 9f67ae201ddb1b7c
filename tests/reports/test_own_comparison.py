"""A comparison on somebody's own table: its seeds are known, so whatever is written of it is for them alone."""

import json
import shutil
import stat

import numpy as np
import pytest

from support.report_folders import BOUNDS, Outline, comparison_of, own_comparison_in
from tacit.datasets import load
from tacit.errors import CannotResume
from tacit.ledger import fingerprint
from tacit.reports.page import write_comparison


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A finished comparison on a table of flowers, of which some are held out."""
    return own_comparison_in(tmp_path_factory.mktemp("own"))


def modes(folder) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_all_of_it_can_be_read_by_its_owner_only(own, tmp_path):
    names = {"comparison.json", "output_perturbation-1-seed0.json", "report.html", "report.json", "comparison.png"}
    assert names < modes(own).keys()
    assert set(modes(own).values()) == {0o600}
    write_comparison(own, tmp_path)
    assert set(modes(tmp_path).values()) == {0o600}


@pytest.mark.slow
def test_so_can_the_report_of_one_that_does_not_say_whose_table_it_is(own, tmp_path):
    shutil.copytree(own, tmp_path / "old")
    plan = json.loads((own / "comparison.json").read_text())
    del plan["data"]["is_own"]
    (tmp_path / "old/comparison.json").write_text(json.dumps(plan))
    write_comparison(tmp_path / "old", tmp_path / "report")
    assert set(modes(tmp_path / "report").values()) == {0o600}


@pytest.mark.slow
def test_so_can_one_that_is_tested_on_public_rows(tmp_path):
    (tmp_path / "public.csv").write_text("sepal length (cm),petal length (cm),target\n5,1.4,0\n6,4.5,1\n")
    folder = own_comparison_in(tmp_path, f'test = "public.csv"{BOUNDS}')
    assert set(modes(folder).values()) == {0o600}
    text = Outline((folder / "report.html").read_text()).text
    assert "Tested on 2 public examples" in text
    assert "keep this page private" in text
    assert "measured on private rows" not in text


@pytest.mark.slow
def test_of_public_data_only_the_secret_is_closed_to_others(comparison_folder):
    found = modes(comparison_folder)
    assert found.pop("comparison.json") == 0o600
    assert 0o600 not in found.values()


def test_nobody_can_check_a_guess_of_the_rows_without_the_secret(tmp_path):
    data, comparison = comparison_of()
    comparison.write(data, tmp_path, "first")
    plan = json.loads((tmp_path / "comparison.json").read_text())
    assert fingerprint(*data.train, *data.test) not in json.dumps(plan)
    secret = np.frombuffer(bytes.fromhex(plan["salt"]), np.uint8)
    assert plan["same"]["data"] == fingerprint(secret, *data.train, *data.test)
    comparison.write(data, tmp_path, "the same rows")
    with pytest.raises(CannotResume, match="data differ"):
        comparison.write(load("wine"), tmp_path, "others")


@pytest.mark.slow
def test_what_no_guarantee_covers_is_said_of_every_row_and_on_top(own):
    facts = json.loads((own / "report.json").read_text())
    text = Outline((own / "report.html").read_text()).text
    (row,) = (row for row in facts["rows"] if row["details"])
    unprotected = row["details"]["guarantee"]["unprotected"]
    assert any(words.startswith("Held-out rows: the scores in the table") for words in unprotected)
    assert all(words in text for words in unprotected)
    assert not any("test examples" in words.lower() for words in unprotected)
    assert not facts["release"]["is_for_release"]
    assert facts["release"]["warnings"][-1].endswith("keep this page private.")
    assert f"Not for release. {' '.join(facts['release']['warnings'])}" in text


@pytest.mark.slow
def test_a_page_with_seconds_does_not_say_that_it_keeps_durations(comparison_folder):
    facts = json.loads((comparison_folder / "report.json").read_text())
    text = Outline((comparison_folder / "report.html").read_text()).text
    assert "Seconds" in text
    assert not any("private rows" in words for words in facts["release"]["warnings"])
    for row in (row for row in facts["rows"] if row["details"]):
        assert not any("durations" in words for words in row["details"]["not_released"])
        unprotected = row["details"]["guarantee"]["unprotected"]
        assert any(words.startswith("The training time in the table") for words in unprotected)
        assert not any(words.startswith("Held-out rows") for words in unprotected)
