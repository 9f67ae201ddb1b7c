"""Archives as UCI gives them out now: the published files, some of them packed twice."""

import gzip
import io
import tarfile
import zipfile

import pytest

from support.published_files import PUBLISHED
from tacit.datasets import is_kept, load
from tacit.datasets._files import list_members
from tacit.errors import InvalidArgument

# Few rows are enough to tell how files are read; that they are too few is tested where it is said.
pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.Caution")


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


(TABLE,) = PUBLISHED["bank"].values()
# Beside what is looked for: older tables, descriptions, and what one system leaves in every archive.
UCI: dict[str, tuple[str, dict[str, bytes]]] = {
    "adult": ("adult.zip", {**PUBLISHED["adult"], "adult.names": b"| names", "Index": b"Index of adult"}),
    "bank": (
        "bank+marketing.zip",
        {
            "bank.zip": zipped({"bank-full.csv": b"age;y\n30;no\n", "bank-names.txt": b"names"}),
            "bank-additional.zip": zipped(
                {
                    "bank-additional/": b"",
                    "bank-additional/bank-additional-full.csv": TABLE,
                    "__MACOSX/bank-additional/._bank-additional-full.csv": b"\x00\x05",
                }
            ),
        },
    ),
    "breast-cancer-wisconsin": (
        "breast+cancer+wisconsin+original.zip",
        {**PUBLISHED["breast-cancer-wisconsin"], "wdbc.data": b"842302,M,17.99\n", "Index": b"Index of breast-cancer"},
    ),
    "kddcup99": (
        "kdd+cup+1999+data.zip",
        {
            **{f"{name}.gz": gzip.compress(content) for name, content in PUBLISHED["kddcup99"].items()},
            "kddcup.data.gz": b"never opened",
            "kddcup.names": b"back,buffer_overflow",
        },
    ),
}


def rows(data) -> int:
    return len(data.train[0]) + len(data.test[0])


def write(folder, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("name", UCI)
@pytest.mark.parametrize("file", [None, "archive.zip", "ARCHIVE.ZIP"])
def test_an_archive_is_read_whatever_its_name(tmp_path, name, file):
    published, files = UCI[name]
    where = tmp_path / (file or published)
    where.write_bytes(zipped(files))
    assert rows(load(name, where)) == len(PUBLISHED[name])


@pytest.mark.parametrize("name", UCI)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_an_archive_is_read_if_it_was_packed_once_more(tmp_path, name, pack):
    published, files = UCI[name]
    where = tmp_path / ("copy.zip" if pack is zipped else "copy.tar.gz")
    where.write_bytes(pack({f"downloads/{published}": zipped(files)}))
    assert rows(load(name, where)) > 0


@pytest.mark.parametrize("name", UCI)
def test_an_archive_is_found_in_a_folder(tmp_path, monkeypatch, name):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    published, files = UCI[name]
    write(tmp_path / name, {published: zipped(files)})
    assert is_kept(name)
    assert rows(load(name)) == rows(load(name, tmp_path / name)) == rows(load(name, tmp_path)) > 0


@pytest.mark.parametrize("name", UCI)
@pytest.mark.parametrize("within", ["", "its name"])
def test_what_unpacking_once_leaves_is_found(tmp_path, monkeypatch, name, within):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    published, files = UCI[name]
    folder = tmp_path / (name if within else "") / published.removesuffix(".zip")
    write(folder, files)
    assert is_kept(name)
    assert rows(load(name)) == rows(load(name, folder)) == rows(load(name, folder.parent)) > 0


def test_what_unpacking_everything_leaves_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    write(tmp_path / "bank+marketing/bank-additional", PUBLISHED["bank"])
    write(tmp_path / "bank+marketing/bank", {"bank.csv": b"age;y\n", "bank-full.csv": b"age;y\n"})
    assert rows(load("bank")) == rows(load("bank", tmp_path / "bank+marketing")) > 0


# What a Mac adds to an archive of archives, and what else may lie beside the one that is wanted.
BESIDE = {
    "a shadow": {"__MACOSX/downloads/._{}": b"\x00\x05\x16\x07"},
    "a shadow beside it": {"downloads/._{}": b"\x00\x05\x16\x07"},
    "an empty archive": {"downloads/notes.zip": b""},
    "a broken archive": {"a/notes.tar.gz": b"\x1f\x8b none", "z/notes.zip": b"PK none"},
    "a broken archive within one": {"a/notes.zip": zipped({"inner.zip": b"none", "notes.txt": b"none"})},
}


@pytest.mark.parametrize("name", UCI)
@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_what_cannot_be_read_beside_it_is_passed_over(tmp_path, name, beside, pack):
    published, files = UCI[name]
    others = {path.format(published): content for path, content in beside.items()}
    (tmp_path / "copy.zip").write_bytes(zipped({**others, f"downloads/{published}": zipped(files)}))
    (tmp_path / "copy.tar.gz").write_bytes(tarred({f"downloads/{published}": zipped(files), **others}))
    where = tmp_path / ("copy.zip" if pack is zipped else "copy.tar.gz")
    assert rows(load(name, where)) > 0


def test_the_second_of_two_names_is_found_beside_a_broken_archive(tmp_path):
    (content,) = PUBLISHED["breast-cancer-wisconsin"].values()
    packed = zipped({"notes.zip": b"", "breast-cancer-wisconsin.csv": content})
    (tmp_path / "copy.zip").write_bytes(packed)
    assert rows(load("breast-cancer-wisconsin", tmp_path / "copy.zip")) > 0


def test_an_archive_within_is_named_if_what_is_wanted_is_nowhere_else(tmp_path):
    (tmp_path / "copy.zip").write_bytes(zipped({"notes.txt": b"none", "downloads/adult.zip": b"cut off"}))
    with pytest.raises(InvalidArgument) as caught:
        load("adult", tmp_path / "copy.zip")
    assert str(caught.value) == (
        f"{tmp_path / 'copy.zip'} cannot be read: downloads/adult.zip in it: File is not a zip file. Fetch it again."
    )


def test_an_archive_that_holds_itself_comes_to_an_end(tmp_path):
    packed = zipped({"adult.data": PUBLISHED["adult"]["adult.data"]})
    for _ in range(20):
        packed = zipped({"inner.zip": packed})
    (tmp_path / "deep.zip").write_bytes(packed)
    assert not list(list_members(tmp_path / "deep.zip", ["adult.data"]))
    with pytest.raises(InvalidArgument, match="There is no adult in"):
        load("adult", tmp_path / "deep.zip")


def encrypted(content: bytes) -> bytes:
    """The same archive, with the mark of a password in the head of each file and in the list of them."""
    marked = bytearray(content)
    for head, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = marked.find(head)
        while place >= 0:
            marked[place + flags] |= 1
            place = marked.find(head, place + 4)
    return bytes(marked)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (encrypted, "encrypted"),
        (lambda content: content[:-30], "not a zip file"),
        (lambda _: b"<html>Please log in</html>", "not a zip file"),
        (lambda content: content.replace(b"39, State", b"99, State", 1), "Bad CRC-32"),
    ],
    ids=["password", "cut off", "web page", "damaged"],
)
def test_an_archive_that_cannot_be_opened_is_named(tmp_path, damage, words):
    (tmp_path / "adult.zip").write_bytes(damage(zipped(PUBLISHED["adult"])))
    with pytest.raises(InvalidArgument) as caught:
        load("adult", tmp_path)
    assert f"{tmp_path / 'adult.zip'} cannot be read" in str(caught.value)
    assert words in str(caught.value)
