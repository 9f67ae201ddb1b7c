"""Copies and tables of another size: whoever loads them is told so, and not how many examples there are."""

import warnings

import numpy as np
import pytest

from support.published_files import PUBLISHED, write_published
from tacit.datasets import Bounds, Data, load, load_table
from tacit.datasets._data import count_training_rows
from tacit.errors import Caution

BOUNDS = 'rows = {}\nheld_out = 0\n[columns]\nage = {{ low = 0, high = 100 }}\nill = ["no", "yes"]\n'


def of_size(size: int) -> Data:
    part = np.zeros((size, 1)), np.zeros(size)
    return Data("some", part, part, classes=2, population=60, scaling="")


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_copy_with_too_few_examples_is_told_apart_from_the_published_one(tmp_path, name):
    write_published(name, tmp_path)
    with pytest.warns(Caution, match=f"This copy of {name} is not the published one: it has fewer") as caught:
        data = load(name, tmp_path)
    assert len(caught) == 1
    assert f"the {data.population:,} of its population" in str(caught[0].message)
    # The line that is shown with it is the user's own.
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("copies", "words"), [(699, None), (700, None), (710, "has more examples")])
def test_only_another_number_of_examples_to_train_on_is_told(tmp_path, copies, words):
    (tmp_path / "breast-cancer-wisconsin.data").write_bytes(b"1000025,5,1,1,1,2,1,3,1,1,2\n" * copies)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = load("breast-cancer-wisconsin", tmp_path)
    assert data.population == count_training_rows(699)
    assert (len(data.train[0]) == data.population) == (words is None)
    assert [words in str(each.message) for each in caught] == ([] if words is None else [True])


@pytest.mark.parametrize(("rows", "words"), [(40, None), (59, None), (27, None), (62, "far fewer"), (26, "far more")])
def test_a_table_is_told_apart_from_what_was_declared_only_if_that_is_far_off(tmp_path, rows, words):
    (tmp_path / "p.csv").write_text("age,ill\n" + "".join(f"{i},{'yes' if i % 2 else 'no'}\n" for i in range(40)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = load_table(tmp_path / "p.csv", target="ill", bounds=Bounds.parse(BOUNDS.format(rows)))
    assert data.population == rows
    assert [f"{words} rows to train on than the {rows} that" in str(each.message) for each in caught] == (
        [] if words is None else [True]
    )
    # How many there are is private.
    assert not [each for each in caught if "40" in str(each.message) or each.filename != __file__]


@pytest.mark.parametrize(
    ("size", "published", "declared"),
    [(60, None, None), (59, "fewer", None), (61, "more", None), (39, "fewer", "fewer"), (91, "more", "more")],
)
def test_what_is_published_fits_exactly_and_what_is_declared_about(size, published, declared):
    data = of_size(size)
    assert data.compare_size(60, is_declared=False) == published
    assert data.compare_size(60, is_declared=True) == declared
    assert data.compare_size(size, is_declared=False) is None
