"""PrivateClassifier(recipe="auto"): images, tables and texts to models, with one guarantee for all releases."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits

from tacit.accounting import Gaussian, curve
from tacit.accounting.events import Composed
from tacit.budget import Budget
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.estimators import PrivateClassifier
from tacit.features import Knots
from tacit.ledger import Ledger
from tacit.recipes.recipe import CONSTANT, auto
from tacit.recipes.run import PreparedInputs, WordScores, choose_features, list_released, prepare, restore_prepared

GOOD, BAD = "wonderful film superb cast moving story", "dull film clumsy cast empty story"


def images():
    """Real digits of 8 x 8 pixels, in the middle of 16 x 16."""
    found = load_digits()
    wide = np.zeros((len(found.target), 16, 16), dtype=np.float32)
    wide[:, 4:12, 4:12] = found.images / 16
    return wide.reshape(len(wide), 256), found.target


@pytest.mark.slow
def test_images_are_whitened_and_told_apart_within_the_budget():
    x, y = images()
    model = PrivateClassifier(
        recipe="auto", epsilon=8.0, shape=(16, 16), population=900, classes=range(10), random_state=0
    ).fit(x[:900], y[:900])
    assert model.score(x[900:], y[900:]) > 0.75
    guarantee = model.guarantee_
    assert 7.99 < guarantee.epsilon(1e-5) <= 8
    parts = guarantee.event.parts if isinstance(guarantee.event, Composed) else ()
    assert parts[:2] == (Gaussian(model.recipe_.noise(8.0, 1e-5)[0]),) * 2
    said = " ".join(str(guarantee).split())
    assert "depended on the examples through released statistics only: the mean, for whitening also second" in said
    assert model.prepared_.preparation.along == (0,)
    assert model.predict_proba(x[:5]).sum(1) == pytest.approx(np.ones(5))


@pytest.mark.slow
def test_tables_become_ramps():
    found = load_breast_cancer()
    x = 2 * found.data / (2 * found.data.max(0)) - 1
    model = PrivateClassifier(recipe="auto", epsilon=4.0, population=569, classes=[0, 1], random_state=0)
    fitted = clone(model).fit(x, found.target)
    assert fitted.score(x, found.target) > 0.85
    assert fitted.prepared_.features.numbers == 30
    assert fitted.prepared_.preparation.axes == (270,)
    assert clone(model).set_params(numbers=3).fit(x, found.target).prepared_.features.numbers == 3


@pytest.mark.slow
def test_texts_are_recognised_and_weighed():
    texts, y = [GOOD, BAD] * 400, ["yes", "no"] * 400
    model = PrivateClassifier(recipe="auto", epsilon=8.0, classes=["no", "yes"], random_state=1).fit(texts, y)
    assert model.predict(["what a wonderful, moving story", "dull, clumsy"]).tolist() == ["yes", "no"]
    assert "was counted, not declared" in str(model.guarantee_)


@pytest.mark.slow
def test_features_that_are_there_already_take_a_recipe_as_it_is():
    rng = np.random.default_rng(0)
    x = Knots(2).fit_transform(rng.uniform(-1, 1, (600, 2)))
    y = (x[:, :5].sum(1) > 0.3).astype(int)
    recipe = auto("table", population=600, epsilon=3.0, delta=1e-5)
    one, same = (
        PrivateClassifier(recipe=recipe, epsilon=3.0, classes=[0, 1], random_state=0).fit(x, y) for _ in range(2)
    )
    assert one.recipe_ is recipe
    assert np.array_equal(one.module_.weight.detach(), same.module_.weight.detach())


@pytest.mark.slow
def test_the_ledger_is_charged_for_the_preparation_too(tmp_path):
    x, y = images()
    ledger = Ledger(tmp_path / "digits.ledger")
    ledger.set_budget("digits", Budget(epsilon=1.2, delta=1e-5))
    model = PrivateClassifier(
        recipe="auto", epsilon=1.0, shape=(16, 16), population=300, classes=range(10), ledger=ledger, dataset="digits"
    )
    model.fit(x[:300], y[:300])
    assert ledger.account("digits").epsilon(1e-5) == pytest.approx(model.guarantee_.epsilon(1e-5), rel=1e-3)
    with pytest.raises(BudgetExceeded):
        model.fit(x[:300], y[:300])


@pytest.mark.parametrize(("preparation", "releases"), [("none", 0), ("centring", 1), ("whitening", 2)])
def test_every_preparation_is_paid_for_within_the_budget(preparation, releases):
    found = load_breast_cancer()
    x = Knots(30).fit_transform(found.data / found.data.max(0))
    recipe = replace(auto("table", population=569, epsilon=4.0, delta=1e-5), preparation=preparation, steps=20)
    model = PrivateClassifier(recipe=recipe, epsilon=4.0, classes=[0, 1], random_state=0).fit(x, found.target)
    event = model.guarantee_.event
    parts = event.parts if isinstance(event, Composed) else ()
    assert sum(isinstance(part, Gaussian) for part in parts) == releases
    assert 3.99 < model.guarantee_.epsilon(1e-5) <= 4


@pytest.mark.slow
def test_handwriting_is_declared_and_set_upright():
    x, y = images()
    model = PrivateClassifier(recipe="auto", shape=(16, 16), is_handwriting=True, population=900, classes=range(10))
    model.set_params(epsilon=8.0, random_state=0).fit(x, y)
    assert model.recipe_.kind == "handwriting"
    assert model.prepared_.features.is_upright
    assert model.score(x, y) > 0.8
    with pytest.raises(InvalidArgument, match="need their shape"):
        PrivateClassifier(recipe="auto", is_handwriting=True).fit(x, y)
    with pytest.raises(InvalidArgument, match="is_handwriting, numbers and features tell a recipe"):
        PrivateClassifier(is_handwriting=True).fit(x, y)


def test_features_of_images_need_the_shape_of_these():
    recipe = auto("image", population=20, epsilon=3.0, delta=1e-5)
    with pytest.raises(InvalidArgument, match="Images need their shape"):
        PrivateClassifier(recipe=recipe, epsilon=3.0, classes=[0, 1]).fit(np.zeros((20, 1296)), np.arange(20) % 2)


def test_what_contradicts_a_recipe_is_refused():
    x, y = images()
    with pytest.raises(InvalidArgument, match="its own linear model"):
        PrivateClassifier(lambda i, o: None, recipe="auto", shape=(16, 16)).fit(x, y)
    with pytest.raises(InvalidArgument, match=r"'auto' or a tacit\.recipes\.recipe\.Recipe"):
        PrivateClassifier(recipe="best").fit(x, y)
    with pytest.raises(InvalidArgument, match="one class"):
        PrivateClassifier(recipe="auto").fit(x[:5], np.zeros(5, dtype=int))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "text", "image", "handwriting"])
def test_a_preparation_is_restored_from_what_it_released(kind):
    rng = np.random.default_rng(0)
    x = {
        "table": rng.uniform(-1, 1, (300, 4)),
        "text": [GOOD, BAD] * 150,
        "image": images()[0][:300],
        "handwriting": images()[0][:300],
    }[kind]
    recipe = auto(kind, population=300, epsilon=50.0, delta=1e-5)
    features = choose_features(recipe, (16, 16), 4)
    multiplier = recipe.preparation_multiplier(50.0, 1e-5)
    prepared, _ = prepare(recipe, x, features, multiplier, 0)
    again = restore_prepared(
        recipe, features, multiplier, {name: each.numpy() for name, each in list_released(prepared.preparation).items()}
    )
    assert torch.equal(again.tensor(x[:20]), prepared.tensor(x[:20]))
    assert again.event is not None
    assert curve(again.event).epsilon(1e-5) == pytest.approx(curve(prepared.event).epsilon(1e-5), rel=1e-6)


def words_that_come_twice(rows: int = 300) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Sparse rows in which some words are stored in several parts, and out of order; and their classes."""
    rng = np.random.default_rng(0)
    y = np.arange(rows) % 2
    columns = np.stack([y, 2 + rng.integers(4, size=rows), y, 6 + rng.integers(4, size=rows)], axis=1)[:, ::-1]
    values = rng.uniform(0.1, 2, size=(rows, 4))
    indptr = np.arange(0, 4 * rows + 1, 4)
    return sparse.csr_matrix((values.ravel(), columns.ravel().copy(), indptr), (rows, 10)), y


