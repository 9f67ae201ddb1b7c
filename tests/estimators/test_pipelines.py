"""What was done to X before `fit`: named where it was learnt from the rows, and scaled by declared bounds."""

import json
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from tacit.errors import InvalidArgument
from tacit.estimators import (
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRegressor,
)
from tacit.features import PrivateCentring
from tacit.guarantee import Guarantee

RNG = np.random.default_rng(0)
X = RNG.uniform(20, 80, size=(120, 3))
Y = (X[:, 0] > 50).astype(int)
BEFORE, NAMED = "prepared_before_fit", "transformers_not_covered"
EPSILON = {"epsilon": 50.0, "random_state": 0}
LINEAR = {**EPSILON, "data_norm": 2.0}
NEURAL = {**EPSILON, "steps": 3, "lot_size": 1e9}
ESTIMATORS = {
    "logistic": PrivateLogisticRegression(**LINEAR),
    "svc": PrivateLinearSVC(**LINEAR),
    "regression": PrivateLinearRegression(**LINEAR, target_bound=1.0),
    "classifier": PrivateClassifier(**NEURAL),
    "regressor": PrivateRegressor(**NEURAL, target_bound=1.0),
    "classifier on noisy data": PrivateClassifier(**NEURAL, method="input", data_norm=2.0),
}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


class Centring(TransformerMixin, BaseEstimator):
    """A transformer of somebody's own, which does not follow the convention for names."""

    def fit(self, x, y=None):
        self.middle = np.mean(x, axis=0)
        return self

    def transform(self, x):
        return x - self.middle


class Halving(TransformerMixin, BaseEstimator):
    """One without state."""

    def fit(self, x, y=None):
        return self

    def transform(self, x):
        return x / 2


def logistic(**settings):
    return PrivateLogisticRegression(**{**LINEAR, "classes": [0, 1], **settings})


def assumed(model, key):
    """The text of the assumption, None where it is not listed."""
    texts = [each.text for each in model.guarantee_.assumptions if each.key == key]
    assert len(texts) <= 1
    return texts[0] if texts else None


def named_by(*steps, model=None, rows=X):
    """What the last step of such a pipeline says was fitted before it."""
    pipeline = make_pipeline(*steps, logistic() if model is None else model).fit(rows, Y)
    return assumed(pipeline[-1], NAMED)


@pytest.mark.slow
@every_estimator
def test_every_estimator_says_that_it_does_not_know_how_x_was_prepared(estimator):
    model = clone(estimator).fit(X, Y)
    assert assumed(model, BEFORE).startswith("X was scaled, encoded and imputed without looking at private rows")
    assert assumed(model, NAMED) is None


def test_a_recipe_says_so_too():
    model = PrivateClassifier(recipe="auto", epsilon=8.0, classes=[0, 1]).fit(X / 100, Y)
    assert assumed(model, BEFORE) is not None


@every_estimator
def test_every_estimator_names_what_was_fitted_before_it(estimator):
    pipeline = make_pipeline(SimpleImputer(), StandardScaler(), clone(estimator)).fit(X, Y)
    sentence = (
        "SimpleImputer and StandardScaler were fitted on the rows given to fit, and this guarantee does not cover them."
    )
    assert assumed(pipeline[-1], NAMED) == sentence
    assert assumed(pipeline[-1], BEFORE).startswith("Apart from them, X was")
    guarantee = pipeline[-1].guarantee_
    assert sentence in str(guarantee)
    assert {"key": NAMED, "text": sentence} in json.loads(guarantee.to_json())["proven"]["assumptions"]
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


def test_a_recipe_in_a_pipeline_names_it_too():
    model = PrivateClassifier(recipe="auto", epsilon=8.0, classes=[0, 1])
    assert named_by(MinMaxScaler((-1, 1)), model=model).startswith("MinMaxScaler was fitted")


