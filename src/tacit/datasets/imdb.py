"""IMDb film reviews: is a review positive? Its first 256 words, as numbers of a published vocabulary.

Words are numbered by the vocabulary that comes with the reviews (imdb.vocab, the most frequent first), or with an .npz
file of numbered words. It is taken as public: counting which words are frequent would cost privacy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from tacit.datasets import DataSet, Remote, Source, TrainingDefaults
from tacit.datasets._columns import Array
from tacit.datasets._data import Data, Form, IndexForm, Texts
from tacit.datasets._files import explain_errors, is_archive, list_members, read_npz
from tacit.errors import InvalidArgument

WORDS, LENGTH = 10_000, 256
_PADDING, _UNKNOWN = 0, 1
_PUBLISHED_SIZE = 25_000
_CLASSES = ("negative", "positive")
_KEYS = ("flat_train", "offsets_train", "y_train", "flat_test", "offsets_test", "y_test")
_WORD = re.compile(r"[a-z0-9']+")
_PATH = re.compile(r"(?:^|/)(train|test)/(pos|neg)/[^/]+\.txt$")
_ARCHIVE, _VOCABULARY = "aclImdb_v1.tar.gz", "imdb.vocab"

Numbered = tuple[list[Array], Array]


def _read(where: Path) -> Data | None:
    """From numbered words, the archive or its folder; None if neither is there."""
    found = read_numbers(where)
    if found is None:
        return None
    train, test = ((_pad(reviews), labels) for reviews, labels in found)
    columns = tuple(f"word{place}" for place in range(1, LENGTH + 1))
    return Data(
        "imdb",
        train,
        test,
        classes=2,
        population=_PUBLISHED_SIZE,
        scaling=f"the first {LENGTH} words, numbered by a published vocabulary of which {WORDS:,} are used",
        vocabulary=(WORDS,),
        example="review",
        is_text=True,
        form=Form(IndexForm(columns, (WORDS,) * LENGTH), None, _CLASSES),
    )


def read_numbers(where: Path) -> list[Numbered] | None:
    """Whole reviews as numbers of words, with their labels, to train on and to test on; None if they are not there.

    The most frequent word is 2. 1 and all numbers from `WORDS` on stand for words that are not used.
    """
    numbered = _find_numbered(where)
    if numbered is not None:
        return _read_numbered(numbered)
    files = _find_texts(where)
    return None if files is None else _number_texts(files, where)


def read_words(where: Path) -> tuple[Texts, Texts] | None:
    """Whole reviews as lists of words, with their labels; None if they are not there.

    Of numbered words, those that the file does not name are left out.
    """
    numbered = _find_numbered(where)
    if numbered is not None:
        return _name_words(numbered)
    files = _find_texts(where)
    if files is None:
        return None
    texts = {path: text for path, text in files if _PATH.search(path)}
    return _split_words(texts, "train"), _split_words(texts, "test")


def _find_numbered(where: Path) -> Path | None:
    if where.is_file():
        return where if where.suffix == ".npz" else None
    patterns = ("imdb.npz", "imdb_tokens*.npz")
    return next((file for pattern in patterns for file in sorted(where.glob(pattern))), None)


def _name_words(file: Path) -> tuple[Texts, Texts]:
    *arrays, vocabulary = read_npz(file, (*_KEYS, "vocab"))
    names = [str(word) for word in vocabulary]
    with explain_errors(file, "numbered words"):
        parts = []
        for flat, offsets, labels in (arrays[:3], arrays[3:]):
            known = [
                [names[number - 2] for number in flat[i:j].tolist() if number > _UNKNOWN] for i, j in pairwise(offsets)
            ]
            parts.append((known, labels.astype(np.int64)))
    return parts[0], parts[1]


def _split_words(texts: dict[str, bytes], part: str) -> Texts:
    words, labels = [], []
    for path in sorted(texts):
        match = _PATH.search(path)
        if match is not None and match[1] == part:
            words.append(_WORD.findall(texts[path].decode("utf-8").lower()))
            labels.append(int(match[2] == "pos"))
    return words, np.array(labels, dtype=np.int64)


def _read_numbered(file: Path) -> list[Numbered]:
    arrays = read_npz(file, _KEYS)
    with explain_errors(file, "numbered words"):
        parts = []
        for flat, offsets, labels in (arrays[:3], arrays[3:]):
            if len(offsets) != len(labels) + 1 or set(np.unique(labels)) - {0, 1}:
                raise ValueError("every review needs an offset and a label of 0 or 1")
            reviews = [flat[start:stop] for start, stop in pairwise(offsets)]
            parts.append((reviews, labels.astype(np.int64)))
    return parts


def _pad(reviews: list[Array]) -> Array:
    """[reviews, 256] numbers: 0 after the end, 1 for a word that is not among those used."""
    words = np.full((len(reviews), LENGTH), _PADDING, dtype=np.int64)
    for row, review in zip(words, reviews, strict=True):
        start = review[:LENGTH]
        row[: len(start)] = np.where(start < WORDS, start, _UNKNOWN)
    return words


def _find_texts(where: Path) -> Iterator[tuple[str, bytes]] | None:
    archive = where if is_archive(where.name) else where / _ARCHIVE
    if archive.is_file():
        return list_members(archive)
    if where.name == _VOCABULARY:
        where = where.parent
    if not (where / _VOCABULARY).is_file():
        return None
    texts = (
        file for part in ("train", "test") for label in ("pos", "neg") for file in (where / part / label).glob("*")
    )
    return ((file.as_posix(), file.read_bytes()) for file in (where / _VOCABULARY, *sorted(texts)))


def _number_texts(files: Iterator[tuple[str, bytes]], where: Path) -> list[Numbered]:
    """Reviews in the order of their paths, independent of the archive or file system."""
    texts: dict[str, bytes] = {}
    vocabulary: list[str] = []
    with explain_errors(where, "the reviews of IMDb"):
        for path, text in files:
            if _PATH.search(path):
                texts[path] = text
            elif path.endswith(_VOCABULARY):
                vocabulary = text.decode("utf-8").split()
    if not vocabulary or not texts:
        raise InvalidArgument(
            f"{where} must hold {_VOCABULARY} and reviews in train and test, pos and neg. It does not."
        )
    numbers = {word: number for number, word in enumerate(vocabulary[: WORDS - 2], start=2)}
    parts = []
    for part in ("train", "test"):
        reviews, labels = _split_words(texts, part)
        numbered = [np.array([numbers.get(word, _UNKNOWN) for word in words], dtype=np.int64) for words in reviews]
        parts.append((numbered, labels))
    return parts


DATASET = DataSet(
    "imdb",
    Source(
        "https://ai.stanford.edu/~amaas/data/sentiment/",
        (
            Remote(
                f"https://ai.stanford.edu/~amaas/data/sentiment/{_ARCHIVE}",
                _ARCHIVE,
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
    ),
    read=_read,
    files="imdb.npz or imdb_tokens*.npz (with flat_train, offsets_train, y_train, flat_test, offsets_test, y_test), "
    f"for {_ARCHIVE}, or else for {_VOCABULARY} with the folders train and test",
    folders=("aclImdb",),
    defaults=TrainingDefaults("embedding", lot_size=512, epochs=9, learning_rate=2.0, adam_rate=0.02),
    read_words=read_words,
)
