"""One file outside the package adds a data set, and one adds an estimator."""

import importlib.util
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import check_estimator

from tacit import Budget, datasets, estimators
from tacit.accounting import curve
from tacit.cli import main
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger

TOYSET = """
import numpy as np
from tacit.datasets import Data, DataSet, Source, TrainingDefaults, register


def make_toyset():
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (1000, 4)).astype(np.float32)
    labels = (inputs.sum(1) > 0).astype(np.int64)
    parts = (inputs[:800], labels[:800]), (inputs[800:], labels[800:])
    return Data("toyset", *parts, classes=2, population=800, scaling="features are drawn from [-1, 1]", numbers=4)


DATASET = register(
    DataSet(
        "toyset",
        Source("https://example.org/toyset"),
        make=make_toyset,
        defaults=TrainingDefaults("linear", lot_size=64, epochs=2, learning_rate=1.0, adam_rate=0.02),
    )
)
"""

CENTROIDS = '''
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit.accounting import gdp
from tacit.estimators.building_blocks import (
    charge_ledger,
    check_bounds,
    complete_guarantee,
    find_classes,
    read_seed,
    refuse_weights,
    scale_by_bounds,
)
from tacit.guarantee import Guarantee
from tacit.randomness import Purpose, source_for
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum


@dataclass(eq=False, repr=False)
class PrivateNearestCentroid(ClassifierMixin, BaseEstimator):
    """The class with the nearest noisy mean. One example is in one sum, and adds at most sqrt(columns + 1) to it."""

    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    bounds: Any = None
    scale: str = "bounds"
    classes: Any = None
    class_weight: None = None
    random_state: Any = None
    ledger: Any = None
    dataset: str | None = None

    def fit(self, X, y, **refused):
        refuse_weights(self.class_weight, refused)
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, assumptions = find_classes(self.classes, y)
        self.bounds_ = check_bounds(self, x.shape[1])
        rows = np.column_stack([scale_by_bounds(x, self.bounds_), np.ones(len(x))])
        sums = np.stack([rows[y == each].sum(axis=0) for each in self.classes_])
        bounded = BoundedSum({"sums": torch.from_numpy(sums)}, sensitivity=rows.shape[1] ** 0.5)
        noise = GaussianNoise(1 / float(gdp.mu(self.epsilon, self.delta)))
        release = noise.release(bounded, source_for(read_seed(self.random_state)).stream(Purpose.NOISE, 0))
        guarantee = Guarantee(release.event, self.delta, method="nearest_centroid")
        guarantee = complete_guarantee(self, guarantee, None, assumptions)
        charge_ledger(self.ledger, self.dataset, guarantee, x, y)
        noisy = release.values["sums"].numpy()
        self.centroids_, self.guarantee_ = noisy[:, :-1] / np.maximum(noisy[:, -1:], 1), guarantee
        return self

    def decision_function(self, X):
        check_is_fitted(self)
        rows = scale_by_bounds(validate_data(self, X, reset=False, dtype=np.float64), self.bounds_)
        scores = -((rows[:, None] - self.centroids_) ** 2).sum(axis=2)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X):
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
'''


def import_file(path: Path, text: str):
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def toyset(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "_registered", {})
    yield import_file(tmp_path / "toyset.py", TOYSET)
    del sys.modules["toyset"]


@pytest.fixture
def centroid(tmp_path):
    """Importable by the name of its module, as scikit-learn's checks pickle it."""
    yield import_file(tmp_path / "centroids.py", CENTROIDS).PrivateNearestCentroid
    del sys.modules["centroids"]


