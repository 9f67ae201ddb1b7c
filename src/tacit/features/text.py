"""Texts as bags of words, without a vocabulary: a public hash gives the column of each word.

A vocabulary counted on private texts reveals which words occur in them, and would cost privacy. A hash needs none. Two
words with the same column are counted together, which costs little accuracy if there are more columns than words. Each
text is transformed by itself, so no privacy is spent.

Bags lose the order of words, and with it what "not" refers to. So a word after a negation counts as another word: "not
very good" holds "not" and "not good", but not "good".
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.features.tables import Row, Shares, release_mean, square_norms, to_sparse_rows

PLACES = 2**16
_WORD = re.compile(r"[a-z0-9']+")
# Function words of English, which say little about a text. Negations say much, and are not included.
_COMMON = (
    "a about above after again all also am an and any are as at be because been before being below between both br by "
    "can could did do does doing down during each few for from further had has have having he he's her here hers "
    "herself him himself his how i i'm i've if in into is it it's its itself just me more most my myself of off on "
    "once one only or other our ours ourselves out over own s same she she's should so some such t than that that's "
    "the their theirs them themselves then there there's these they they're this those through to too two under until "
    "up very was we were what when where which while who whom why will with would you you're your yours yourself "
    "yourselves"
)
COMMON = frozenset(_COMMON.split())
# Words that negate the next one, beside those that end in n't.
NEGATIONS = frozenset(
    ["cannot", "hardly", "neither", "never", "no", "nobody", "none", "nor", "not", "nothing", "without"]
)
_CONTRACTED = "n't"
_NEGATED = "not "

Weighting = Literal["presence", "logarithm"]


@dataclass(eq=False, repr=False)
class HashedWords(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts to sparse rows of norm 1, with `places` columns.

    Words are runs of lower-case letters, digits and apostrophes; `common` ones are left out. A word counts 1
    ("presence"), or 1 + log of its number of occurrences ("logarithm"). The first word after a negation, common ones
    aside, becomes "not" with that word, unless `is_negated` is False. A `vocabulary` is a public list: words outside it
    are left out, and the others have the columns of their places in it. A negated word has its own column if the list
    holds it, as "not good", and else the column of the word.

    >>> HashedWords().fit_transform(["A film, a good film", "good"]).shape
    (2, 65536)
    """

    _: KW_ONLY
    places: int = PLACES
    weighting: Weighting = "logarithm"
    common: Iterable[str] = COMMON
    is_negated: bool = True
    vocabulary: Iterable[str] | None = None
    pairs: float = 0.0

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Nothing to learn; the settings are checked."""
        _validate.count("places", self.places, at_least=2)
        if self.weighting not in ("presence", "logarithm"):
            raise InvalidArgument(f"weighting must be 'presence' or 'logarithm'. Got {self.weighting!r}.")
        if isinstance(self.vocabulary, str) or isinstance(self.common, str):
            raise InvalidArgument("vocabulary and common are lists of words. Got a text.")
        _validate.non_negative("pairs", self.pairs)
        return self

    def transform(self, X: Any) -> sparse.csr_matrix:  # noqa: N803
        """One sparse row for every text."""
        if isinstance(X, str):
            raise InvalidArgument("X must be a list of texts. Got a single one.")
        return self.of_words(_WORD.findall(_check_text(each).lower()) for each in X)

    def of_words(self, texts: Iterable[Iterable[str]]) -> sparse.csr_matrix:
        """One sparse row for every text that was cut into words already."""
        self.fit(None)
        place = self._make_lookup()
        ends = [0]
        columns: list[int] = []
        values: list[float] = []
        for words in texts:
            kept = self._keep(words)
            found, weights = self._count(place, kept)
            if self.pairs:
                more, others = self._count(place, [f"{first} {second}" for first, second in pairwise(kept)])
                found, weights = [*found, *more], np.concatenate([weights, self.pairs * others])
            columns.extend(found)
            values.extend(weights / max(float(np.linalg.norm(weights)), 1e-12))
            ends.append(len(columns))
        shape = (len(ends) - 1, self.places if self.vocabulary is None else len(list(self.vocabulary)))
        rows = sparse.csr_matrix((np.array(values, np.float32), np.array(columns, np.int32), np.array(ends)), shape)
        # A pair may have the column of a word.
        rows.sum_duplicates()
        return rows

    def _count(self, place: Any, words: list[str]) -> tuple[list[int], NDArray[np.float64]]:
        """The columns of these words, and the weight of each."""
        counts = Counter(column for column in map(place, words) if column >= 0)
        return list(counts), _weigh(np.fromiter(counts.values(), np.float64, len(counts)), self.weighting)

    def _keep(self, words: Iterable[str]) -> list[str]:
        """Words of a text without the common ones; negated where they follow a negation."""
        common = frozenset(self.common)
        kept = [word for word in words if word not in common]
        return _negate(kept) if self.is_negated else kept

    def _make_lookup(self) -> Any:
        """A function from a word to its column, or -1."""
        if self.vocabulary is not None:
            known = {word: column for column, word in enumerate(self.vocabulary)}
            return lambda word: known.get(word, known.get(word.removeprefix(_NEGATED), -1))

        @lru_cache(maxsize=2**18)
        def place(word: str) -> int:
            return zlib.crc32(word.encode()) % self.places

        return place


def _negate(words: list[str]) -> list[str]:
    """Put "not" before each word that follows a negation and is none itself."""
    found, turns = [], False
    for word in words:
        is_negation = word in NEGATIONS or word.endswith(_CONTRACTED)
        found.append(_NEGATED + word if turns and not is_negation else word)
        turns = is_negation
    return found


def _weigh(counts: NDArray[np.float64], weighting: Weighting) -> NDArray[np.float64]:
    """The weights of one text's words."""
    return np.ones_like(counts) if weighting == "presence" else 1 + np.log(counts)


