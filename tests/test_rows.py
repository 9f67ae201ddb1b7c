"""Tables larger than memory: read in pieces, kept in files, and the same model comes out."""

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from pyarrow import parquet
from safetensors.numpy import load_file

import tacit
from tacit._rows import RowWriter, StoredRows, is_stored, make_stored, read_size, walk_pieces
from tacit.datasets import load_table
from tacit.errors import InvalidArgument

BOUNDS = """
rows = 6000
[columns]
age = { low = 0, high = 100 }
hours = { low = 0, high = 80, missing = "indicator", fill = 40 }
smoker = ["no", "yes"]
outcome = ["healthy", "ill"]
"""


@pytest.fixture
def table(tmp_path):
    """6,000 rows as Parquet in row groups of 1,000, with a missing value, and their bounds."""
    rng = np.random.default_rng(0)
    age, hours = rng.integers(0, 100, 6000), rng.uniform(0, 80, 6000)
    ill = rng.random(6000) < 1 / (1 + np.exp((50 - age) / 8))
    frame = pd.DataFrame(
        {
            "age": age,
            "hours": hours,
            "smoker": rng.choice(["no", "yes"], 6000),
            "outcome": np.where(ill, "ill", "healthy"),
        }
    )
    frame.loc[7, "hours"] = np.nan
    frame.to_parquet(tmp_path / "people.parquet", row_group_size=1000)
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    return tmp_path / "people.parquet"


def load(source, table, **how):
    return load_table(source, target="outcome", bounds=table.with_name("bounds.toml"), **how)


def test_a_size_has_a_unit_and_is_no_less_than_training_needs():
    assert read_size("2GB") == 2 * 10**9 == read_size(2e9)
    for wrong in ("999MB", "2 apples", "", "-3GB", "nan"):
        with pytest.raises(InvalidArgument):
            read_size(wrong)


def test_stored_rows_are_the_rows_that_were_written():
    rows = np.random.default_rng(0).normal(size=(10_000, 7)).astype(np.float32)
    with RowWriter() as writer:
        for start in range(0, 10_000, 999):
            writer.append(rows[start : start + 999])
        stored = writer.finish()
    assert is_stored(stored)
    assert is_stored(np.asarray(stored[3:]))
    assert not is_stored(rows)
    copied = make_stored(rows.shape)
    for part in walk_pieces(stored, copied):
        copied[part] = stored[part]
    assert np.array_equal(copied, rows)
    places = np.sort(np.random.default_rng(1).choice(10_000, 6_000, replace=False))
    assert np.array_equal(StoredRows(copied, places).read(slice(10, 5_000)), rows[places[10:5_000]])


def test_an_array_that_was_a_tensor_is_still_known_to_be_stored():
    stored = make_stored((300, 4))
    assert is_stored(torch.from_numpy(stored).numpy())
    assert is_stored(torch.from_numpy(stored)[3:, :2].numpy())
    assert not is_stored(torch.zeros(3).numpy())


def as_dataset(path):
    import datasets

    return datasets.Dataset(parquet.read_table(path))


@pytest.mark.parametrize("read", [str, parquet.read_table, pytest.param(as_dataset, marks=pytest.mark.slow)])
def test_a_table_read_in_pieces_is_the_table_read_at_once(table, monkeypatch, read):
    whole = load(table, table)
    monkeypatch.setattr("tacit.datasets._read._ROWS", 700)
    for found in (load(read(table), table, memory="2GB"), load(read(table), table)):
        for mine, other in zip((*whole.train, *whole.test), (*found.train, *found.test), strict=True):
            assert np.array_equal(mine, other)
    assert is_stored(load(table, table, memory="2GB").train[0])


def test_a_piece_that_does_not_fit_the_bounds_is_named(table, monkeypatch):
    monkeypatch.setattr("tacit.datasets._read._ROWS", 700)
    rows = parquet.read_table(table).to_pandas()
    rows.loc[5_000, "age"] = None
    with pytest.raises(InvalidArgument, match=r"rows \d,\d01 to .*age.*no value"):
        load(pyarrow.Table.from_pandas(rows), table, memory="2GB")
    with pytest.raises(InvalidArgument, match="--memory"):
        load(table.with_name("bounds.toml"), table, memory="2GB")


@pytest.mark.parametrize(
    "epsilon", [pytest.param(0.05, id="ramps", marks=pytest.mark.slow), pytest.param(3.0, id="cells")]
)
@pytest.mark.usefixtures("one_thread")
def test_a_run_in_pieces_trains_the_same_model(table, tmp_path, monkeypatch, epsilon):
    monkeypatch.setattr("tacit._rows.PIECE_BYTES", 2**18)
    how = {"target": "outcome", "bounds": table.with_name("bounds.toml"), "epsilon": epsilon, "seed": 1}
    whole = tacit.train(table, out=tmp_path / "whole", **how)
    pieces = tacit.train(table, out=tmp_path / "pieces", memory="1GB", **how)
    assert pieces.guarantee.event == whole.guarantee.event
    assert pieces.score.value == pytest.approx(whole.score.value, abs=1e-3)
    for (name, mine), (same, other) in zip(
        *(sorted(load_file(tmp_path / run / "model.safetensors").items()) for run in ("whole", "pieces")), strict=True
    ):
        assert name == same
        # Sums over other pieces round in other places, and released numbers are rounded to a grid.
        assert np.allclose(mine, other, rtol=1e-3, atol=1e-3 * np.abs(mine).max()), name


def test_memory_is_refused_where_it_would_not_be_kept(table, tmp_path):
    how = {"target": "outcome", "bounds": table.with_name("bounds.toml"), "epsilon": 1, "memory": "2GB"}
    with pytest.raises(InvalidArgument, match="--memory is for a table"):
        tacit.train(table, recipe="none", out=tmp_path / "run", **how)


@pytest.mark.parametrize("read", [str, parquet.read_table, pytest.param(as_dataset, marks=pytest.mark.slow)])
def test_a_table_with_too_many_rows_for_the_memory_is_refused(table, monkeypatch, read):
    monkeypatch.setattr("tacit._rows._ROW_MEMORY", 10**6)
    with pytest.raises(InvalidArgument, match=r"rows need .* GB of memory.*memory is 2 GB"):
        load(read(table), table, memory="2GB")


@pytest.mark.slow
def test_memory_hardly_grows_with_the_rows_of_a_table(table, monkeypatch, tmp_path):
    """What loading holds at its peak, beyond what a table of half the size holds: targets and places, not rows."""
    monkeypatch.setattr("tacit.datasets._read._ROWS", 1_000)
    rows = parquet.read_table(table)
    peaks = []
    for times in (1, 3):
        path = tmp_path / f"{times}.parquet"
        parquet.write_table(pyarrow.concat_tables([rows] * times), path, row_group_size=1_000)
        how = {"memory": "1GB", "population": round(0.8 * times * len(rows))}
        load(path, table, **how)
        tracemalloc.start()
        load(path, table, **how)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 100 * 2 * len(rows)


def test_a_table_without_rows_or_columns_is_stored_too():
    for shape in ((0, 3), (2, 0)):
        with RowWriter() as writer:
            writer.append(np.zeros(shape))
            assert writer.finish().shape == shape


def test_stored_rows_are_as_many_as_their_places():
    assert len(StoredRows(np.zeros((5, 2)), np.array([4, 0, 0]))) == 3
