"""Where copies lie: as archives leave them when they are unpacked, as one file of several, under names of their own."""

import gzip
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from support.published_files import CARD, PUBLISHED, write_published
from tacit.datasets import SHIPPED, imdb, is_kept, load, load_words, read_from
from tacit.datasets._files import find_dataset
from tacit.errors import InvalidArgument

# Few rows are enough to tell how files are read; that they are too few is tested where it is said.
pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.Caution")

# What unzip, tar, git and torchvision leave.
UNPACKED = {
    "bank": "bank-additional",
    "cifar10": "cifar-10-batches-bin",
    "imdb": "aclImdb",
    "mnist": "MNIST/raw",
    "movielens-100k": "ml-100k",
    "movielens-1m": "ml-1m",
}
FOLDERS = [*UNPACKED.items(), ("fashion-mnist", "FashionMNIST/raw"), ("fashion-mnist", "data/fashion")]
# Of each data set that has several files, every one that may be pointed to.
PARTNERS = [
    (name, file)
    for name in ("a9a", "adult", "cifar10", "kddcup99", "mnist", "svhn", "fashion-mnist")
    for file in PUBLISHED[name]
]


def refusal(name: str, path=None) -> str:
    with pytest.raises(InvalidArgument) as caught:
        load(name, path)
    return str(caught.value)


def rows(data) -> int:
    return len(data.train[0]) + len(data.test[0])


def test_every_data_set_with_files_is_among_those_tried_here():
    assert {*PUBLISHED} == {name for name in SHIPPED if find_dataset(name).read is not None}


@pytest.mark.parametrize(("name", "folder"), FOLDERS)
def test_what_an_archive_leaves_is_found_in_the_folder_in_which_it_was_unpacked(tmp_path, name, folder):
    write_published(name, tmp_path / "nest" / folder)
    assert rows(load(name, tmp_path / "nest")) == rows(load(name, tmp_path / "nest" / folder)) > 0