LEARNT = {
    "one": ([StandardScaler()], "StandardScaler was"),
    "a pipeline within": (
        [make_pipeline(SimpleImputer(), PCA(2)), MaxAbsScaler()],
        "SimpleImputer, PCA and MaxAbsScaler",
    ),
    "columns": (
        [make_column_transformer((StandardScaler(), [0]), (make_pipeline(KNNImputer(), MinMaxScaler()), [1, 2]))],
        "StandardScaler, KNNImputer and MinMaxScaler were",
    ),
    "columns that pass through": (
        [ColumnTransformer([("scaled", StandardScaler(), [0]), ("same", "passthrough", [1]), ("gone", "drop", [2])])],
        "StandardScaler was",
    ),
    "a union": ([make_union(PCA(1), FunctionTransformer())], "PCA was"),
    "somebody's own": ([Centring()], "Centring was"),
    "twice the same": ([StandardScaler(), StandardScaler()], "StandardScaler was"),
    "with stateless ones between": ([Normalizer(), StandardScaler(), Halving()], "StandardScaler was"),
    "categories that were found": ([OneHotEncoder(handle_unknown="ignore", sparse_output=False)], "OneHotEncoder was"),
    "an imputed constant beside marks of what was missing": (
        [SimpleImputer(strategy="constant", add_indicator=True, keep_empty_features=True)],
        "SimpleImputer was",
    ),
}


@pytest.mark.parametrize(("steps", "said"), LEARNT.values(), ids=LEARNT)
def test_what_learnt_from_the_rows_is_named(steps, said):
    assert named_by(*steps).startswith(said)


ROUND = np.round(X / 40)
FREE = {
    "a function": [FunctionTransformer(np.sqrt)],
    "normalised rows": [Normalizer()],
    "products of columns": [PolynomialFeatures()],
    "somebody's own": [Halving()],
    "nothing": ["passthrough"],
    "declared categories": [OneHotEncoder(categories=[[0, 1, 2]] * 3, sparse_output=False)],
    "declared order": [OrdinalEncoder(categories=[[0, 1, 2]] * 3)],
    "a constant": [SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True)],
    "fitted on public rows": [FrozenEstimator(StandardScaler().fit(RNG.uniform(0, 2, size=(9, 3))))],
    "charged by itself": [PrivateCentring(multiplier=50.0, population=120)],
    "columns without state": [make_column_transformer((Normalizer(), [0, 1]), remainder="passthrough")],
    "a union without state": [FeatureUnion([("rows", Normalizer()), ("none", "drop")])],
}


@pytest.mark.parametrize("steps", FREE.values(), ids=FREE)
def test_what_learnt_nothing_is_not_named(steps):
    assert named_by(*steps, rows=ROUND) is None


def test_an_outer_pipeline_is_seen_through_an_inner_one():
    inner = make_pipeline(PCA(2), logistic())
    outer = make_pipeline(StandardScaler(), Pipeline([("inner", inner)])).fit(X, Y)
    assert assumed(outer[-1][-1][-1], NAMED).startswith("StandardScaler and PCA were")


def test_a_search_around_a_pipeline_is_seen_through():
    search = GridSearchCV(
        Pipeline([("scale", StandardScaler()), ("model", logistic())]),
        {"scale": [StandardScaler(), MinMaxScaler()], "model__regularisation": [0.1]},
        cv=2,
    ).fit(X, Y)
    chosen = type(search.best_estimator_[0]).__name__
    assert assumed(search.best_estimator_[-1], NAMED).startswith(f"{chosen} was")


def test_a_search_within_a_pipeline_is_seen_through():
    search = GridSearchCV(logistic(), {"regularisation": [0.1, 1.0]}, cv=2)
    pipeline = make_pipeline(StandardScaler(), search).fit(X, Y)
    assert assumed(pipeline[-1].best_estimator_, NAMED).startswith("StandardScaler was")


@pytest.mark.slow
def test_folds_in_other_processes_name_the_transformers_of_their_own_pipeline():
    found = cross_validate(make_pipeline(StandardScaler(), logistic()), X, Y, cv=2, return_estimator=True, n_jobs=2)
    assert all(assumed(each[-1], NAMED).startswith("StandardScaler was") for each in found["estimator"])


def test_one_model_for_each_class_names_them_in_each():
    pipeline = make_pipeline(StandardScaler(), OneVsRestClassifier(logistic())).fit(X, RNG.integers(3, size=len(X)))
    assert all(assumed(each, NAMED).startswith("StandardScaler was") for each in pipeline[-1].estimators_)


def test_a_pipeline_with_a_cache_names_what_it_loads(tmp_path):
    for _ in range(2):
        pipeline = make_pipeline(StandardScaler(), logistic(), memory=str(tmp_path)).fit(X, Y)
        assert assumed(pipeline[-1], NAMED).startswith("StandardScaler was")


def test_a_private_model_that_selects_columns_names_only_what_comes_before_it():
    select = SelectFromModel(logistic(), max_features=2)
    pipeline = make_pipeline(StandardScaler(), select, MinMaxScaler(), logistic())
    for _ in range(2):
        pipeline.fit(X, Y)
        assert assumed(pipeline[1].estimator_, NAMED).startswith("StandardScaler was")
        assert "MinMaxScaler" in assumed(pipeline[-1], NAMED)


