"""A model by a recipe, loaded from the file that `tacit train` wrote."""

import json
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from typer.testing import CliRunner

from support.small_images import write_few_images
from tacit import datasets
from tacit.cli import app
from tacit.errors import InvalidArgument
from tacit.estimators import PrivateClassifier, load
from tacit.recipes.run import ExampleForm, save_model


def trained(*words):
    ran = CliRunner().invoke(app, ["train", *words, "--epsilon", "8", "--seed", "0", "--json"])
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def iris(tmp_path_factory):
    """The folder of a run on iris, and what the command said of it. Nothing is written into it."""
    folder = tmp_path_factory.mktemp("iris") / "run"
    return folder, trained("iris", "--out", str(folder))


@pytest.mark.slow
def test_a_table_is_predicted_as_it_was_scored(iris):
    folder, told = iris
    x, y = datasets.load("iris").test
    model = load(folder)
    assert model.score(x, y) == pytest.approx(told["score"]["accuracy"])
    assert model.predict_proba(x).shape == (len(y), 3)
    assert model.guarantee_.epsilon(model.delta) == pytest.approx(model.epsilon)
    assert 7.9 < model.epsilon <= 8


@pytest.mark.slow
def test_the_file_alone_is_enough(iris, tmp_path):
    folder, _ = iris
    shutil.copy(folder / "model.safetensors", tmp_path / "given_away.safetensors")
    x, _ = datasets.load("iris").test
    there, here = load(tmp_path / "given_away.safetensors"), load(folder)
    assert np.array_equal(there.predict_proba(x), here.predict_proba(x))
    assert there.guarantee_.to_json() == here.guarantee_.to_json()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
def test_images_are_set_upright_by_the_loaded_model_too(tmp_path):
    write_few_images(tmp_path / "mnist.npz", train=60, test=30)
    told = trained(
        "mnist", "--data-path", str(tmp_path / "mnist.npz"), "--population", "60", "--out", str(tmp_path / "run")
    )
    x, y = datasets.load("mnist", tmp_path / "mnist.npz").test
    model = load(tmp_path / "run")
    assert model.prepared_.features.is_upright
    assert model.score(x, y) == pytest.approx(told["score"]["accuracy"])


@pytest.mark.slow
def test_texts(tmp_path):
    texts, labels = ["a splendid film", "a dreadful film"] * 100, np.array([1, 0] * 100)
    fitted = PrivateClassifier(recipe="auto", epsilon=8.0, population=200, classes=[0, 1], random_state=0)
    fitted.fit(texts, labels)
    recipe, multiplier = fitted.recipe_, fitted.recipe_.preparation_multiplier(8.0, 1e-5)
    save_model(
        tmp_path / "model.safetensors",
        fitted.module_,
        fitted.prepared_,
        recipe,
        ExampleForm(),
        fitted.guarantee_,
        multiplier=multiplier,
        about={},
    )
    asked = ["splendid", "dreadful", "a film"]
    assert np.array_equal(load(tmp_path).predict_proba(asked), fitted.predict_proba(asked))


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"recipe": "{"},
        {"recipe": '{"kind": "table", "smell": 1}'},
        {"guarantee": "{}"},
        {"multiplier": None},
        {"examples": '{"shape": 3}'},
    ],
)
def test_a_damaged_model_is_refused(iris, tmp_path, change):
    file = tmp_path / "model.safetensors"
    with safe_open(iris[0] / file.name, framework="np") as opened:
        about, tensors = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    about = {name: value for name, value in {**about, **change}.items() if value is not None}
    save_file(tensors, file, metadata=about)
    with pytest.raises(InvalidArgument, match="is damaged, or was written by another version"):
        load(file)


@pytest.mark.slow
def test_a_model_without_its_weights_is_refused(iris, tmp_path):
    file = tmp_path / "model.safetensors"
    with safe_open(iris[0] / file.name, framework="np") as opened:
        about, mean = opened.metadata(), opened.get_tensor("mean")
    for tensors in ({"mean": mean}, {"weight": np.zeros((3, 37), dtype=np.float32)}):
        save_file(tensors, file, metadata=about)
        with pytest.raises(InvalidArgument, match="is damaged"):
            load(file)


def test_what_is_no_such_model_is_refused_with_a_way_out(tmp_path):
    with pytest.raises(InvalidArgument, match="Give the folder of a run"):
        load(tmp_path / "nowhere")
    (tmp_path / "torn.safetensors").write_bytes(b"not a model")
    with pytest.raises(InvalidArgument, match="cannot be read as a model"):
        load(tmp_path / "torn.safetensors")
    save_file({"weight": np.zeros((2, 3), dtype=np.float32)}, tmp_path / "foreign.safetensors")
    with pytest.raises(InvalidArgument, match="does not say how inputs become features"):
        load(tmp_path / "foreign.safetensors")


def test_the_guarantee_of_a_network_by_recipe_says_what_all_fits_in_its_ledger_cost(tmp_path):
    rows, labels = np.random.default_rng(0).uniform(-1, 1, (200, 3)), np.arange(200) % 2
    book = tmp_path / "all.ledger"
    for count, said in enumerate(("1 release", "2 releases"), start=1):
        model = PrivateClassifier(recipe="auto", classes=[0, 1], ledger=book, dataset="rows", random_state=count)
        notes = model.fit(rows, labels).guarantee_.notes
        assert any(f"The ledger has {said} of 'rows'" in note for note in notes)
