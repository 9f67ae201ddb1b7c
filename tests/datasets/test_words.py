"""Whole reviews as words: from texts, and from numbers with names."""

import numpy as np
import pytest

from tacit.datasets import load, load_words
from tacit.errors import InvalidArgument
from tacit.features import HashedWords

# Few rows are enough to tell how files are read; that they are too few is tested where it is said.
pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.Caution")


def test_texts_are_cut_into_words_whole(tmp_path):
    for part in ("train", "test"):
        for label, text in (("pos", "A GOOD film. " * 100), ("neg", "It's bad")):
            folder = tmp_path / "aclImdb" / part / label
            folder.mkdir(parents=True)
            (folder / "0_1.txt").write_text(text)
    (tmp_path / "aclImdb" / "imdb.vocab").write_text("film\ngood\n")
    (texts, labels), _ = load_words("imdb", tmp_path)
    assert labels.tolist() == [0, 1]
    assert texts[0] == ["it's", "bad"]
    assert len(texts[1]) == 300
    assert HashedWords().of_words(texts)[1].nnz == 2


def test_numbers_get_their_names_back(tmp_path):
    part = {"flat": np.array([2, 1, 3, 3]), "offsets": np.array([0, 2, 4]), "y": np.array([0, 1])}
    arrays = {f"{key}_{name}": value for key, value in part.items() for name in ("train", "test")}
    np.savez(tmp_path / "imdb.npz", vocab=np.array(["dull", "superb"]), **arrays)
    train, test = load_words("imdb", tmp_path)
    assert train[0] == test[0] == [["dull"], ["superb", "superb"]]


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(InvalidArgument, match="There is no imdb in"):
        load_words("imdb", tmp_path)
    with pytest.raises(InvalidArgument, match="no data set of texts"):
        load_words("mnist", tmp_path)


@pytest.mark.parametrize(("name", "numbers"), [("iris", 4), ("wine", 13), ("digits", 64)])
def test_tables_say_how_many_columns_are_numbers(name, numbers):
    assert load(name).numbers == numbers == load(name).shape[0]
