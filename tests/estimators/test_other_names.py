"""Arguments that scikit-learn's estimators have and ours do not: refused with the name of ours."""

import inspect

import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from tacit.errors import InvalidArgument
from tacit.estimators import (
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRegressor,
)
from tacit.estimators.other_names import FOR_LINEAR, FOR_NETWORKS

# Settings of a solver that nobody will look for here.
RARE = {
    *("copy_X", "positive", "power_t", "shuffle", "nesterovs_momentum", "beta_1", "beta_2", "max_fun", "learning_rate"),
    *("epsilon", "momentum", "random_state", "fit_intercept", "class_weight"),
}
PAIRS = [
    (PrivateLogisticRegression, LogisticRegression),
    (PrivateLinearSVC, LinearSVC),
    (PrivateLinearRegression, LinearRegression),
    (PrivateLinearRegression, Ridge),
    (PrivateClassifier, MLPClassifier),
    (PrivateRegressor, MLPRegressor),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda each: each.__name__)
def test_every_argument_of_the_counterpart_in_scikit_learn_is_explained(ours, theirs):
    known = FOR_NETWORKS if issubclass(ours, PrivateClassifier | PrivateRegressor) else FOR_LINEAR
    for name in set(inspect.signature(theirs).parameters) - RARE:
        assert name in known
        for give in (ours, ours().set_params):
            with pytest.raises(InvalidArgument) as refused:
                give(**{name: 1})
            assert known[name] in str(refused.value)


NAMED = {"C": "regularisation", "eps": "epsilon", "penalty": "regularisation", "solver": "method", "regularization": ""}


@pytest.mark.parametrize(("name", "ours"), NAMED.items())
def test_the_error_names_our_argument(name, ours):
    with pytest.raises(InvalidArgument, match=ours or "Did you mean regularisation"):
        PrivateLogisticRegression(**{name: 1})


def test_a_search_over_a_name_of_others_says_so():
    search = GridSearchCV(make_pipeline(PrivateLogisticRegression()), {"privatelogisticregression__C": [1]}, cv=2)
    with pytest.raises(InvalidArgument, match="regularisation"):
        search.fit([[0.0]] * 4, [0, 1, 0, 1])


@pytest.mark.parametrize("names", [FOR_LINEAR, FOR_NETWORKS])
def test_no_name_of_others_is_one_of_ours(names):
    every = [PrivateClassifier, PrivateRegressor] if names is FOR_NETWORKS else [pair[0] for pair in PAIRS[:4]]
    for estimator in every:
        assert not names.keys() & estimator().get_params().keys()
        assert clone(estimator(epsilon=2.0)).set_params(epsilon=3.0).get_params()["epsilon"] == 3.0
