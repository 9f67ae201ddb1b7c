"""Rows as a user gives them, brought into the one form that norms, sums and training all read.

A sparse matrix may hold a column of a row several times, and the entry is then the sum of these. Code that reads the
stored numbers one by one would see another row than code that reads the entries: its norm would be bounded, and not
that of the row. So every sparse matrix goes through `sparse_rows` first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tacit.errors import InvalidArgument


def table_of(x: Any) -> NDArray[np.float32]:
    """Dense rows of numbers, also of a sparse matrix; `InvalidArgument` for anything else than a table."""
    if sparse.issparse(x):
        dense: NDArray[np.float32] = sparse_rows(x).toarray()
        return dense
    rows = np.asarray(x, dtype=np.float32)
    if rows.ndim != 2:
        raise InvalidArgument(f"X must be a table, one row per example. Got shape {rows.shape}.")
    return rows


def sparse_rows(x: Any) -> sparse.csr_matrix:
    """Sparse rows that store every entry once, in the order of columns, and no zeros. The argument stays as it is.

    Repeated entries are added up, as scipy's `toarray` does. NaN and infinite entries stay: whoever sums rows leaves
    those rows out.

    >>> twice = sparse.csr_matrix(([3.0, 4.0], [1, 1], [0, 2]), shape=(1, 3))
    >>> sparse_rows(twice).data
    array([7.], dtype=float32)
    """
    if not sparse.issparse(x):
        return sparse.csr_matrix(table_of(x))
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise InvalidArgument(
            f"X must be a table of real numbers, one row per example. Got a sparse one of shape {x.shape} and type "
            f"{x.dtype}."
        )
    given = x.tocsr()
    # Made anew from its parts: flags that say "no repeated entries" outlive changes of these, and would be believed.
    rows = sparse.csr_matrix((given.data.copy(), given.indices.copy(), given.indptr.copy()), shape=given.shape)
    try:
        rows.check_format(full_check=True)
    except ValueError as error:
        raise InvalidArgument(f"X is a damaged sparse matrix: {error}. Build it again from its entries.") from error
    rows.sum_duplicates()
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    rows.eliminate_zeros()
    return rows
