"""Sparse tables, tables in single precision and tables in a file: the same fit, and no copies of large ones."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from tacit.erm import rows
from tacit.errors import InvalidArgument
from tacit.estimators import (
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRegressor,
)

RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(300, 8)) * (RNG.random((300, 8)) < 0.4)
LABELS = (DENSE[:, 0] - DENSE[:, 1] + 0.1 * RNG.normal(size=300) > 0).astype(int)
ABOUT = {"epsilon": 5.0, "data_norm": 2.0, "random_state": 0}
SPARSE = {
    "csr": sparse.csr_matrix,
    "csr array": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "entries that come twice": lambda x: twice(sparse.csr_matrix(x)),
}
LINEAR = {
    "logistic": lambda method: PrivateLogisticRegression(method=method, classes=[0, 1], **ABOUT),
    "hinge": lambda method: PrivateLinearSVC(method=method, classes=[0, 1], **ABOUT),
    "regression": lambda method: PrivateLinearRegression(method=method, target_bound=1.0, **ABOUT),
}


def twice(x: sparse.csr_matrix) -> sparse.csr_matrix:
    """The same table, every entry stored as two halves."""
    halves = np.repeat(x.data / 2, 2), np.repeat(x.indices, 2), 2 * x.indptr
    return sparse.csr_matrix(halves, shape=x.shape)


@pytest.mark.parametrize("form", SPARSE)
@pytest.mark.parametrize("method", ["objective", "output", "gradient", "input"])
def test_a_sparse_table_gives_the_fit_of_its_dense_form(form, method):
    made = SPARSE[form](DENSE)
    before = made.copy()
    for build in LINEAR.values():
        dense, from_sparse = build(method).fit(DENSE, LABELS), build(method).fit(made, LABELS)
        np.testing.assert_allclose(from_sparse.coef_, dense.coef_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(from_sparse.predict(made), dense.predict(DENSE), atol=1e-6)
    assert (made != before).nnz == 0


@pytest.mark.slow
@pytest.mark.parametrize("made", [PrivateClassifier, PrivateRegressor])
def test_networks_take_sparse_tables_too(made):
    about = {"epsilon": 5.0, "random_state": 0, "steps": 5}
    target = {"classes": [0, 1]} if made is PrivateClassifier else {"target_bound": 1.0}
    dense, from_sparse = (made(**about, **target).fit(x, LABELS) for x in (DENSE, sparse.csr_matrix(DENSE)))
    np.testing.assert_array_equal(from_sparse.predict(sparse.csc_matrix(DENSE)), dense.predict(DENSE))


def test_declared_bounds_and_norms_by_estimate_take_sparse_tables():
    for about in (
        {"scale": "bounds", "bounds": (-4.0, 4.0), "method": "objective"},
        {"scale": "bounds", "bounds": dict.fromkeys(range(8), (-4.0, 4.0)), "method": "objective"},
        {"data_norm": "estimate"},
    ):
        models = (PrivateLogisticRegression(epsilon=5.0, classes=[0, 1], random_state=0, **about) for _ in range(2))
        dense, from_sparse = (
            each.fit(x, LABELS) for each, x in zip(models, (DENSE, SPARSE["csr"](DENSE)), strict=True)
        )
        np.testing.assert_allclose(from_sparse.coef_, dense.coef_, rtol=1e-6, atol=1e-9)


def test_a_damaged_sparse_table_is_refused():
    broken = sparse.csr_matrix(DENSE)
    broken.indices[3] = 99
    with pytest.raises((InvalidArgument, ValueError)):
        PrivateLogisticRegression(classes=[0, 1], **ABOUT).fit(broken, LABELS)


@pytest.fixture
def all_are_large(monkeypatch):
    """Every table counts as large, and is converted in pieces of a few rows."""
    monkeypatch.setattr(rows, "_LARGE", 0)
    monkeypatch.setattr(rows, "_PIECE", 64)


@pytest.mark.parametrize("method", ["objective", "output", "gradient", "input"])
def test_a_large_table_gives_the_fit_of_a_small_one(method, monkeypatch, tmp_path):
    single = DENSE.astype(np.float32)
    stored = np.memmap(tmp_path / "table", dtype=np.float32, mode="w+", shape=single.shape)
    stored[:] = single
    small = [build(method).fit(single.astype(np.float64), LABELS) for build in LINEAR.values()]
    monkeypatch.setattr(rows, "_LARGE", 0)
    monkeypatch.setattr(rows, "_PIECE", 64)
    for table in (single, stored, np.asfortranarray(single)):
        for build, expected in zip(LINEAR.values(), small, strict=True):
            found = build(method).fit(table, LABELS)
            np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-5, atol=1e-8)
            np.testing.assert_allclose(found.predict(table), expected.predict(single), atol=1e-5)


@pytest.mark.usefixtures("all_are_large")
def test_rows_that_are_not_finite_count_nothing_in_a_large_table():
    from tacit.erm import Logistic
    from tacit.erm.problem import prepare

    table = DENSE.astype(np.float32).copy()
    table[5, 2], table[7, 0] = np.nan, np.inf
    about = {"loss": Logistic(), "regularisation": 0.1, "data_norm": 1.0}
    problem = prepare(table, LABELS, **about)
    theta = RNG.normal(size=problem.shape)
    assert isinstance(problem.rows, rows.StayingRows)
    held = problem.rows[:]
    assert not held[[5, 7]].any()
    assert (np.linalg.norm(held, axis=1) <= 1).all()
    np.testing.assert_allclose(problem.rows @ theta, held @ theta)
    np.testing.assert_allclose(problem.rows.T @ problem.targets, held.T @ problem.targets)
    np.testing.assert_allclose(
        rows.weigh_squares(problem.rows, np.arange(300.0)), held.T @ (held * np.arange(300.0)[:, None])
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["objective", "output"])
def test_no_copy_is_made_of_a_large_table(method, monkeypatch):
    """8 MB in single precision: a copy in double precision would take 16 MB more."""
    monkeypatch.setattr(rows, "_LARGE", 2**18)
    monkeypatch.setattr(rows, "_PIECE", 2**16)
    table = RNG.normal(size=(10_000, 200)).astype(np.float32)
    labels = (table[:, 0] > 0).astype(int)
    model = PrivateLogisticRegression(method=method, classes=[0, 1], epsilon=1.0, data_norm=12.0)
    tracemalloc.start()
    try:
        model.fit(table, labels).predict(table)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6e6