@pytest.mark.parametrize(("name", "folder"), FOLDERS)
@pytest.mark.parametrize("under", ["its name", "nothing"])
def test_the_same_is_found_where_copies_are_kept(tmp_path, monkeypatch, name, folder, under):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    assert not is_kept(name)
    write_published(name, tmp_path / (name if under == "its name" else "") / folder)
    assert rows(load(name)) > 0
    assert is_kept(name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_folder_of_data_sets_may_be_pointed_to_for_each(tmp_path, name):
    write_published(name, tmp_path / name.replace("-", "_"))
    assert rows(load(name, tmp_path)) > 0


def test_the_outer_folder_of_torchvision_may_be_pointed_to(tmp_path):
    write_published("mnist", tmp_path / "MNIST/raw")
    assert rows(load("mnist", tmp_path / "MNIST")) == 3


def test_one_kind_of_images_is_never_taken_for_the_other(tmp_path):
    # Their files have the same names: only the folder says which they are.
    write_published("fashion-mnist", tmp_path / "FashionMNIST/raw")
    assert "There is no mnist in" in refusal("mnist", tmp_path)
    assert "There is no mnist in" in refusal("mnist", tmp_path / "FashionMNIST")


def test_words_and_numbers_of_reviews_are_found_where_reviews_are(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    write_published("imdb", tmp_path / "aclImdb")
    assert load_words()[0][0] == [["good"], ["good"]]
    assert load_words(path=tmp_path / "aclImdb/imdb.vocab")[0][0] == load_words(path=tmp_path)[0][0]
    numbers, _ = read_from("imdb", None, imdb.read_numbers)[0]
    assert [review.tolist() for review in numbers] == [[3], [3]]


@pytest.mark.parametrize(("name", "file"), PARTNERS)
@pytest.mark.parametrize("gzipped", [False, True])
def test_one_file_stands_for_all_if_the_others_lie_beside_it(tmp_path, name, file, gzipped):
    write_published(name, tmp_path, gzipped=gzipped)
    data = load(name, tmp_path / f"{file}{'.gz' if gzipped else ''}")
    assert rows(data) == rows(load(name, tmp_path))


@pytest.mark.parametrize(("name", "file"), PARTNERS)
def test_a_file_without_the_others_is_refused_with_their_names(tmp_path, name, file):
    content = PUBLISHED[name][file]
    (tmp_path / f"{file}.gz").write_bytes(gzip.compress(content))
    message = refusal(name, tmp_path / f"{file}.gz")
    assert str(tmp_path / f"{file}.gz") in message
    assert [each for each in PUBLISHED[name] if each != file and each not in message] == []


def test_the_file_that_is_pointed_to_is_read_even_if_its_other_form_lies_there(tmp_path):
    write_published("a9a", tmp_path)
    (tmp_path / "a9a.gz").write_bytes(gzip.compress(b"-1 3:1\n" * 5))
    assert len(load("a9a", tmp_path / "a9a.gz").train[0]) == 5
    assert len(load("a9a", tmp_path / "a9a").train[0]) == 1


@pytest.mark.parametrize("form", ["folder", "one file", "archive"])
def test_images_with_a_dot_in_their_names(tmp_path, form):
    files = {name.replace("-idx", ".idx"): content for name, content in PUBLISHED["mnist"].items()}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    where = {"folder": tmp_path, "one file": tmp_path / next(iter(files)), "archive": tmp_path / "archive.zip"}
    assert rows(load("mnist", where[form])) == 3


@pytest.mark.parametrize("name", ["bank", "creditcard", "breast-cancer-wisconsin"])
@pytest.mark.parametrize("file", ["mine.csv", "mine.csv.gz"])
def test_the_only_table_in_a_folder_may_have_any_name(tmp_path, monkeypatch, name, file):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    (content,) = PUBLISHED[name].values()
    (tmp_path / name).mkdir()
    (tmp_path / name / "._mine.csv").write_bytes(b"\x00")
    (tmp_path / name / "readme.txt").write_text("A copy.")
    (tmp_path / name / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
    assert rows(load(name)) == rows(load(name, tmp_path / name)) == 1


def test_which_of_several_tables_is_meant_is_asked(tmp_path):
    for file in ("balanced.csv", "whole.csv"):
        (tmp_path / file).write_text(CARD)
    message = refusal("creditcard", tmp_path)
    assert "balanced.csv, whole.csv, and none of them is called creditcard.csv" in message
    (tmp_path / "creditcard.csv").write_text(CARD + CARD.splitlines()[1])
    assert rows(load("creditcard", tmp_path)) == 2


@pytest.mark.parametrize("name", ["movielens-100k", "movielens-1m"])
@pytest.mark.parametrize("form", ["folder", "unpacked", "file", "another name", "archive", "kept"])
def test_movielens_is_the_edition_that_is_there(tmp_path, monkeypatch, name, form):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "kept"))
    folder, ((file, content),) = UNPACKED[name], PUBLISHED[name].items()
    where = {"unpacked": tmp_path / folder, "kept": tmp_path / "kept" / name}.get(form, tmp_path)
    where.mkdir(parents=True, exist_ok=True)
    written = where / ("ratings" if form == "another name" else file)
    if form == "archive":
        written = where / f"{folder}.zip"
        with zipfile.ZipFile(written, "w") as archive:
            archive.writestr(f"{folder}/{file}", content)
    else:
        written.write_bytes(content)
    is_pointed_to = form in ("file", "another name", "archive")
    path = None if form == "kept" else written if is_pointed_to else tmp_path
    assert load("movielens", path).name == name


def test_two_editions_of_movielens_have_to_be_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    for name in ("movielens-100k", "movielens-1m"):
        write_published(name, tmp_path / name)
    for message in (refusal("movielens", tmp_path), refusal("movielens")):
        assert message == f"{tmp_path} holds several editions of movielens. Choose movielens-100k or movielens-1m."


def test_without_an_edition_all_names_of_both_are_told(tmp_path):
    message = refusal("movielens", tmp_path)
    assert [each for each in ("u.data", "ml-100k.zip", "ratings.dat", "ml-1m.zip") if each not in message] == []


@pytest.mark.parametrize(("name", "folder"), FOLDERS)
def test_the_folders_that_were_looked_into_are_named(tmp_path, name, folder):
    message = refusal(name, tmp_path)
    assert f"Looked in {tmp_path} and in its folders {name}, " in message
    assert folder in message


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_page_about_data_tells_every_file_and_folder(name):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "data.md").read_text(encoding="utf-8")
    rows_of_table = dict(re.findall(r"^\| ([\w-]+) \| (.*)$", page, re.MULTILINE))
    # Two rows refer to another one.
    told = rows_of_table[name] + rows_of_table[{"adult": "a9a", "fashion-mnist": "mnist"}.get(name, name)]
    dataset = find_dataset(name)
    files = re.findall(r"[\w*+-]+(?:\.[\w*-]+)+", dataset.files)
    assert files
    assert [each for each in (*files, *dataset.folders) if each not in told] == []
    assert dataset.endings == ((".csv", ".csv.gz") if "its only .csv or .csv.gz" in told else ())


def test_a_path_that_is_not_there_is_said_not_to_be(tmp_path):
    assert f"in {tmp_path / 'nowhere'}, which does not exist. Looked in" in refusal("mnist", tmp_path / "nowhere")
    assert "which does not exist" not in refusal("mnist", tmp_path)


def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    # Root may read every folder, so the answer of the system is replaced.
    def refused(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refused)
    assert refusal("adult", tmp_path) == f"{tmp_path} cannot be read: Permission denied. Choose another folder."


def test_pixels_of_an_unpacked_copy_are_those_of_the_files(tmp_path):
    write_published("mnist", tmp_path / "MNIST/raw")
    images = np.arange(2 * 28 * 28, dtype=np.uint8)
    head = PUBLISHED["mnist"]["train-images-idx3-ubyte"][:16]
    (tmp_path / "MNIST/raw/train-images-idx3-ubyte").write_bytes(head + images.tobytes())
    assert np.allclose(load("mnist", tmp_path).train[0].reshape(-1), images / 255)