def test_a_scaler_of_targets_is_named():
    model = PrivateLinearRegression(**LINEAR, target_bound=3.0)
    fitted = TransformedTargetRegressor(model, transformer=StandardScaler()).fit(X, X[:, 0])
    assert assumed(fitted.regressor_, NAMED).startswith("StandardScaler was")


def test_a_fit_after_a_pipeline_names_nothing():
    pipeline = make_pipeline(StandardScaler(), logistic()).fit(X, Y)
    assert assumed(pipeline[-1].fit(X, Y), NAMED) is None


LOW, HIGH = np.array([0.0, 10.0, 30.0]), np.array([100.0, 90.0, 60.0])
BY_HAND = 2 * (np.clip(X, LOW, HIGH) - LOW) / (HIGH - LOW) - 1


def by_bounds(estimator, bounds):
    return clone(estimator).set_params(scale="bounds", bounds=bounds)


def values(model, rows):
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


@every_estimator
def test_scaling_by_bounds_is_the_same_as_scaling_by_hand(estimator):
    model = by_bounds(estimator, (LOW, HIGH)).fit(X, Y)
    other = clone(estimator).fit(BY_HAND, Y)
    assert values(model, X) == pytest.approx(values(other, BY_HAND))
    beyond = X + 200
    assert values(model, beyond) == pytest.approx(values(other, np.ones_like(X)))


@every_estimator
def test_an_estimator_that_scales_by_bounds_assumes_nothing_about_x(estimator):
    model = by_bounds(estimator, (0, 100)).fit(X, Y)
    assert assumed(model, BEFORE) is None
    assert assumed(model, NAMED) is None


def test_bounds_do_not_cover_what_was_fitted_before():
    assert named_by(StandardScaler(), model=by_bounds(logistic(), (-3, 3))).startswith("StandardScaler was")


@every_estimator
def test_what_is_stored_of_the_scaling_is_what_was_declared(estimator):
    one, other = (by_bounds(estimator, (LOW, HIGH)).fit(rows, Y) for rows in (X, X / 2))
    for model in (one, other):
        assert (model.bounds_[0] == LOW).all()
        assert (model.bounds_[1] == HIGH).all()
    assert (values(pickle.loads(pickle.dumps(one)), X) == values(one, X)).all()


def test_predictions_are_scaled_as_in_fit_whatever_is_set_afterwards():
    model = by_bounds(logistic(), (0, 100)).fit(X, Y)
    before = model.predict_proba(X)
    model.set_params(scale=None, bounds=None)
    assert (model.predict_proba(X) == before).all()
    assert model.fit(X, Y).bounds_ is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scale": "bounds"}, r"needs bounds=\(low, high\)"),
        ({"bounds": (0, 1)}, "bounds are for scale='bounds'"),
        ({"scale": "standard"}, "scale must be 'bounds' or None. Got 'standard'"),
        ({"scale": "bounds", "bounds": 3}, r"must be a pair \(low, high\)"),
        ({"scale": "bounds", "bounds": (0, 1, 2)}, r"must be a pair \(low, high\)"),
        ({"scale": "bounds", "bounds": ([0, 1], 5)}, "each of the 3 columns"),
        ({"scale": "bounds", "bounds": ("a", "b")}, r"must be a pair \(low, high\)"),
        ({"scale": "bounds", "bounds": (0, [1, 1, 0])}, "Got 0 and 0 for column 2"),
        ({"scale": "bounds", "bounds": (0, np.inf)}, "finite"),
        ({"scale": "bounds", "bounds": (np.nan, 1)}, "finite"),
        ({"scale": "bounds", "bounds": (-1e308, 1e308)}, "finite"),
    ],
    ids=str,
)
@every_estimator
def test_bounds_that_cannot_be_used_are_explained(estimator, settings, said):
    with pytest.raises(InvalidArgument, match=said):
        clone(estimator).set_params(**settings).fit(X, Y)


def test_two_ways_to_scale_are_refused():
    with pytest.raises(InvalidArgument, match="feature_bound and scale='bounds'"):
        PrivateClassifier(**NEURAL, feature_bound=1.0, scale="bounds", bounds=(0, 1)).fit(X, Y)
    with pytest.raises(InvalidArgument, match="not for recipes"):
        PrivateClassifier(recipe="auto", scale="bounds", bounds=(0, 100)).fit(X, Y)
