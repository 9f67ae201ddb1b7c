"""Data sets by name: bounds and sizes are constants, the split is fixed, and files are read as they are published."""

import gzip
import hashlib
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets as sklearn_datasets

from tacit import datasets
from tacit.datasets import SHIPPED, TrainingDefaults, adult, is_kept, list_names, load
from tacit.errors import InvalidArgument

# Few rows are enough to tell how files are read; that they are too few is tested where it is said.
pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.Caution")

TABLES = {
    "breast-cancer": (sklearn_datasets.load_breast_cancer, 2),
    "diabetes": (sklearn_datasets.load_diabetes, None),
    "digits": (sklearn_datasets.load_digits, 10),
    "iris": (sklearn_datasets.load_iris, 3),
    "wine": (sklearn_datasets.load_wine, 3),
}
ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K\n"
    "50, ?, 83311, Bachelors, 13, Married-civ-spouse, ?, Husband, White, Male, 0, 0, 13, United-States, >50K\n\n"
)
ADULT_TEST = "|1x3 Cross validator\n" + ADULT.replace("50K\n", "50K.\n")
IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@pytest.fixture
def pictures():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, 12, dtype=np.uint8)
    return {"x_train": images[:9], "y_train": labels[:9], "x_test": images[9:], "y_test": labels[9:]}


def idx(array: np.ndarray) -> bytes:
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes()


def refusal(name: str, path=None) -> str:
    with pytest.raises(InvalidArgument) as caught:
        load(name, path)
    return str(caught.value)


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_private_or_public_and_none_is_both(name):
    loader, classes = TABLES[name]
    rows = len(loader().data)
    data = load(name)
    assert data.population == len(data.train[0])
    assert len(data.train[0]) + len(data.test[0]) == rows
    assert 0.15 * rows < len(data.test[0]) < 0.25 * rows
    assert data.classes == classes


@pytest.mark.parametrize("name", TABLES)
def test_bounds_hold_for_every_value_and_clip_none(name):
    data = load(name)
    inputs = np.concatenate([data.train[0], data.test[0]])
    assert inputs.dtype == np.float32
    assert np.abs(inputs).max() <= 1
    raw = (sklearn_datasets.load_diabetes(scaled=False) if name == "diabetes" else TABLES[name][0]()).data
    # Without clipping, scaling is affine in each column, so distinct values stay distinct.
    for column in range(raw.shape[1]):
        assert len(np.unique(inputs[:, column])) == len(np.unique(raw[:, column].astype(np.float32)))


@pytest.mark.parametrize("name", [name for name, (_, classes) in TABLES.items() if classes])
def test_every_class_is_in_both_parts(name):
    data = load(name)
    assert set(data.train[1]) == set(data.test[1]) == set(range(data.classes))


def test_digits_are_scaled_by_what_a_pixel_can_be():
    pixels = sklearn_datasets.load_digits().data
    inputs = np.concatenate([load("digits").train[0], load("digits").test[0]])
    assert np.array_equal(np.sort(inputs.sum(1)), np.sort((pixels / 8 - 1).astype(np.float32).sum(1)))


def test_a_data_set_does_not_show_its_examples():
    assert repr(load("iris")) == "Data(name='iris', classes=3, population=119)"


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_images_from_one_file_and_from_a_folder_with_it(name, tmp_path, pictures):
    path = tmp_path / f"{name.replace('-', '_')}.npz"
    np.savez(path, **pictures)
    for data in (load(name, path), load(name, tmp_path)):
        assert data.shape == (1, 28, 28)
        assert np.array_equal(data.train[0][:, 0], pictures["x_train"].astype(np.float32) / 255)
        assert np.array_equal(data.test[1], pictures["y_test"])


