"""Scaling and encoding inside an estimator, from declared bounds and categories, and the norm that follows."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from tacit.datasets._columns import Category, Number
from tacit.erm import Logistic
from tacit.errors import Caution, InvalidArgument
from tacit.estimators import PrivateClassifier, PrivateLinearRegression, PrivateLogisticRegression
from tacit.estimators.encoding import encode_columns

RNG = np.random.default_rng(0)
N = 200
FRAME = pd.DataFrame(
    {
        "smoker": RNG.choice(["no", "yes"], N),
        "age": RNG.uniform(0, 90, N),
        "income": RNG.lognormal(9, 2, N),
        "region": RNG.choice([1, 2, 3], N),
    }
)
Y = (FRAME["age"] > 45).astype(int)
BOUNDS = {
    "age": (0, 100),
    "smoker": ["no", "yes"],
    "region": [1, 2, 3],
    "income": {"low": 0, "high": 1e6, "log": True},
}


def by_hand(frame):
    """The same encoding by other means."""
    log = np.log1p(frame["income"].clip(0, 1e6)) / np.log1p(1e6)
    numbers = [frame["age"].clip(0, 100) / 50 - 1, 2 * log - 1]
    codes = OneHotEncoder(categories=[["no", "yes"], [1, 2, 3]], sparse_output=False)
    return np.column_stack([*numbers, codes.fit_transform(frame[["smoker", "region"]])])


def logistic(**settings):
    return PrivateLogisticRegression(**{"scale": "bounds", "bounds": BOUNDS, "classes": [0, 1], **settings})


def test_a_frame_with_text_is_encoded_as_by_hand_in_fit_and_predict():
    model = logistic(method="objective", epsilon=5.0, random_state=0).fit(FRAME, Y)
    other = logistic(scale=None, bounds=None, data_norm=2.0, epsilon=5.0, random_state=0).fit(by_hand(FRAME), Y)
    assert model.data_norm_ == 2.0
    assert model.coef_ == pytest.approx(other.coef_, abs=1e-5)
    assert model.predict_proba(FRAME) == pytest.approx(other.predict_proba(by_hand(FRAME)), abs=1e-5)
    assert model.encoded_names_ == ["age", "income", "smoker=no", "smoker=yes", "region=1", "region=2", "region=3"]
    assert list(model.feature_names_in_) == list(FRAME.columns)
    assert not {"prepared_before_fit", "transformers_not_covered"} & {one.key for one in model.guarantee_.assumptions}


@pytest.mark.slow
def test_other_estimators_and_tools_take_the_frame_too():
    network = PrivateClassifier(scale="bounds", bounds=BOUNDS, steps=3, classes=[0, 1]).fit(FRAME, Y)
    assert network.predict_proba(FRAME).shape == (N, 2)
    number = PrivateLinearRegression(scale="bounds", bounds=BOUNDS, target_bound=90.0, epsilon=9.0)
    assert number.fit(FRAME, FRAME["age"]).predict(FRAME).shape == (N,)
    model = clone(make_pipeline(FunctionTransformer(), logistic(epsilon=9.0, random_state=0))).fit(FRAME, Y)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(FRAME) == model.predict(FRAME)).all()
    assert np.isfinite(cross_val_score(logistic(epsilon=9.0), FRAME, Y, cv=2)).all()


def test_columns_of_an_array_are_declared_by_position():
    rows = FRAME[["age", "smoker"]].to_numpy()
    model = logistic(bounds={0: (0, 100), 1: ["no", "yes"]}, epsilon=5.0, random_state=0).fit(rows, Y)
    assert model.encoded_names_ == ["0", "1=no", "1=yes"]
    with pytest.raises(InvalidArgument, match="positions"):
        clone(model).fit(rows[:, :1], Y)


def test_declarations_of_other_parts_of_the_package_are_taken():
    given = {"age": Number(0, 100), "smoker": Category.of("no yes")}
    assert logistic(bounds=given).fit(FRAME[["age", "smoker"]], Y).encoded_names_ == ["age", "smoker=no", "smoker=yes"]


@pytest.mark.parametrize(
    ("bounds", "frame", "said"),
    [
        ({**BOUNDS, "agee": (0, 1)}, FRAME, r"'agee' \(did you mean 'age'\?\)"),
        ({"age": (0, 100)}, FRAME, "does not declare"),
        ({**BOUNDS, "smoker": ["no"]}, FRAME, "'yes'"),
        ({**BOUNDS, "age": 5, "smoker": []}, FRAME, r"'age'.*'smoker'"),
        ({**BOUNDS, "age": (5, 5)}, FRAME, "'age'.*low must be below high"),
        ({}, FRAME, "every column"),
        (BOUNDS, FRAME.assign(age=np.nan, smoker=None), r"'age': 200 rows.*'smoker': 200 rows"),
        (BOUNDS, FRAME.assign(age=np.inf), "'age': 200 rows"),
        (BOUNDS, FRAME.assign(age="old"), "'age'.*not a number"),
        (BOUNDS, FRAME.assign(age=pd.Timestamp("2020-01-01")), "'age'.*not a number"),
        (BOUNDS, FRAME["age"].to_numpy(), "shape"),
    ],
)
def test_what_does_not_match_the_declaration_is_refused_by_name(bounds, frame, said):
    with pytest.raises((InvalidArgument, ValueError), match=said):
        logistic(bounds=bounds).fit(frame, Y)


def test_a_new_frame_that_does_not_match_is_refused():
    model = logistic(epsilon=5.0).fit(FRAME, Y)
    with pytest.raises(ValueError, match="age"):
        model.predict(FRAME.drop(columns="age"))
    with pytest.raises(InvalidArgument, match="not declared"):
        model.predict(FRAME.assign(smoker="sometimes"))


@pytest.mark.parametrize("row", [("yes", 1e300, -1e300, 3), ("no", -5, 0.0, 1), ("yes", "50", True, 2.0)], ids=str)
def test_one_replaced_row_changes_one_encoded_row_whatever_it_holds(row):
    frame = FRAME.astype(object)
    frame.iloc[17] = row
    columns = logistic().fit(FRAME, Y).bounds_
    one, other = encode_columns(FRAME, columns), encode_columns(frame, columns)
    assert (np.delete(one, 17, axis=0) == np.delete(other, 17, axis=0)).all()
    assert np.linalg.norm(other, axis=1).max() <= 2.0


@pytest.mark.parametrize("data_norm", [None, 1.5])
@pytest.mark.parametrize("row", [("yes", 1e300, -1e300, 3), ("no", 0, 1e9, 1)], ids=str)
def test_one_replaced_row_moves_the_release_by_at_most_its_sensitivity(row, data_norm):
    """The seeds are the same, so the noise cancels. Chaudhuri et al. 2011: 2 L / (n strength), L = norm with its 1."""
    frame, y, strength = FRAME.astype(object), Y.copy(), 0.01
    frame.iloc[17], y.iloc[17] = row, 1 - y.iloc[17]
    settings = {"method": "output", "regularisation": strength, "data_norm": data_norm, "random_state": 5}
    one, other = (logistic(**settings).fit(*data) for data in ((FRAME, Y), (frame, y)))
    moved = np.linalg.norm(np.append(one.coef_ - other.coef_, one.intercept_ - other.intercept_))
    slope = Logistic().slope_bound
    assert 0 < moved <= 2 * slope * math.hypot(one.data_norm_, 1) / (N * strength) + 1e-6


def test_the_norm_does_not_count_the_intercept():
    x = np.array([[3.0, 4.0], [0.3, 0.4]] * 50)
    y = np.array([0, 1] * 50)
    settings = {"scale": None, "bounds": None, "random_state": 0, "epsilon": 1e6, "regularisation": 0.1}
    exact, clipped = (logistic(**settings, data_norm=norm).fit(x, y) for norm in (5.0, 2.5))
    by_hand = logistic(**settings, data_norm=2.5).fit(np.where(x > 1, x / 2, x), y)
    assert (clipped.coef_ == by_hand.coef_).all()
    longer = logistic(**settings, data_norm=5.0 * (1 + 1e-9)).fit(x, y)
    assert exact.coef_ == pytest.approx(longer.coef_, rel=1e-4)


def test_rows_within_the_bounds_that_are_nearly_all_too_long_give_a_warning_whatever_the_rows():
    zeros = pd.DataFrame({name: [BOUNDS[name][0]] * N for name in ("smoker", "region")} | {"age": 50, "income": 999.0})
    with pytest.warns(Caution, match="data_norm=0.5"):
        logistic(data_norm=0.5).fit(zeros, Y)
    with pytest.warns(Caution):
        logistic(data_norm=0.5, bounds=(0, 100)).fit(np.zeros((N, 9)), Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logistic(data_norm=1.9).fit(FRAME, Y)
        logistic(data_norm=0.5, bounds=(0, 100)).fit(FRAME[["age"]], Y)


@pytest.mark.parametrize(("given", "is_raised"), [(1e-6, True), (1.0, False)])
def test_a_regularisation_that_was_raised_is_said(given, is_raised):
    model = logistic(epsilon=0.1, regularisation=given).fit(FRAME, Y)
    assert (model.regularisation_ > 1.01 * given) == is_raised
    assert any(f"{model.regularisation_:.4g}" in note for note in model.guarantee_.notes) == is_raised
    assert logistic(method="output", regularisation=0.5).fit(FRAME, Y).regularisation_ == 0.5