@pytest.mark.slow
@pytest.mark.parametrize("preparation", ["none", "word weights"])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_sparse_rows_give_the_model_of_their_dense_form(preparation, kind):
    x, y = words_that_come_twice()
    recipe = replace(auto("text", population=300, epsilon=8.0, delta=1e-5), preparation=preparation, steps=20)
    settings = {"recipe": recipe, "epsilon": 8.0, "classes": [0, 1], "random_state": 0}
    fitted, dense = (PrivateClassifier(**settings).fit(rows, y) for rows in (x.asformat(kind), x.toarray()))
    for name, value in dense.module_.state_dict().items():
        assert torch.allclose(fitted.module_.state_dict()[name], value, atol=1e-5)
    assert np.allclose(fitted.predict_proba(x.asformat(kind)), dense.predict_proba(x.toarray()), atol=1e-5)
    assert not x.has_canonical_format


@pytest.mark.parametrize("preparation", ["none", "centring", "whitening"])
def test_sparse_tables_give_the_model_of_their_dense_form(preparation):
    x, y = words_that_come_twice()
    recipe = replace(auto("table", population=300, epsilon=8.0, delta=1e-5), preparation=preparation, steps=20)
    settings = {"recipe": recipe, "epsilon": 8.0, "classes": [0, 1], "random_state": 0}
    fitted, dense = (PrivateClassifier(**settings).fit(rows, y) for rows in (x, x.toarray()))
    assert torch.allclose(fitted.module_.weight, dense.module_.weight, atol=1e-5)
    assert np.array_equal(fitted.predict(x), dense.predict(x.toarray()))


def test_words_stored_in_parts_take_one_place_each():
    """600 parts of 300 words: all words take part, though there is room for 400 only."""
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.permutation(300), rng.permutation(300)])
    x = sparse.csr_matrix((rng.uniform(size=600), columns, [0, 600]), (1, 300))
    found, dense = (PreparedInputs("text", None, None).of_features(each) for each in (x, x.toarray()))
    assert torch.allclose(found, dense, atol=1e-6)
    scores = WordScores(302, 1)
    torch.nn.init.normal_(scores.scores.weight)
    expected = torch.from_numpy(x.toarray()).float() @ scores.scores.weight[1:301]
    assert torch.allclose(scores(found), expected + scores.scores.weight[301] * CONSTANT, atol=1e-4)
