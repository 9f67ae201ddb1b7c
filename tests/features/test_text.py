"""Bags of words: what is counted, where, and with which weight; and that no text has a say in another's."""

import math
import zlib

import numpy as np
import pytest
from sklearn.base import clone

from tacit.errors import InvalidArgument
from tacit.features import HashedWords
from tacit.features.text import COMMON, pad_words

TEXTS = ["A good film. A GOOD, good idea!", "the worst", "It's not bad", ""]


def column(word, places=2**16):
    return zlib.crc32(word.encode()) % places


def test_words_are_found_at_their_hash_with_norm_one():
    rows = HashedWords(weighting="presence").fit_transform(TEXTS).toarray()
    assert set(np.flatnonzero(rows[0])) == {column("good"), column("film"), column("idea")}
    assert np.allclose(rows[0][column("film")], 1 / math.sqrt(3))
    assert np.allclose(np.linalg.norm(rows, axis=1), [1, 1, 1, 0], atol=1e-6)


def test_pairs_of_words_count_beside_the_words():
    rows = HashedWords(weighting="presence", pairs=0.5).fit_transform(["a good film, not so funny"]).toarray()[0]
    words, pairs = ["good", "film", "not", "not funny"], ["good film", "film not", "not not funny"]
    assert set(np.flatnonzero(rows)) == {column(word) for word in words + pairs}
    length = math.sqrt(4 + 3 * 0.25)
    assert np.allclose(rows[[column(word) for word in words]], 1 / length)
    assert np.allclose(rows[[column(word) for word in pairs]], 0.5 / length)
    with pytest.raises(InvalidArgument, match="pairs must be"):
        HashedWords(pairs=-1.0).fit(None)


def test_the_logarithm_of_how_often_a_word_occurs_counts():
    rows = HashedWords().fit_transform(TEXTS).toarray()
    assert rows[0][column("good")] / rows[0][column("film")] == pytest.approx(1 + math.log(3), rel=1e-6)


def test_words_that_share_a_place_are_counted_together():
    rows = HashedWords(places=2, weighting="logarithm", common=()).fit_transform(["one two three four five six"])
    counts = np.bincount([column(word, 2) for word in ["one", "two", "three", "four", "five", "six"]], minlength=2)
    weights = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0)
    assert np.allclose(rows.toarray()[0], weights / np.linalg.norm(weights), atol=1e-6)


def test_a_public_vocabulary_has_columns_of_its_own():
    rows = clone(HashedWords(vocabulary=["bad", "not", "the"])).fit_transform(TEXTS)
    assert rows.shape == (4, 3)
    assert np.allclose(rows.toarray()[2], [math.sqrt(0.5), math.sqrt(0.5), 0])
    assert rows[1].nnz == 0


def test_negations_are_no_common_words():
    assert not COMMON & {"not", "no", "nor", "never", "isn't", "don't", "but", "against"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not very good", ["not", "not good"]),
        ("I don't like bad films", ["don't", "not like", "bad", "films"]),
        ("never, never again boring", ["never", "not boring"]),
        ("good? not", ["good", "not"]),
    ],
)
def test_the_word_behind_a_negation_is_another_word(text, words):
    rows = HashedWords().fit_transform([text])
    assert set(rows.indices) == {column(word) for word in words}


def test_negations_may_be_left_as_they_are():
    rows = HashedWords(is_negated=False).fit_transform(["not very good"])
    assert set(rows.indices) == {column("not"), column("good")}


def test_a_vocabulary_may_hold_negated_words():
    rows = HashedWords(vocabulary=["good", "not good", "bad"]).fit_transform(["not good", "not bad"])
    assert rows.indices.tolist() == [1, 2]


def test_texts_are_treated_one_by_one():
    whole = HashedWords().fit_transform(TEXTS)
    assert abs(whole[2] - HashedWords().fit_transform(TEXTS[2:3])).max() == 0


def test_padding_keeps_the_heaviest_words_and_norm_one():
    rows = HashedWords(weighting="logarithm").fit_transform(["good good bad film bad bad", "film"])
    found = pad_words(rows, 2)
    assert found.shape == (2, 2, 2)
    assert set(found[0, 0]) == {column("good") + 1, column("bad") + 1}
    assert np.linalg.norm(found[0, 1]) == pytest.approx(1)
    assert found[1].tolist() == [[column("film") + 1, 0], [1, 0]]


def test_single_texts_and_unknown_weightings_are_refused():
    with pytest.raises(InvalidArgument, match="list of texts"):
        HashedWords().fit_transform("one text")
    with pytest.raises(InvalidArgument, match="'presence' or 'logarithm'"):
        HashedWords(weighting="idf").fit(TEXTS)
    with pytest.raises(InvalidArgument, match="lists of words"):
        HashedWords(vocabulary="words").fit(TEXTS)
