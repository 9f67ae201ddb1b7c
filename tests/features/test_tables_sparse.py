"""Sparse rows: whatever way a matrix stores its entries, norms, means and models are those of its dense form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tacit.errors import InvalidArgument
from tacit.features import Knots, PrivateCentring, PrivateWhitening, PrivateWordWeights
from tacit.features.tables import release_mean, to_sparse_rows, to_table
from tacit.features.text import pad_words

COLUMNS = 6


def matrix(seed: int, rows: int = 40, dtype=np.float64, stored: int = 200) -> sparse.csr_matrix:
    """Entries at random places in random order: many columns of a row come several times, and some hold zeros."""
    rng = np.random.default_rng(seed)
    places = np.sort(rng.integers(rows, size=stored))
    indptr = np.searchsorted(places, np.arange(rows + 1))
    values = rng.integers(-3, 4, size=stored)
    values = values.astype(dtype) if np.issubdtype(dtype, np.integer) else (values * rng.uniform(size=stored))
    made = sparse.csr_matrix((values.astype(dtype), rng.integers(COLUMNS, size=stored), indptr), (rows, COLUMNS))
    assert not made.has_canonical_format
    return made


def bounded(dense: np.ndarray) -> np.ndarray:
    """A slow loop: every row scaled down to norm 1 where it is longer, none that is not finite."""
    found = np.zeros(dense.shape)
    for place, row in enumerate(np.asarray(dense, dtype=np.float64)):
        if np.isfinite(row).all():
            found[place] = row / max(np.linalg.norm(row), 1.0)
    return found


def sum_of(x, multiplier: float = 1e-6) -> np.ndarray:
    """The released sum with next to no noise."""
    mean, _ = release_mean(x, multiplier=multiplier, population=1, seed=0)
    return mean


KINDS = {
    "as it is": lambda x: x,
    "an array": sparse.csr_array,
    "by columns": lambda x: x.tocsc(),
    "as entries": lambda x: sparse.coo_matrix(
        (x.data, (np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), x.indices)), x.shape
    ),
    "as lists": lambda x: x.tolil(),
    "as blocks": lambda x: x.tobsr((2, 2)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int8, np.uint16])
def test_the_private_sum_is_that_of_the_dense_rows(kind, dtype):
    x = abs(matrix(1, dtype=dtype)) if dtype is np.uint16 else matrix(1, dtype=dtype)
    given = KINDS[kind](x)
    assert sum_of(given) == pytest.approx(bounded(x.toarray()).sum(axis=0), abs=1e-4)
    assert sum_of(given) == pytest.approx(sum_of(x.toarray()), abs=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_a_row_that_is_not_finite_counts_zero(value):
    x = matrix(2)
    x.data[x.indptr[3]] = value
    with np.errstate(over="ignore"):
        dense = x.toarray().astype(np.float32)
    assert sum_of(x) == pytest.approx(bounded(dense).sum(axis=0), abs=1e-4)
    weights = PrivateWordWeights(1e-6, 40, random_state=0).fit(matrix(2))
    assert weights.transform(x)[3].nnz == 0
    assert np.isfinite(weights.transform(x).data).all()


@pytest.mark.slow
@given(st.data())
def test_one_row_moves_the_sum_by_at_most_one(data):
    """Entries of every size, at columns that come several times: the noise is the same for both."""
    stored = data.draw(st.integers(1, 12))
    numbers = st.floats(-1e6, 1e6, width=32)
    values = data.draw(st.lists(numbers, min_size=stored, max_size=stored))
    columns = data.draw(st.lists(st.integers(0, COLUMNS - 1), min_size=stored, max_size=stored))
    row = sparse.csr_matrix((np.array(values), columns, [0, stored]), (1, COLUMNS))
    x = matrix(3, rows=5, stored=20)
    parts = (np.r_[x.data, row.data], np.r_[x.indices, row.indices], np.r_[x.indptr, x.nnz + stored])
    more = sparse.csr_matrix(parts, (6, COLUMNS))
    assert np.linalg.norm(sum_of(more, 1e-4) - sum_of(x, 1e-4)) <= 1 + 1e-4


def test_two_entries_at_one_place_are_one_of_their_sum():
    """Read one by one, both have norm sqrt(2) / 2: the row would count sqrt(2)."""
    x = sparse.csr_matrix(([5.0, 5.0], [0, 0], [0, 2]), shape=(1, 2))
    assert sum_of(x) == pytest.approx([1.0, 0.0], abs=1e-4)
    cancelling = sparse.csr_matrix(([5.0, -5.0, 0.5], [0, 0, 1], [0, 3]), shape=(1, 2))
    assert sum_of(cancelling) == pytest.approx([0.0, 0.5], abs=1e-4)


@pytest.mark.parametrize("made", [PrivateCentring, PrivateWordWeights])
def test_what_is_prepared_is_the_same_as_of_the_dense_rows(made):
    x = abs(matrix(4))
    first, second = (made(1e-6, 40, random_state=0).fit(each) for each in (x, x.toarray()))
    assert first.mean_ == pytest.approx(second.mean_, abs=1e-6)
    rows, dense = (to_table(first.transform(each)) for each in (x, x.toarray()))
    assert rows == pytest.approx(dense, abs=1e-5)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-5


def test_tables_may_be_sparse_too():
    x = matrix(5)
    for made in (Knots(2), PrivateWhitening(1.0, 40, axes=(COLUMNS,), random_state=0)):
        assert made.fit(x).transform(x) == pytest.approx(made.fit(x.toarray()).transform(x.toarray()), abs=1e-5)


def test_words_that_are_looked_up_come_once():
    x = sparse.csr_matrix(([1.0, 2.0, 0.0, 4.0], [3, 1, 2, 3], [0, 4]), shape=(1, COLUMNS))
    assert pad_words(x, 3).tolist() == [[[2, 4, 0], [2, 5, 0]]]
    assert pad_words(x, 1).tolist() == [[[4], [1]]]


def test_the_matrix_that_was_given_stays_as_it_is():
    x = matrix(6)
    parts = [each.copy() for each in (x.data, x.indices, x.indptr)]
    to_sparse_rows(x)
    sum_of(x)
    PrivateWordWeights(1.0, 40).fit(x).transform(x)
    pad_words(x, 2)
    assert all(np.array_equal(one, other) for one, other in zip(parts, (x.data, x.indices, x.indptr), strict=True))
    once = sparse.csr_matrix(np.eye(3, dtype=np.float32))
    to_sparse_rows(once).data[:] = 7
    assert np.array_equal(once.toarray(), np.eye(3))


def test_every_entry_is_stored_once_in_order_and_none_is_zero():
    rows = to_sparse_rows(matrix(7))
    assert rows.has_canonical_format
    assert rows.dtype == np.float32
    assert (rows.data != 0).all()
    for start, stop in zip(rows.indptr, rows.indptr[1:], strict=False):
        assert (np.diff(rows.indices[start:stop]) > 0).all()


def test_a_flag_that_denies_repeated_entries_is_not_believed():
    x = sparse.csr_matrix(np.ones((1, 2)))
    assert x.has_canonical_format
    x.indices[:] = 0
    assert x.has_canonical_format
    assert sum_of(x) == pytest.approx([1.0, 0.0], abs=1e-4)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (sparse.csr_matrix(np.eye(2) * 1j), "real numbers.*complex128"),
        (sparse.coo_array(np.ones(3)), r"shape \(3,\)"),
    ],
    ids=["complex", "one row"],
)
def test_what_is_no_table_of_real_numbers_is_refused(x, said):
    for reads in (to_sparse_rows, to_table, sum_of):
        with pytest.raises(InvalidArgument, match=said):
            reads(x)


def test_a_damaged_matrix_is_refused():
    x = sparse.csr_matrix(np.eye(3))
    x.indices[0] = 9
    with pytest.raises(InvalidArgument, match="damaged sparse matrix"):
        sum_of(x)