def test_a_data_set_of_one_file_is_listed_and_loaded_by_name(toyset):
    assert "toyset" in datasets.list_names()
    data = datasets.load("toyset")
    assert (data.name, data.population, data.source) == ("toyset", 800, "https://example.org/toyset")
    assert data.defaults == toyset.DATASET.defaults
    assert datasets.is_kept("toyset")


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "--method dpsgd --steps 20"], ids=["recipe", "method"])
def test_the_command_line_trains_on_it(toyset, tmp_path, monkeypatch, capsys, more):
    line = f"tacit train toyset --epsilon 1 --delta 1e-5 {more} --out {tmp_path / 'run'} --json"
    monkeypatch.setattr("sys.argv", shlex.split(line))
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out)
    guarantee = Guarantee.from_json((tmp_path / "run/guarantee.json").read_text(encoding="utf-8"))
    assert 0.9 < guarantee.epsilon(1e-5) <= 1
    settings = json.loads((tmp_path / "run/settings.json").read_text(encoding="utf-8"))
    assert (settings["data"], settings["population"]) == ("toyset", 800)
    if more:
        assert settings["lot_size"] == toyset.DATASET.defaults.lot_size


@pytest.mark.slow
def test_an_installed_package_adds_a_data_set_to_every_process(tmp_path):
    (tmp_path / "toyset.py").write_text(TOYSET, encoding="utf-8")
    about = tmp_path / "toyset-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toyset\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[tacit.datasets]\ntoyset = toyset:DATASET\n", encoding="utf-8")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tacit import datasets\n"
        "assert 'toyset' in datasets.list_names() and 'toyset' not in sys.modules\n"
        "assert datasets.load('toyset').population == 800"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_name_of_a_shipped_data_set_is_refused(toyset):
    source = datasets.Source("https://example.org")
    with pytest.raises(InvalidArgument, match="iris"):
        datasets.register(datasets.DataSet("iris", source, make=toyset.make_toyset))
    with pytest.raises(InvalidArgument, match="make nor read"):
        datasets.register(datasets.DataSet("empty", source))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.SkipTestWarning")
def test_an_estimator_of_one_file_passes_scikit_learns_checks(centroid, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    refused = {"check_class_weight_classifiers": "weights let one example count for many"}
    check_estimator(centroid(epsilon=1e4, bounds=(-10.0, 10.0)), expected_failed_checks=refused)


def test_its_fits_are_guaranteed_and_charged(centroid, tmp_path):
    x, y = make_blobs(600, centers=[(-5, -5), (5, 5)], random_state=0)
    ledger = Ledger(tmp_path / "blobs.ledger")
    model = centroid(1.0, bounds=(-10.0, 10.0), classes=[0, 1], ledger=ledger, dataset="blobs").fit(x, y)
    assert model.score(x, y) > 0.95
    assert model.guarantee_.epsilon(1e-5) <= 1.0 + 1e-9
    assert [charge.event for charge in ledger.account("blobs").charges] == [model.guarantee_.event]
    assert curve(model.guarantee_.event).epsilon(1e-5) > 0.9
    keys = {each.key for each in model.guarantee_.assumptions}
    assert "one_fit" in keys
    assert "prepared_before_fit" not in keys


def test_a_fit_beyond_the_budget_returns_nothing(centroid, tmp_path):
    x, y = make_blobs(600, centers=[(-5, -5), (5, 5)], random_state=0)
    ledger = Ledger(tmp_path / "blobs.ledger")
    ledger.set_budget("blobs", Budget(epsilon=0.5, delta=1e-5))
    model = centroid(1.0, bounds=(-10.0, 10.0), classes=[0, 1], ledger=ledger, dataset="blobs")
    with pytest.raises(BudgetExceeded):
        model.fit(x, y)
    assert not hasattr(model, "centroids_")


def test_estimators_of_the_package_are_found_by_listing_its_files():
    assert dir(estimators) == [
        "PrivateClassifier",
        "PrivateLinearRegression",
        "PrivateLinearSVC",
        "PrivateLogisticRegression",
        "PrivateRegressor",
        "load",
    ]
    assert all(getattr(estimators, name).__module__.startswith("tacit.estimators.") for name in dir(estimators))
