"""Tables 3 and 4 of Bu et al.: whoever has the paper's own data gets it, and rare words are left out as it says."""

from pathlib import Path

import numpy as np
import pytest
from experiments.gaussian_dp import data, experiment
from experiments.library import Records
from experiments.library.running import records_of, run_missing
from experiments.library.targets import find_target

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def order(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "data"))
    return find_target(FOLDER, "gaussian_dp").order("quick")


def write_ratings(folder):
    rng = np.random.default_rng(0)
    rows = zip(rng.integers(1, 6_041, 400), rng.integers(1, 3_953, 400), rng.integers(1, 6, 400), strict=True)
    folder.mkdir(parents=True)
    (folder / "ratings.dat").write_text("".join(f"{who}::{film}::{stars}::0\n" for who, film, stars in rows))


def data_of_table_4(order, records):
    return {cell.asked.get("data") for cell in experiment.cells(order, records) if cell.part == "table 4"} - {None}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
def test_movielens_is_the_small_set_unless_there_is_a_copy_of_the_large_one(order, tmp_path):
    records = Records(tmp_path / "results.jsonl")
    assert data_of_table_4(order, records) == {"movielens-100k"}
    write_ratings(tmp_path / "data" / "movielens-1m")
    assert data_of_table_4(order, records) == {"movielens-1m"}
    run_missing(experiment, order, records, ["table 4"], lambda said: None)
    table = experiment.tables(order, records_of(experiment, order, records))["Table 4"]
    assert "private, MovieLens 1M | 2 | 0.915" in table
    assert "100k" not in table
    steps = [each for each in records.read() if "rate" in each.asked]
    assert [each.asked["rate"] for each in steps] == [pytest.approx(10_000 / 800_167)]


def test_what_was_run_on_the_small_set_stays_beside_the_large_one(order, tmp_path):
    write_ratings(tmp_path / "data" / "movielens-1m")
    on_file = Records(FOLDER / "gaussian_dp" / "results.jsonl")
    full = find_target(FOLDER, "gaussian_dp").order("full")
    assert data_of_table_4(full, on_file) == {"movielens-100k", "movielens-1m"}


def test_rare_words_are_left_out_before_the_last_ones_are_kept():
    rare, long = np.array([5, 1, 20_000, 7]), np.arange(2, 400)
    words = data._ends([rare, long])
    assert words[0, :3].tolist() == [5, 7, 0]
    assert words[1].tolist() == list(range(400 - 256, 400))
