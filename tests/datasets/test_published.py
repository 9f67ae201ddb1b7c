"""Tables, colour images, reviews and ratings: read in their original forms from small files, scaled by constants."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from support.published_files import PUBLISHED, idx, write_published
from tacit.datasets import load
from tacit.errors import InvalidArgument

# Few rows are enough to tell how files are read; that they are too few is tested where it is said.
pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.Caution")

BANK_HEAD = (
    '"age";"job";"marital";"education";"default";"housing";"loan";"contact";"month";"day_of_week";"duration";"campaign";'
    '"pdays";"previous";"poutcome";"emp.var.rate";"cons.price.idx";"cons.conf.idx";"euribor3m";"nr.employed";"y"\r\n'
)
BANK_ROW = (
    '50;"services";"married";"high.school";"unknown";"no";"yes";"telephone";"may";"mon";149;1;999;0;"nonexistent";1.1;'
    '93.994;-36.4;4.857;5191;"{}"\r\n'
)
CONNECTION = (
    "0,tcp,http,SF,181,5450,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,8,8,0.00,0.00,0.00,0.00,1.00,0.00,0.00,9,9,1.00,0.00,0.11,"
    "0.00,0.00,0.00,0.00,0.00,{}\n"
)


def refusal(name: str, path) -> str:
    with pytest.raises(InvalidArgument) as caught:
        load(name, path)
    return str(caught.value)


def all_of(data):
    return tuple(np.concatenate(parts) for parts in zip(data.train, data.test, strict=True))


@pytest.mark.parametrize("form", ["csv", "gz", "zip"])
def test_bank_from_the_table_and_from_the_archive(tmp_path, form):
    text = (BANK_HEAD + "".join(BANK_ROW.format("yes" if i % 4 == 0 else "no") for i in range(20))).encode()
    match form:
        case "csv":
            (tmp_path / "bank-additional-full.csv").write_bytes(text)
        case "gz":
            (tmp_path / "bank-additional-full.csv.gz").write_bytes(gzip.compress(text))
        case "zip":
            with zipfile.ZipFile(tmp_path / "bank-additional.zip", "w") as archive:
                archive.writestr("bank-additional/bank-additional-full.csv", text)
    data = load("bank", tmp_path)
    inputs, labels = all_of(data)
    assert abs(data.population - 0.8 * 41_188) < 3
    assert (len(inputs), data.shape, labels.sum()) == (20, (10 + 12 + 4 + 8 + 3 * 3 + 2 + 12 + 5 + 3,), 5)
    # Age is the middle of its range, and each of the ten categories has one value.
    assert inputs[0, 0] == 0
    assert inputs[0, 10:].sum() == 10


def test_the_table_that_is_pointed_to_may_have_any_name(tmp_path):
    (tmp_path / "mine.csv").write_text(BANK_HEAD + BANK_ROW.format("no"))
    assert len(all_of(load("bank", tmp_path / "mine.csv"))[0]) == 1


def test_wisconsin_with_and_without_a_header(tmp_path):
    rows = "1000025,5,1,1,1,2,1,3,1,1,2\n1002945,5,4,4,5,7,?,3,2,1,4\n"
    (tmp_path / "breast-cancer-wisconsin.data").write_text(rows)
    (tmp_path / "copy.csv").write_text("id,a,b,c,d,e,f,g,h,i,class\r\n" + rows)
    inputs, labels = all_of(load("breast-cancer-wisconsin", tmp_path))
    assert np.array_equal(inputs, all_of(load("breast-cancer-wisconsin", tmp_path / "copy.csv"))[0])
    order = labels.argsort()
    assert labels[order].tolist() == [0, 1]
    assert inputs[order[0], :2].tolist() == [pytest.approx(-1 / 9), -1]
    # What is missing is the middle of its range.
    assert inputs[order[1], 5] == 0


@pytest.mark.parametrize("quote", ["", "'"])
def test_card_fraud_by_the_names_of_its_columns(tmp_path, quote):
    names = ["Time", *(f"V{i}" for i in range(1, 29)), "Amount", "Class"]
    row = ["0.0", "20", "-5", *["0"] * 26, "0", f"{quote}1{quote}"]
    (tmp_path / "creditcard.csv").write_text(f"{','.join(names)}\n{','.join(row)}\n")
    data = load("creditcard", tmp_path)
    inputs, labels = all_of(data)
    assert labels.tolist() == [1]
    assert abs(data.population - 0.8 * 284_807) < 3
    assert inputs[0, :4].tolist() == [-1, 1, -0.5, 0]


def test_kddcup99_from_both_parts(tmp_path):
    (tmp_path / "kddcup.data_10_percent.gz").write_bytes(gzip.compress(CONNECTION.format("normal.").encode()))
    (tmp_path / "corrected").write_text(CONNECTION.format("smurf.").replace("http", "icmp"))
    data = load("kddcup99", tmp_path)
    assert (data.train[1].tolist(), data.test[1].tolist(), data.population) == ([0], [1], 494_021)
    assert data.train[0][0, 38:].sum() == data.test[0][0, 38:].sum() == 3
    assert np.abs(data.train[0]).max() <= 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bank", BANK_HEAD + BANK_ROW.format("perhaps"), "'perhaps' is none of the labels no, yes"),
        ("bank", BANK_HEAD.replace('"age"', '"years"') + BANK_ROW.format("no"), "no column 'age'"),
        ("bank", BANK_HEAD + "1;2\n", "every row has 21 columns, and row 1 has 2"),
        ("bank", BANK_HEAD, "there are no rows"),
        ("bank", BANK_HEAD + BANK_ROW.format("no").replace("50;", "old;"), "row 1 holds 'old', which is not a number"),
    ],
)
def test_a_table_of_another_kind_is_refused_with_the_file(tmp_path, name, text, words):
    file = tmp_path / "bank-additional-full.csv"
    file.write_text(text)
    message = refusal(name, tmp_path)
    assert words in message
    assert str(file) in message


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("bank", ["bank-additional-full.csv", "bank-additional.zip"]),
        ("breast-cancer-wisconsin", ["breast-cancer-wisconsin.data"]),
        ("cifar10", ["cifar10.npz", "cifar-10-binary.tar.gz", "test_batch.bin"]),
        ("creditcard", ["creditcard.csv"]),
        ("imdb", ["aclImdb_v1.tar.gz", "imdb.vocab"]),
        ("kddcup99", ["kddcup.data_10_percent[.gz]", "corrected[.gz]"]),
        ("movielens-100k", ["u.data", "ml-100k.zip"]),
        ("movielens-1m", ["ratings.dat", "ml-1m.zip"]),
        ("svhn", ["train_32x32.mat", "test_32x32.mat"]),
    ],
)
def test_what_is_missing_is_refused_with_every_name_looked_for(tmp_path, name, files):
    message = refusal(name, tmp_path)
    assert [each for each in (*files, str(tmp_path)) if each not in message] == []


@pytest.fixture
def pictures():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    return images, rng.integers(0, 10, 12, dtype=np.uint8)


def batches(images, labels) -> dict[str, bytes]:
    """Two images in each of the six files, as bytes: a label, then all red, green and blue ones row by row."""
    rows = np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    return {name: rows[2 * i : 2 * i + 2].tobytes() for i, name in enumerate(names)}


@pytest.mark.parametrize("form", ["folder", "archive", "npz"])
def test_cifar10_in_its_binary_forms(tmp_path, pictures, form):
    images, labels = pictures
    files = batches(images, labels)
    match form:
        case "folder":
            for name, content in files.items():
                (tmp_path / name).write_bytes(content)
        case "archive":
            with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
                for name, content in files.items():
                    member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        case "npz":
            last = images.transpose(0, 2, 3, 1)
            np.savez(
                tmp_path / "cifar10.npz",
                x_train=last[:10],
                y_train=labels[:10, None],
                x_test=last[10:],
                y_test=labels[10:],
            )
    data = load("cifar10", tmp_path)
    assert data.population == 50_000
    assert np.allclose(data.train[0], images[:10] / 127.5 - 1, atol=1e-6)
    assert np.array_equal(data.test[1], labels[10:])


def test_a_truncated_batch_is_refused(tmp_path, pictures):
    for name, content in batches(*pictures).items():
        (tmp_path / name).write_bytes(content[:-1])
    assert "data_batch_1.bin is not a whole number of images" in refusal("cifar10", tmp_path)


def test_svhn_from_its_mat_files_in_which_zero_is_called_ten(tmp_path, pictures):
    images, _ = pictures
    labels = np.array([10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1])
    for name in ("train_32x32.mat", "test_32x32.mat"):
        savemat(tmp_path / name, {"X": images.transpose(2, 3, 1, 0), "y": labels[:, None]})
    data = load("svhn", tmp_path)
    assert data.train[1].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert np.allclose(data.test[0], images / 127.5 - 1, atol=1e-6)


def test_a_mat_file_of_something_else_is_refused(tmp_path, pictures):
    for name in ("train_32x32.mat", "test_32x32.mat"):
        savemat(tmp_path / name, {"X": np.zeros((3, 3)), "y": np.zeros(3)})
    assert "train_32x32.mat does not hold the arrays X and y of SVHN" in refusal("svhn", tmp_path)


REVIEWS = {
    "train/pos/0_9.txt": "A GOOD film!",
    "train/neg/0_1.txt": "bad<br />film",
    "test/pos/0_10.txt": "good " * 300,
    "test/neg/0_2.txt": "nothing known",
    "train/unsup/0_0.txt": "film",
    "imdb.vocab": "film\ngood\nbad\na\n",
}


@pytest.mark.parametrize("form", ["folder", "inner", "archive"])
def test_imdb_from_texts_numbered_by_the_published_vocabulary(tmp_path, form):
    if form == "archive":
        with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz") as archive:
            for name, text in REVIEWS.items():
                member = tarfile.TarInfo(f"aclImdb/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
    else:
        for name, text in REVIEWS.items():
            file = (tmp_path / "aclImdb" if form == "folder" else tmp_path) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    data = load("imdb", tmp_path)
    (inputs, labels), (test, test_labels) = data.train, data.test
    assert labels.tolist() == test_labels.tolist() == [0, 1]
    assert (data.shape, data.vocabulary, data.population) == ((256,), (10_000,), 25_000)
    # film, good, bad and a are 2 to 5; 1 is a word that is not known, 0 the space after the end.
    assert inputs[1, :4].tolist() == [5, 3, 2, 0]
    assert inputs[0, :4].tolist() == [4, 1, 2, 0]
    assert test[1].tolist() == [3] * 256
    assert test[0, :3].tolist() == [1, 1, 0]


def test_imdb_from_numbered_words(tmp_path):
    words = np.array([2, 3, 19_999, 2], dtype=np.uint16)
    part = {"flat": words, "offsets": np.array([0, 3, 4]), "y": np.array([0, 1], np.uint8)}
    np.savez(tmp_path / "imdb.npz", **{f"{key}_{name}": part[key] for key in part for name in ("train", "test")})
    data = load("imdb", tmp_path)
    assert data.train[0][:, :4].tolist() == [[2, 3, 1, 0], [2, 0, 0, 0]]


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("movielens-100k", "u.data", "196\t242\t3\t881250949\n186\t302\t4\t891717742\n"),
        ("movielens-100k", "ml-100k.inter", "user_id:token\titem_id:token\n196\t242\t3\t881250949\n186\t302\t4\t8\n"),
        ("movielens-1m", "ratings.dat", "196::242::3::978300760\n186::302::4::978302109\n"),
    ],
)
def test_ratings_in_their_forms(tmp_path, name, file, text):
    (tmp_path / file).write_text(text)
    data = load(name, tmp_path)
    pairs, stars = all_of(data)
    assert sorted(pairs.tolist()) == [[185, 301], [195, 241]]
    assert data.unit * stars.sum() == pytest.approx(7)
    assert data.classes is None


def test_movielens_without_an_edition_is_the_small_one(tmp_path):
    (tmp_path / "u.data").write_text("196\t242\t3\t881250949\n")
    assert load("movielens", tmp_path).vocabulary == (943, 1_682)


def test_a_rating_from_nobody_is_refused(tmp_path):
    (tmp_path / "ratings.dat").write_text("6041::1::3::1\n")
    assert "people 1 to 6040" in refusal("movielens-1m", tmp_path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_files_without_examples_are_refused(tmp_path, name):
    write_published(name, tmp_path)
    for file in PUBLISHED[name]:
        (tmp_path / file).write_bytes(b"")
    message = refusal(name, tmp_path)
    assert str(tmp_path) in message


def test_images_of_which_there_are_none_are_refused(tmp_path):
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(0, 28, 28))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(0))
    assert "hold no examples" in refusal("mnist", tmp_path)
