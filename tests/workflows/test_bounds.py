"""`tacit bounds`: a template from the header alone, which no value of the table can change."""

import gzip
import tomllib

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.datasets import Bounds
from tacit.errors import InvalidArgument

HEADER = 'patient_id,admission date,"blood, ""type""",age,outcome\n'
ROWS = b"7,2020-01-01,A,40,ill\n"
GARBAGE = b'\xff\xfe"\x00,,\n"unclosed,,;;;\t\t\n' * 50


def template_of(path, header: str = HEADER, rows: bytes = ROWS) -> str:
    content = header.encode() + rows
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return tacit.bounds(path, target="outcome").text


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz"])
def test_rows_of_garbage_give_the_same_template(tmp_path, name):
    expected = template_of(tmp_path / name)
    assert template_of(tmp_path / name, rows=GARBAGE) == expected
    assert template_of(tmp_path / name, rows=b"") == expected


def test_the_template_names_every_column_and_has_to_be_filled_in(tmp_path):
    text = template_of(tmp_path / "p.csv")
    columns = tomllib.loads(text)["columns"]
    assert list(columns) == ["patient_id", "admission date", 'blood, "type"', "age", "outcome"]
    assert columns["patient_id"] == {"ignore": True}
    assert columns["admission date"]["type"] == "date"
    with pytest.raises(InvalidArgument) as caught:
        Bounds.parse(text)
    message = str(caught.value)
    assert "2 problems" in message
    assert all(name in message for name in ("rows", "'admission date'", "'age'", "'outcome'"))
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("form", ["npz", "parquet", "frame", "tsv"])
def test_other_tables_give_the_same_columns(tmp_path, form):
    table = {"age": np.array([40, 50]), "outcome": np.array(["ill", "ill"])}
    path = tmp_path / f"p.{form}"
    if form == "npz":
        np.savez(path, **table)
    if form == "parquet":
        pd.DataFrame(table).to_parquet(path)
    if form == "tsv":
        path.write_text("age\toutcome\n")
    made = tacit.bounds(pd.DataFrame(table) if form == "frame" else path, target="outcome")
    assert made.columns == ("age", "outcome")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"\n\n,,\n", "it is empty"),
        (b"1,2020,3.5\n2,2021,1.5\n", "holds numbers instead of column names"),
        (b"age,age,outcome\n", "same name"),
        (b"age,outcom\n", "Did you mean outcom?"),
        (b"\xff\xfe\n", "not text in UTF-8"),
        (b"x" * 2**21, "hardly a header"),
    ],
)
def test_what_is_no_header_is_refused(tmp_path, content, words):
    (tmp_path / "p.csv").write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"p\.csv") as caught:
        tacit.bounds(tmp_path / "p.csv", target="outcome")
    assert words in str(caught.value)


def test_a_header_of_thousands_of_columns_is_taken(tmp_path):
    made = template_of(tmp_path / "p.csv", ",".join(f"gene{i}" for i in range(5_000)) + ",outcome\n")
    assert len(tomllib.loads(made)["columns"]) == 5_001


def test_the_command_writes_the_template_and_never_over_another_file(tmp_path, run_cli, in_a_folder_of_its_own):
    expected = template_of(tmp_path / "p.csv")
    run = run_cli("bounds p.csv --target outcome")
    assert (run.code, run.err) == (0, "")
    assert (tmp_path / "bounds.toml").read_text() == expected
    (tmp_path / "bounds.toml").write_text("mine")
    run = run_cli("bounds p.csv --target outcome")
    assert (run.code, (tmp_path / "bounds.toml").read_text()) == (2, "mine")