def test_the_population_is_the_published_one_whatever_the_copy_holds(tmp_path, pictures):
    np.savez(tmp_path / "mnist.npz", **pictures)
    assert load("mnist", tmp_path).population == 60_000


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_images_from_the_four_original_files(tmp_path, pictures, ending):
    for file, array in zip(IDX, pictures.values(), strict=True):
        content = idx(array)
        (tmp_path / f"{file}{ending}").write_bytes(gzip.compress(content) if ending else content)
    data = load("mnist", tmp_path)
    assert np.array_equal(data.test[0][:, 0], pictures["x_test"].astype(np.float32) / 255)
    assert np.array_equal(data.train[1], pictures["y_train"])


def test_a_truncated_original_file_is_refused_by_name(tmp_path, pictures):
    for file, array in zip(IDX, pictures.values(), strict=True):
        (tmp_path / file).write_bytes(idx(array)[:-1])
    assert f"{tmp_path / IDX[0]} is not an idx file of bytes, or not a whole one." in refusal("mnist", tmp_path)


def test_missing_images_are_refused_with_every_name_looked_for(tmp_path):
    message = refusal("fashion-mnist", tmp_path)
    for name in ("fashion-mnist.npz", "fashion_mnist.npz", *(f"{file}[.gz]" for file in IDX), str(tmp_path)):
        assert name in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_train": np.zeros((9, 32, 32), np.uint8)}, "images of 28 x 28 bytes"),
        ({"x_train": np.zeros((9, 28, 28))}, "type float64"),
        ({"y_train": np.zeros(8, np.uint8)}, "labels of shape (8,)"),
        ({"y_train": np.full(9, 10)}, "labels from 0 to 9"),
        ({"y_train": np.zeros(9)}, "labels from 0 to 9"),
        ({"y_train": np.array([{}] * 9)}, "is not an .npz file of numbers"),
    ],
)
def test_images_of_another_kind_are_refused(tmp_path, pictures, change, words):
    np.savez(tmp_path / "mnist.npz", **{**pictures, **change})
    assert words in refusal("mnist", tmp_path)


def test_a_file_without_the_four_arrays_is_refused_with_their_names(tmp_path, pictures):
    np.savez(tmp_path / "mnist.npz", x_train=pictures["x_train"])
    assert "x_train, y_train, x_test, y_test" in refusal("mnist", tmp_path)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "mnist.npz").write_text("hello")
    assert "is not an .npz file" in refusal("mnist", tmp_path)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_adult_is_encoded_by_its_code_book(tmp_path, ending):
    for name, text in (("adult.data", ADULT), ("adult.test", ADULT_TEST)):
        content = text.encode()
        (tmp_path / f"{name}{ending}").write_bytes(gzip.compress(content) if ending else content)
    data = load("adult", tmp_path)
    inputs, labels = data.train
    assert data.population == 32_561
    assert data.shape == (5 + 99,)
    assert labels.tolist() == data.test[1].tolist() == [0, 1]
    # Eight categories are known of the first person; of the second, workclass and occupation are not.
    assert inputs[:, 5:].sum(1).tolist() == [8, 6]
    assert inputs[0, 0] == pytest.approx(2 * 0.39 - 1)
    assert inputs[0, 2] == pytest.approx(2 * np.log(2175) / np.log(100_001) - 1)
    assert np.array_equal(inputs, data.test[0])


def test_a9a_is_read_where_adult_is_not(tmp_path):
    (tmp_path / "a9a").write_text("-1 3:1 11:1 123:1 \n+1 1:1\n")
    (tmp_path / "a9a.t").write_text("+1 2:1\n")
    data = load("adult", tmp_path)
    assert np.flatnonzero(data.train[0][0]).tolist() == [2, 10, 122]
    assert (data.train[1].tolist(), data.test[1].tolist(), data.shape) == ([0, 1], [1], (123,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1, 2, 3\n", "every row has 15 columns"),
        (ADULT.replace("<=50K", "rich"), "'rich'"),
        (ADULT.replace("39", "old"), "'old'"),
    ],
)
def test_a_row_that_is_none_of_adults_is_refused_with_the_file(tmp_path, text, words):
    (tmp_path / "adult.data").write_text(text)
    (tmp_path / "adult.test").write_text(ADULT_TEST)
    message = refusal("adult", tmp_path)
    assert words in message
    assert str(tmp_path / "adult.data") in message