def pad_words(x: Any, length: int) -> NDArray[np.float32]:
    """[texts, 2, length]: columns (from 1; 0 after the end) and weights, for models with an embedding.

    A text with more than `length` words keeps those of largest weight, and is scaled to norm 1 again.
    """
    rows = to_sparse_rows(x)
    found = np.zeros((rows.shape[0], 2, length), dtype=np.float32)
    for text, (start, stop) in enumerate(zip(rows.indptr[:-1], rows.indptr[1:], strict=True)):
        columns, weights = rows.indices[start:stop], rows.data[start:stop]
        if len(columns) > length:
            heaviest = np.sort(np.argsort(-weights, kind="stable")[:length])
            columns, weights = columns[heaviest], weights[heaviest]
            weights = weights / np.linalg.norm(weights)
        found[text, 0, : len(columns)] = columns + 1
        found[text, 1, : len(columns)] = weights
    return found


def _check_text(each: Any) -> str:
    """The text; anything else is refused, as rows of numbers would be hashed by their digits."""
    if not isinstance(each, str):
        raise InvalidArgument(f"X must hold texts, each a str. Got {type(each).__name__}.")
    return each


@dataclass(eq=False, repr=False)
class PrivateWordWeights(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Gives frequent words less weight in sparse rows, and scales rows to norm 1.

    `fit` releases the mean row as `PrivateCentring` does. A word of mean m above a floor gets the weight
    sqrt(floor / m). The floor is `floor`, or four standard deviations of the noise if that is more, so that noise alone
    changes hardly any weight. A row that is not finite counts as zero, and becomes zero.
    """

    multiplier: float
    population: int
    _: KW_ONLY
    floor: float = 0.003
    random_state: int | None = None

    def fit(self, X: Any, y: Any = None, *, shares: Shares = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Release the mean; the weights follow from it. With `shares`, as in `PrivateCentring`."""
        floor = max(_validate.positive("floor", self.floor), 4 * self.multiplier / self.population)
        self.mean_, self.event_ = release_mean(
            X, multiplier=self.multiplier, population=self.population, seed=self.random_state, shares=shares
        )
        self.weights_: Row = np.sqrt(floor / np.maximum(self.mean_, floor)).astype(np.float32)
        self.n_features_in_ = len(self.mean_)
        return self

    def transform(self, X: Any) -> sparse.csr_matrix:  # noqa: N803
        """Transform each row by itself."""
        check_is_fitted(self)
        rows = to_sparse_rows(X)
        if rows.shape[1] != len(self.weights_):
            raise InvalidArgument(f"X must have {len(self.weights_)} columns, as in fit. Got {rows.shape[1]}.")
        weighed = sparse.csr_matrix(rows.multiply(self.weights_[None, :]))
        norms = np.sqrt(square_norms(weighed))
        usable = np.isfinite(norms) & (norms > 0)
        # Multiplying by zero would leave infinite and NaN entries as they are.
        weighed.data[np.repeat(~usable, np.diff(weighed.indptr))] = 0
        scales = sparse.diags(1 / np.where(usable, norms, 1))
        return to_sparse_rows(scales @ weighed)
