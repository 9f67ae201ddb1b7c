"""`tacit.predict` and `tacit.load`: raw rows give what the training pipeline's own rows give, for every kind of run."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn import datasets as published

import tacit
from support.published_files import write_published
from tacit.datasets import Number, load
from tacit.datasets._data import Form, form_of, is_test_row
from tacit.datasets._own import read_raw
from tacit.errors import InvalidArgument
from tacit.training.folder import RunFolder
from tacit.workflows.predict import FORM, NETWORK, Predictions
from tacit.workflows.train import TrainedRun

pytestmark = [
    pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread"),
    pytest.mark.filterwarnings("ignore::tacit.errors.Caution"),
]
SHORT = {"multiplier": 1.0, "delta": 1e-5, "lot_size": 30, "steps": 8}
BOUNDS = """
rows = 60
held_out = 0
[columns]
id = { ignore = true }
age = { low = 0, high = 100, missing = "indicator", fill = 50 }
seen = { type = "date", low = 2020-01-01, high = 2020-12-31 }
ward = ["north", "south"]
"""
CLASSES = '\noutcome = ["healthy", "ill"]'
NUMBER = "\noutcome = { low = 100, high = 300 }"


def raw_test_rows(name: str) -> pd.DataFrame:
    """The test rows of a table of scikit-learn, as they are published."""
    loader = getattr(published, f"load_{name.replace('-', '_')}")
    frame = loader(as_frame=True, **({"scaled": False} if name == "diabetes" else {})).data
    return frame[is_test_row(len(frame))]


def patients(count: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(1, 99, count).astype(float)
    age[::7] = np.nan
    return pd.DataFrame(
        {
            "id": np.arange(count),
            "age": age,
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, count), "D"),
            "ward": rng.choice(["north", "south"], count),
        }
    )


def train_on_patients(tmp_path, target: str = CLASSES, **options) -> TrainedRun:
    (tmp_path / "bounds.toml").write_text(BOUNDS + target)
    frame = patients()
    frame["outcome"] = np.where(frame.ward == "north", "ill", "healthy") if target == CLASSES else 150.0
    chosen = {**({} if options else SHORT), **options}
    return tacit.train(frame, target="outcome", bounds=tmp_path / "bounds.toml", out="run", **chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("breast-cancer", "network"),
        ("breast-cancer", "linear"),
        ("iris", "recipe"),
        ("iris", "linear"),
        ("diabetes", "network"),
        ("diabetes", "linear"),
    ],
)
def test_raw_rows_give_what_the_scaled_rows_of_training_give(name, kind):
    linear = {"epsilon": 8.0, "method": "output_perturbation"}
    options = {"network": SHORT, "recipe": {"epsilon": 8.0}, "linear": linear}
    run = tacit.train(name, seed=0, out="run", **options[kind])
    data, rows = load(name), raw_test_rows(name)
    model = tacit.load("run")
    assert np.array_equal(read_raw(rows, model.form).inputs, data.test[0])
    predicted = tacit.predict("run", rows)
    assert np.array_equal(predicted, model.predict_inputs(data.test[0]))
    assert np.array_equal(predicted, run.predict(rows))
    if data.classes is None:
        errors = predicted / data.unit - data.test[1][:, 0]
        assert data.unit * np.sqrt(np.mean(errors**2)) == pytest.approx(run.score.value, rel=1e-5)
        return
    numbers = np.searchsorted(model.classes_, predicted, sorter=np.argsort(model.classes_))
    places = np.argsort(model.classes_)[numbers]
    assert np.mean(places == data.test[1]) == run.score.value
    shares = tacit.predict("run", rows, probabilities=True)
    assert np.array_equal(model.classes_[shares.argmax(1)], predicted)
    assert np.allclose(shares.sum(1), 1)


def test_the_names_of_the_classes_come_back():
    tacit.train("breast-cancer", seed=0, out="run", **SHORT)
    rows = raw_test_rows("breast-cancer")
    # Both occur, as they do in the table: unscaled rows once were malignant, all of them.
    assert set(tacit.predict("run", rows)) == {"malignant", "benign"}
    assert set(tacit.predict("run", rows.to_numpy())) == {"malignant", "benign"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adult", "bank", "mnist", "cifar10", "movielens-100k", "kddcup99", "creditcard"])
def test_the_form_of_every_data_set_is_kept_in_full(name, tmp_path):
    if name != "adult":
        write_published(name, tmp_path)
    form = form_of(load(name, None if name == "adult" else tmp_path))
    assert Form.from_json(json.loads(json.dumps(form.to_json()))) == form


def test_pixels_are_taken_as_bytes_in_any_usual_shape(tmp_path):
    write_published("mnist", tmp_path)
    data = load("mnist", tmp_path)
    pixels = np.round(data.test[0] * 255).astype(np.uint8)
    form = form_of(data)
    for shape in ((-1, 28, 28), (-1, 1, 28, 28), (-1, 784)):
        assert np.array_equal(read_raw(pixels.reshape(shape), form).inputs, data.test[0])
    np.save(tmp_path / "new.npy", pixels)
    assert np.array_equal(read_raw(tmp_path / "new.npy", form).inputs, data.test[0])
    with pytest.raises(InvalidArgument, match="shape"):
        read_raw(np.zeros((2, 30, 30)), form)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["recipe", "mlp", "objective_perturbation"])
def test_digits_are_predicted_from_images_columns_and_files(kind):
    method = {"epsilon": 8.0, "method": "objective_perturbation"}
    options = {"recipe": {"epsilon": 8.0}, "mlp": {**SHORT, "model": "mlp"}, "objective_perturbation": method}[kind]
    run = tacit.train("digits", seed=0, out="run", **options)
    images = published.load_digits().images
    images, model = images[is_test_row(len(images))], tacit.load("run")
    expected = model.predict_inputs(run.data.test[0])
    assert np.mean(expected.astype(int) == run.data.test[1]) == pytest.approx(run.score.value)
    np.save("new.npy", images)
    raw_test_rows("digits").to_csv("new.csv", index=False)
    for source in (images, images[:, None], images.reshape(len(images), -1), "new.npy", "new.csv"):
        assert np.array_equal(model.predict(source), expected)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{**SHORT, "steps": 2, "model": "cnn"}, {"epsilon": 8.0}], ids=["cnn", "recipe"])
def test_images_are_predicted_from_their_pixels(tmp_path, options):
    write_published("mnist", tmp_path / "data")
    run = tacit.train("mnist", data_path=tmp_path / "data", seed=0, out="run", **options)
    inputs, labels = run.data.test
    predicted = tacit.predict("run", np.round(inputs * 255).astype(np.uint8)[:, 0])
    assert np.array_equal(predicted, tacit.load("run").predict_inputs(inputs))
    assert np.mean(predicted.astype(int) == labels) == run.score.value


@pytest.mark.slow
def test_texts_are_predicted_as_they_are_written(tmp_path):
    write_published("imdb", tmp_path / "data")
    tacit.train("imdb", data_path=tmp_path / "data", epsilon=8.0, seed=0, out="run")
    texts = ["A good film!", "a good film", "bad"]
    one, other, _ = predicted = tacit.predict("run", texts)
    assert one == other
    assert set(predicted) <= {"negative", "positive"}
    pd.DataFrame({"review": texts}).to_csv("new.csv", index=False)
    assert np.array_equal(tacit.predict("run", "new.csv"), predicted)


@pytest.mark.parametrize("form", ["frame", "csv", "parquet"])
def test_rows_of_ones_own_table_are_predicted_from_any_file(tmp_path, form):
    run = train_on_patients(tmp_path)
    new = patients(20, seed=1)
    source = new
    if form != "frame":
        source = tmp_path / f"new.{form}"
        new.to_csv(source, index=False) if form == "csv" else new.to_parquet(source)
    assert np.array_equal(tacit.predict(run.folder, source), run.predict(new))
    assert set(run.predict(new)) <= {"healthy", "ill"}


def test_a_number_comes_back_in_its_own_unit(tmp_path):
    run = train_on_patients(tmp_path, NUMBER)
    with torch.no_grad():
        shares = run.model(torch.from_numpy(run.data.train[0])).numpy()[:, 0]
    assert run.predict(patients()) == pytest.approx(100 + 200 * shares, rel=1e-5)


@pytest.mark.parametrize("column", [Number(-3, 7), Number(10, 5000, logarithmic=True)])
def test_a_scaled_number_is_scaled_back(column):
    values = np.linspace(column.low, column.high, 9)
    assert column.unscale((column.scale(values) + 1) / 2) == pytest.approx(values, rel=1e-4, abs=1e-4)


def test_a_model_file_alone_predicts_the_same(tmp_path):
    run = train_on_patients(tmp_path)
    moved = tmp_path / "elsewhere.safetensors"
    moved.write_bytes(RunFolder(run.folder).model.read_bytes())
    assert np.array_equal(tacit.predict(moved, patients()), run.predict(patients()))
    assert tacit.load(moved).guarantee_ == run.guarantee


def test_nothing_of_the_rows_is_in_the_public_files(tmp_path):
    (tmp_path / "bounds.toml").write_text(BOUNDS + CLASSES)
    frame = patients()
    frame["outcome"], frame["id"] = "ill", [f"p4tient-{place}" for place in range(60)]
    frame.to_csv(tmp_path / "patients.csv", index=False)
    tacit.train("patients.csv", target="outcome", bounds=tmp_path / "bounds.toml", out="run", **SHORT)
    for file in ("model.safetensors", "guarantee.json", "metrics.json"):
        content = (tmp_path / "run" / file).read_bytes()
        assert b"p4tient" not in content
        assert str(tmp_path).encode() not in content


def test_everything_that_differs_is_listed_at_once(tmp_path):
    run = train_on_patients(tmp_path)
    wrong = patients(3).drop(columns="seen").assign(sene="2020-01-01", age=["old", 1, 2], ward=["north", "west", ""])
    with pytest.raises(InvalidArgument) as caught:
        tacit.predict(run.folder, wrong)
    message = str(caught.value)
    for words in ("no column 'seen'. Did you mean sene?", "has no column 'sene'. Did you mean seen?\n"):
        assert words in message
    for words in ("'old'", "'west'", "no value"):
        assert words in message
    assert message.count("\n- ") == 5


def test_a_column_that_was_not_declared_neither_trains_nor_predicts(tmp_path, run_cli):
    (tmp_path / "bounds.toml").write_text(BOUNDS + CLASSES)
    frame = patients().assign(remark="none")
    frame["outcome"] = np.where(frame.ward == "north", "ill", "healthy")
    tacit.train(frame, target="outcome", bounds=tmp_path / "bounds.toml", out="run", **SHORT)
    new = patients(20, seed=1)
    new.assign(remark="none").to_csv("new.csv", index=False)
    done = run_cli("predict run new.csv --out predictions.csv")
    assert done.code == 0, done.err
    assert "The model has no column remark, so it was not used." in done.out
    assert pd.read_csv("predictions.csv").prediction.tolist() == tacit.load("run").predict(new).tolist()


def test_a_target_that_is_there_is_not_used_and_that_is_said(tmp_path, run_cli):
    run = train_on_patients(tmp_path)
    new = patients(20, seed=1)
    new.assign(outcome="who knows").to_csv("new.csv", index=False)
    done = run_cli("predict run new.csv --out predictions.csv --probabilities")
    assert done.code == 0
    assert "outcome is the target and was not used" in done.out
    written = pd.read_csv("predictions.csv")
    assert list(written) == ["id", "prediction", "probability_healthy", "probability_ill"]
    assert written.prediction.tolist() == run.predict(new).tolist()
    assert written.id.tolist() == new.id.tolist()
    assert run_cli("predict run new.csv").out.splitlines()[0] == "id,prediction"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("predict nothing new.csv", "There is no nothing"),
        ("predict . new.csv", "holds no run"),
        ("predict run none.csv", "There is no table none.csv"),
        ("predict run empty.csv", "it is empty"),
        ("predict run header.csv", "there are no rows"),
        ("predict bounds.toml header.csv", "is not a safetensors file, or it is damaged. Give the folder of a run"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_words(tmp_path, run_cli, line, words):
    train_on_patients(tmp_path)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("id,age,seen,ward\n")
    done = run_cli(line)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.slow
def test_arrays_are_predicted_as_they_are_given():
    flowers = published.load_iris()
    run = tacit.train((flowers.data / 8, flowers.target), population=150, classes=3, out="run", **SHORT)
    assert set(run.predict(flowers.data / 8)) <= {0, 1, 2}
    numbers = tacit.train((flowers.data, flowers.data[:, :1]), population=150, out="other", **SHORT)
    assert numbers.predict(flowers.data).shape == (150,)


@pytest.mark.slow
def test_a_model_of_ones_own_predicts_from_its_folder(tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\ndef make(shape, classes):\n    return torch.nn.Linear(shape[0], classes)\n"
    )
    run = tacit.train("iris", model="net.py:make", seed=0, out="run", **SHORT)
    inputs, targets = run.data.test
    assert np.mean(tacit.load("run").score_inputs(inputs).argmax(1) == targets) == run.score.value
    (tmp_path / "m.safetensors").write_bytes((tmp_path / "run/model.safetensors").read_bytes())
    with pytest.raises(InvalidArgument, match="folder of its run"):
        tacit.load("m.safetensors")


def test_a_model_file_changed_by_hand_is_refused_in_words(tmp_path):
    train_on_patients(tmp_path)
    file = tmp_path / "run" / "model.safetensors"
    with safe_open(file, framework="pt") as opened:
        about, weights = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    first = next(iter(weights))
    for change, written, words in (
        ({}, weights | {first: torch.zeros(1)}, "do not fit the model"),
        ({"guarantee": None}, weights, "guarantee of the model is missing.*run's folder"),
        ({FORM: None}, weights, "written by an earlier version.*Give the folder of the run"),
    ):
        kept = {name: value for name, value in (about | change).items() if value is not None}
        save_file(written, tmp_path / "other.safetensors", kept)
        with pytest.raises(InvalidArgument, match=words):
            tacit.load(tmp_path / "other.safetensors")


def test_a_number_has_no_probabilities_and_is_summed_up_by_its_range(tmp_path):
    train_on_patients(tmp_path, NUMBER)
    with pytest.raises(InvalidArgument, match=r"no probabilities"):
        tacit.predict("run", patients(2), probabilities=True)
    found = Predictions(np.array([1.0, 2.0, 6.0]), None, None, {}, ())
    assert "From 1 to 6, mean 3." in str(found.paragraphs())


def test_predictions_into_a_folder_that_cannot_be_are_refused(tmp_path):
    found = Predictions(np.array([1.0]), None, None, {}, ())
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match=r"cannot be written.*--out"):
        found.write(tmp_path / "file" / "new.csv")


def test_settings_that_cannot_be_read_are_named_when_a_model_is_loaded(tmp_path):
    train_on_patients(tmp_path)
    RunFolder(tmp_path / "run").settings.write_text("{")
    with pytest.raises(InvalidArgument, match=r"settings"):
        tacit.load("run")


def test_a_model_of_an_earlier_version_is_described_by_the_data_of_its_run():
    tacit.train("breast-cancer", seed=0, out="run", **SHORT)
    file, rows = RunFolder(Path("run")).path / "model.safetensors", raw_test_rows("breast-cancer")
    expected = tacit.predict("run", rows)
    with safe_open(file, framework="pt") as opened:
        about, weights = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    save_file(weights, file, {name: value for name, value in about.items() if name not in (FORM, NETWORK)})
    assert np.array_equal(tacit.predict("run", rows), expected)