@pytest.mark.parametrize("line", ["-1 124:1\n", "-1 0:1\n", "-1 x:1\n", "7 1:1\n"])
def test_a_row_that_is_none_of_a9as_is_refused(tmp_path, line):
    (tmp_path / "a9a").write_text(line)
    (tmp_path / "a9a.t").write_text("+1 2:1\n")
    message = refusal("adult", tmp_path)
    assert f"{tmp_path / 'a9a'} does not hold rows of Adult" in message


def test_missing_tables_are_refused_with_every_name_looked_for(tmp_path):
    (tmp_path / "adult.data").write_text(ADULT)
    message = refusal("adult", tmp_path)
    for name in ("adult.data[.gz]", "adult.test[.gz]", "a9a[.gz]", "a9a.t[.gz]", str(tmp_path)):
        assert name in message


def test_an_unknown_name_is_refused_with_all_known_ones():
    message = refusal("mnsit")
    for name in list_names():
        assert name in message
    assert "Did you mean mnist? Known: " in message


def test_what_lies_in_the_folder_of_the_environment_is_read_from_there(tmp_path, monkeypatch, pictures):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    np.savez(tmp_path / "mnist" / "mnist.npz", **pictures)
    assert len(load("mnist").train[0]) == 9


def test_a9a_has_a_name_of_its_own(tmp_path):
    (tmp_path / "a9a").write_text("-1 3:1\n+1 1:1\n")
    (tmp_path / "a9a.t").write_text("+1 2:1\n")
    assert load("a9a", tmp_path).shape == (123,)
    assert "a9a.t[.gz]" in refusal("a9a", tmp_path / "elsewhere")


def test_a_data_set_without_files_is_not_read_from_a_path(tmp_path):
    assert str(tmp_path) in refusal("iris", tmp_path)


@pytest.mark.slow
def test_adult_comes_with_the_package_unchanged(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "nothing"))
    data = load("adult")
    assert data.population == len(data.train[0]) == 32_561
    assert len(data.test[0]) == 16_281
    # adult.names: 24.08 % of the people to train on, and 23.62 % of those to test on, earn more.
    assert [round(100 * float(labels.mean()), 2) for _, labels in (data.train, data.test)] == [24.08, 23.62]
    files = Path(datasets.__file__).parent / "files"
    published = {remote.file: remote.sha256 for remote in adult.DATASET.source.remotes}
    with zipfile.ZipFile(files / "adult.zip") as archive:
        assert {each: hashlib.sha256(archive.read(each)).hexdigest() for each in archive.namelist()} == published
    notice = (files / "adult.txt").read_text(encoding="utf-8")
    assert "CC BY 4.0" in notice
    assert "10.24432/C5XW20" in notice


@pytest.mark.parametrize("is_pointed_to", [True, False])
def test_a_users_own_copy_of_adult_comes_first(tmp_path, monkeypatch, is_pointed_to):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    (tmp_path / "adult").mkdir()
    for name, text in (("adult.data", ADULT), ("adult.test", ADULT_TEST)):
        (tmp_path / "adult" / name).write_text(text)
    assert len(load("adult", tmp_path if is_pointed_to else None).train[0]) == 2


def test_what_needs_no_download_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    assert [name for name in ("adult", "iris", "mnist", "nonsense") if is_kept(name)] == ["adult", "iris"]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_data_set_has_a_page_and_training_defaults(name):
    dataset = import_module(f"tacit.datasets.{name.replace('-', '_')}").DATASET
    assert dataset.name == name
    assert dataset.source.page.startswith("http")
    assert isinstance(dataset.defaults, TrainingDefaults)
    assert dataset.make is not None or dataset.source.remotes
