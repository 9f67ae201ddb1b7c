"""Tables as they come: from spreadsheets, other programs and failed downloads. Each is read as meant, or refused."""

import gzip
import os

import numpy as np
import pandas as pd
import pytest

from support.published_files import PUBLISHED, write_published
from tacit.datasets import Bounds, load, load_table
from tacit.errors import InvalidArgument

BOUNDS = Bounds.parse(
    """
rows = 4
held_out = 0
[columns]
age = { low = 0, high = 100, missing = "indicator", fill = 50 }
smoker = { values = ["no", "yes"], missing = "indicator" }
outcome = ["healthy", "ill"]
"""
)
TEXT = "age,smoker,outcome\n20,no,ill\n30,yes,healthy\n,no,ill\n50,,ill\n"
# Two further columns mark the missing ages and the missing answers.
INPUTS = [[-0.6, 1, 0, 0, 0], [-0.4, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]]
CLASSES = [1, 0, 1, 1]
PAGE = b"\n<!DOCTYPE html>\n<html><body>Please log in</body></html>"
COLUMNS = {
    "age": np.array([20.0, 30.0, np.nan, 50.0]),
    "smoker": np.array(["no", "yes", "no", ""]),
    "outcome": np.array(["ill", "healthy", "ill", "ill"]),
}


def read(path):
    return load_table(path, target="outcome", bounds=BOUNDS)


def refusal(path) -> str:
    with pytest.raises(InvalidArgument) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def assert_read(path) -> None:
    inputs, classes = read(path).train
    assert np.allclose(inputs, INPUTS)
    assert classes.tolist() == CLASSES


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "\ufeff" + TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("\n", "\r"),
        TEXT.replace(",", ";"),
        TEXT.replace("\n", "\n\n") + "  \n",
        TEXT.replace("\n", ",\n"),
        TEXT.replace("\n,no", "\nNA,no").replace("50,,", "50,?,"),
        "".join(f'"Doe, ""J""\r\nJane",{line}\r\n' for line in TEXT.splitlines()),
        "".join(f"{line},{line[0]}\n" for line in TEXT.replace(",", " , ").splitlines()),
    ],
    ids=["plain", "mark", "crlf", "cr", "semicolons", "blank", "trailing", "missing", "quoted", "spaces"],
)
@pytest.mark.parametrize("gzipped", [False, True])
def test_forms_of_the_same_table_say_the_same(tmp_path, text, gzipped):
    path = tmp_path / ("t.csv.gz" if gzipped else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if gzipped else text.encode())
    assert_read(path)


@pytest.mark.parametrize("kind", ["category", "string", "object"])
def test_columns_of_parquet_may_be_categorical(tmp_path, kind):
    table = pd.DataFrame(COLUMNS).replace({"smoker": {"": None}})
    table.astype({"smoker": kind, "outcome": kind}).to_parquet(tmp_path / "t.parquet")
    assert_read(tmp_path / "t.parquet")


def test_text_of_npz_may_be_bytes(tmp_path):
    np.savez(tmp_path / "t.npz", **{**COLUMNS, "smoker": COLUMNS["smoker"].astype("S")})
    assert_read(tmp_path / "t.npz")


class Malicious:
    """What runs a command if it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("place", ["age", "outcome", "unused"])
def test_nothing_is_ever_unpickled(tmp_path, place):
    objects = np.array([Malicious(tmp_path / "ran")] * 4, dtype=object)
    np.savez(tmp_path / "t.npz", **{**COLUMNS, place: objects})
    if place == "unused":
        assert_read(tmp_path / "t.npz")
    else:
        assert "allow_pickle=False" in refusal(tmp_path / "t.npz")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"age": COLUMNS["age"] * 1j}, "Column 'age': it holds complex128"),
        ({"age": np.array(["2020-01-01"] * 4, "datetime64[D]")}, "Column 'age': it holds datetime64[D]"),
        ({"age": np.zeros(4, [("years", int)])}, "not real numbers"),
        ({"age": np.array(3.0)}, "age is one value, smoker 4, outcome 4"),
        ({"age": np.zeros(3)}, "age 3, smoker 4, outcome 4"),
        ({name: values[:0] for name, values in COLUMNS.items()}, "there are no rows"),
    ],
)
def test_arrays_that_are_no_columns_of_numbers_are_refused(tmp_path, changes, words):
    np.savez(tmp_path / "t.npz", **{**COLUMNS, **changes})
    assert words in refusal(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"", "it is empty"),
        ("t.csv", "\ufeff\r\n".encode(), "it is empty"),
        ("t.csv", b",,\n,,\n", "it is empty"),
        ("t.csv", TEXT.splitlines()[0].encode(), "there are no rows"),
        ("t.csv", b"age,smoker\n20,no\n", "no column 'outcome', which is declared"),
        ("t.csv", PAGE, "it is a web page"),
        ("t.csv.gz", PAGE, "it is a web page"),
        # The time is set: it would be part of the test's name, which the workers must agree on.
        ("t.csv.gz", gzip.compress(TEXT.encode(), mtime=0)[:-9], "ended before the end"),
        ("t.parquet", TEXT.encode(), "not a parquet file."),
        ("t.parquet", b"", "0 bytes"),
        ("t.npz", TEXT.encode(), "it is not an npz archive"),
    ],
)
def test_what_is_no_table_is_refused_in_words(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    message = refusal(tmp_path / name)
    assert words in message
    assert ".." not in message.replace(str(tmp_path), "")


@pytest.mark.parametrize("name", [each for each in PUBLISHED if each not in ("imdb", "cifar10")])
@pytest.mark.parametrize("gzipped", [False, True])
def test_a_page_saved_in_place_of_a_data_set_is_called_one(tmp_path, name, gzipped):
    write_published(name, tmp_path, gzipped=gzipped)
    file = next(iter(PUBLISHED[name])) + (".gz" if gzipped else "")
    (tmp_path / file).write_bytes(PAGE)
    with pytest.raises(InvalidArgument, match="it is a web page") as caught:
        load(name, tmp_path)
    assert str(tmp_path / file) in str(caught.value)


@pytest.mark.parametrize("name", [each for each in PUBLISHED if each != "imdb"])
def test_a_download_that_was_cut_off_is_refused_with_its_file(tmp_path, name):
    write_published(name, tmp_path, gzipped=True)
    file = tmp_path / f"{next(iter(PUBLISHED[name]))}.gz"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InvalidArgument, match=r"cannot be read: .*\. Fetch it again\.") as caught:
        load(name, tmp_path)
    assert str(file) in str(caught.value)
