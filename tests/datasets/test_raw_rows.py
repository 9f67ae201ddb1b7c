"""Raw rows for a model: each kind of input is read from what it may come in, and the rest is refused in words."""

import numpy as np
import pandas as pd
import pytest

from tacit.datasets import Bounds, Data, Number, load_table
from tacit.datasets._data import ArrayForm, Form, IndexForm, TableForm, TextForm, encode_inputs, form_of
from tacit.datasets._own import read_raw
from tacit.errors import InvalidArgument

PIXELS = Form(ArrayForm((2,), low=0.0, high=10.0), target="kind")
FILMS = Form(IndexForm(("person", "film"), (3, 4), first=1))
TEXTS = Form(TextForm(), target="mood")
AGES = Form(TableForm({"age": Number(0.0, 100.0)}, ()))


def test_an_array_is_read_from_the_columns_of_a_table_without_its_target():
    rows = read_raw(pd.DataFrame({"a": [0, 5], "kind": ["x", "y"], "b": [10, 20]}), PIXELS)
    assert np.array_equal(rows.inputs, np.array([[0, 1], [0.5, 1]], dtype=np.float32))
    assert "kind is the target" in rows.notes[0]


def test_an_array_is_read_from_the_one_column_that_holds_it():
    rows = read_raw({"pixels": np.array([[0, 5], [10, 20]]), "kind": np.array([0, 1])}, PIXELS)
    assert np.array_equal(rows.inputs, np.array([[0, 0.5], [1, 1]], dtype=np.float32))
    with pytest.raises(InvalidArgument, match=r"one array of inputs. Got pixels, more"):
        read_raw({"pixels": np.zeros((2, 2)), "more": np.zeros(2)}, PIXELS)


@pytest.mark.parametrize(
    ("source", "form", "words"),
    [
        (np.zeros(2), PIXELS, r"one row per example. Got shape \(2,\)"),
        (np.array([[0, np.nan]]), PIXELS, r"missing .NaN., and the model has no rule"),
        ([3], TEXTS, "takes texts. Got 3"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), TEXTS, "one column of texts. Got a, b"),
        (pd.DataFrame({"a": ["x", ""]}), TEXTS, "'a': 1 texts are missing"),
        (pd.DataFrame({"age": np.zeros(0)}), AGES, "There are no rows"),
        (pd.DataFrame({"weight": [1]}), AGES, "There is no column 'age'"),
    ],
)
def test_rows_that_do_not_fit_the_form_are_refused(source, form, words):
    with pytest.raises(InvalidArgument, match=words):
        read_raw(source, form)


def test_of_many_absent_columns_only_the_first_ones_are_listed():
    wide = Form(TableForm({f"pixel_{i}": Number(0.0, 1.0) for i in range(64)}, ()))
    with pytest.raises(InvalidArgument) as caught:
        read_raw(pd.DataFrame({str(i): [0] for i in range(9)}), wide)
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("2 problems:")
    assert lines[0].startswith("- There are no columns 'pixel_0', 'pixel_1', ")
    assert lines[0].endswith(", and 56 more.")
    assert lines[1].startswith("- The model has no columns '0', ")


def test_numbers_of_things_are_counted_from_the_first_and_all_wrong_columns_are_named():
    rows = read_raw(pd.DataFrame({"person": [1, 3], "film": [4, 1]}), FILMS)
    assert rows.inputs.tolist() == [[0, 3], [2, 0]]
    for person, film in ((0, 5), (4, 0), (1.5, 2.5)):
        with pytest.raises(InvalidArgument) as caught:
            read_raw(pd.DataFrame({"person": [person], "film": [film]}), FILMS)
        assert "'person' must hold whole numbers from 1 to 3" in str(caught.value)
        assert "'film' must hold whole numbers from 1 to 4" in str(caught.value)


def test_inputs_of_an_unknown_kind_are_refused():
    written = FILMS.to_json()
    written["inputs"] = {"kind": "sound"}
    with pytest.raises(ValueError, match=r"unknown kind: 'sound'"):
        Form.from_json(written)


@pytest.mark.parametrize(("vocabulary", "sizes"), [((3, 4), (3, 4)), ((9,), (9, 9))])
def test_data_with_a_vocabulary_take_numbers_of_things(vocabulary, sizes):
    nothing = np.zeros((0, 2), dtype=np.float32), np.zeros(0)
    data = Data("films", nothing, nothing, 2, population=1, scaling="", vocabulary=vocabulary)
    assert form_of(data).inputs == IndexForm(("column1", "column2"), sizes)


def test_arrays_in_a_table_need_bounds_and_numbers():
    with pytest.raises(InvalidArgument, match=r"array of shape .2,. for each row. Declare it by low and high"):
        encode_inputs({"a": np.ones((3, 2))}, {"a": Number(1.0, 2.0, logarithmic=True)})
    with pytest.raises(InvalidArgument, match=r"'a': some numbers are missing"):
        encode_inputs({"a": np.full((3, 2), np.nan)}, {"a": Number(1.0, 2.0, missing="refuse")})


def texts(count: int) -> pd.DataFrame:
    return pd.DataFrame({"text": [f"a film {at}" for at in range(count)], "mood": ["bad", "good"] * (count // 2)})


@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
def test_texts_are_tested_on_the_declared_file_and_all_others_are_trained_on(tmp_path):
    texts(6).to_csv(tmp_path / "public.csv", index=False)
    declared = Bounds.parse(
        f'rows = 40\ntest = "{tmp_path / "public.csv"}"\n[columns]\ntext = {{ type = "text" }}\nmood = ["bad", "good"]'
    )
    data = load_table(texts(40), target="mood", bounds=declared)
    assert (len(data.train[1]), len(data.test[1]), data.is_test_private) == (40, 6, False)
    assert data.test[1].tolist() == [0, 1, 0, 1, 0, 1]


PEOPLE = Bounds.parse("""
people = 2
rows_per_unit = 1
[columns]
who = { type = "unit" }
age = { low = 0, high = 9 }
ill = [0, 1]
""")


def test_a_table_of_people_is_not_read_in_pieces():
    table = pd.DataFrame({"who": ["a", "b"], "age": [1, 2], "ill": [0, 1]})
    with pytest.raises(InvalidArgument, match=r"belong to people is read as a whole. Leave out --memory"):
        load_table(table, target="ill", bounds=PEOPLE, memory="1GB")


def test_a_row_of_nobody_is_refused():
    table = pd.DataFrame({"who": ["a", ""], "age": [1, 2], "ill": [0, 1]})
    with pytest.raises(InvalidArgument, match=r"'who': 1 rows have no id"):
        load_table(table, target="ill", bounds=PEOPLE)
