"""IMDb film reviews: is one positive or negative? Its first 256 words, as numbers of a vocabulary that is published.

Words are numbered by the vocabulary that comes with the reviews (imdb.vocab, the most frequent first), or that lies in
an .npz file of numbered words. It is taken as public: looking up which words are frequent would cost privacy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from tacit.datasets.data import Array, Data, Examples
from tacit.datasets.files import is_archive, members, npz, reading
from tacit.datasets.places import below
from tacit.errors import InvalidArgument

FILES = (
    "imdb.npz or imdb_tokens*.npz (with flat_train, offsets_train, y_train, flat_test, offsets_test, y_test), for "
    "aclImdb_v1.tar.gz, or else for imdb.vocab with the folders train and test"
)
WORDS, LENGTH = 10_000, 256
_PADDING, _UNKNOWN = 0, 1
_PUBLISHED_SIZE = 25_000
_KEYS = ("flat_train", "offsets_train", "y_train", "flat_test", "offsets_test", "y_test")
_WORD = re.compile(r"[a-z0-9']+")
_PATH = re.compile(r"(?:^|/)(train|test)/(pos|neg)/[^/]+\.txt$")
_ARCHIVE, _VOCABULARY = "aclImdb_v1.tar.gz", "imdb.vocab"
FOLDERS = ("aclImdb",)


def read_imdb(where: Path) -> Data | None:
    """From numbered words, the archive or its folder; None if neither is there."""
    found = read_numbers(where)
    return None if found is None else _data(*((_padded(reviews), labels) for reviews, labels in found))


Numbered = tuple[list[Array], Array]
Texts = tuple[list[list[str]], Array]


def read_numbers(where: Path) -> list[Numbered] | None:
    """Whole reviews as numbers of words, with their labels, to train on and to test on; None if they are not there.

    The most frequent word is 2; 1 and whatever is not below `WORDS` stands for words that are not used.
    """
    numbered = where if where.suffix == ".npz" and where.is_file() else _first(where, ["imdb.npz", "imdb_tokens*.npz"])
    if numbered is not None:
        return _from_numbers(numbered)
    files = _texts(where)
    return None if files is None else _from_texts(files, where)


def read_words(where: Path) -> tuple[Texts, Texts] | None:
    """Whole reviews as lists of words, with their labels; None if they are not there.

    In numbered form, words that the file does not name are missing.
    """
    numbered = where if where.suffix == ".npz" and where.is_file() else _first(where, ["imdb.npz", "imdb_tokens*.npz"])
    if numbered is not None:
        return _named_words(numbered)
    files = _texts(where)
    if files is None:
        return None
    texts = {path: text for path, text in files if _PATH.search(path)}
    return _cut(texts, "train"), _cut(texts, "test")


def _named_words(file: Path) -> tuple[Texts, Texts]:
    *arrays, vocabulary = npz(file, (*_KEYS, "vocab"))
    names = [str(word) for word in vocabulary]
    with reading(file, "numbered words"):
        parts = []
        for flat, offsets, labels in (arrays[:3], arrays[3:]):
            known = [
                [names[number - 2] for number in flat[i:j].tolist() if number > _UNKNOWN] for i, j in pairwise(offsets)
            ]
            parts.append((known, labels.astype(np.int64)))
    return parts[0], parts[1]


def _cut(texts: dict[str, bytes], part: str) -> Texts:
    words, labels = [], []
    for path in sorted(texts):
        match = _PATH.search(path)
        if match is not None and match[1] == part:
            words.append(_WORD.findall(texts[path].decode("utf-8").lower()))
            labels.append(int(match[2] == "pos"))
    return words, np.array(labels, dtype=np.int64)


def _data(train: Examples, test: Examples) -> Data:
    return Data(
        "imdb",
        train,
        test,
        classes=2,
        population=_PUBLISHED_SIZE,
        scaling=f"the first {LENGTH} words, numbered by a published vocabulary of which {WORDS:,} are used",
        vocabulary=(WORDS,),
        example="review",
    )


def _first(where: Path, patterns: list[str]) -> Path | None:
    return next((file for pattern in patterns for file in sorted(where.glob(pattern))), None)


def _from_numbers(file: Path) -> list[Numbered]:
    arrays = npz(file, _KEYS)
    with reading(file, "numbered words"):
        parts = []
        for flat, offsets, labels in (arrays[:3], arrays[3:]):
            if len(offsets) != len(labels) + 1 or set(np.unique(labels)) - {0, 1}:
                raise ValueError("every review needs an offset and a label of 0 or 1")
            reviews = [flat[start:stop] for start, stop in pairwise(offsets)]
            parts.append((reviews, labels.astype(np.int64)))
    return parts


def _padded(reviews: list[Array]) -> Array:
    """[reviews, 256] numbers: 0 after the end, 1 for a word that is not among those used."""
    words = np.full((len(reviews), LENGTH), _PADDING, dtype=np.int64)
    for row, review in zip(words, reviews, strict=True):
        start = review[:LENGTH]
        row[: len(start)] = np.where(start < WORDS, start, _UNKNOWN)
    return words


def _texts(where: Path) -> Iterator[tuple[str, bytes]] | None:
    archive = where if is_archive(where.name) else where / _ARCHIVE
    if archive.is_file():
        return members(archive)
    if where.name == _VOCABULARY:
        where = where.parent
    folder = next((each for each in (where, *below(where, FOLDERS)) if (each / _VOCABULARY).is_file()), None)
    if folder is None:
        return None
    texts = (
        file for part in ("train", "test") for label in ("pos", "neg") for file in (folder / part / label).glob("*")
    )
    return ((file.as_posix(), file.read_bytes()) for file in (folder / _VOCABULARY, *sorted(texts)))


def _from_texts(files: Iterator[tuple[str, bytes]], where: Path) -> list[Numbered]:
    """Reviews in the order of their paths, so that neither archive nor file system has a say in it."""
    texts: dict[str, bytes] = {}
    vocabulary: list[str] = []
    with reading(where, "the reviews of IMDb"):
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
    return [_part(part, texts, numbers) for part in ("train", "test")]


def _part(part: str, texts: dict[str, bytes], numbers: dict[str, int]) -> Numbered:
    texts_of_words, labels = _cut(texts, part)
    reviews = [np.array([numbers.get(word, _UNKNOWN) for word in words], dtype=np.int64) for words in texts_of_words]
    return reviews, labels
