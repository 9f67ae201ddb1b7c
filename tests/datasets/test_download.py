"""Downloads: what comes is what was published or is not kept, and without a network it is said what goes where."""

import gzip
import hashlib
import io
import socket
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module

import pytest

from tacit.datasets import SHIPPED, Remote, Source, _download, load
from tacit.datasets._download import fetch
from tacit.datasets._files import find_dataset
from tacit.errors import DataMissing, InvalidArgument

CONTENT = b"-1 3:1\n+1 1:1\n"
SOURCES = {name: find_dataset(name).source for name in SHIPPED if find_dataset(name).source.remotes}


def replace_source(monkeypatch, name, source):
    """Let a data set have another source."""
    module = import_module(f"tacit.datasets.{name.replace('-', '_')}")
    monkeypatch.setattr(module, "DATASET", replace(module.DATASET, source=source))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def served(tmp_path):
    """A folder, and the address under which a server of this machine's own gives it out."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def nobody_listens():
    """An address of this machine at which no server answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_file_is_downloaded_once_and_kept(served, tmp_path):
    folder, address = served
    (folder / "a9a").write_bytes(CONTENT)
    source = Source("page", (Remote(f"{address}/a9a", "a9a", digest(CONTENT)),))
    fetch("a9a", source, tmp_path / "kept", "")
    (folder / "a9a").unlink()
    fetch("a9a", source, tmp_path / "kept", "")
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["a9a"]
    assert (tmp_path / "kept/a9a").read_bytes() == CONTENT


def test_what_is_not_what_was_published_is_not_kept(served, tmp_path):
    folder, address = served
    (folder / "a9a").write_bytes(CONTENT[:-1])
    source = Source("page", (Remote(f"{address}/a9a", "a9a", digest(CONTENT)),))
    with pytest.raises(DataMissing, match="SHA256"):
        fetch("a9a", source, tmp_path / "kept", "")
    assert not (tmp_path / "kept").exists()


def zipped(inside: bytes, comment: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("folder/table.csv", inside)
        archive.comment = comment
    return packed.getvalue()


@pytest.mark.parametrize("again", [b"", b"packed anew"])
def test_an_archive_is_checked_by_what_is_in_it_however_it_was_packed(served, tmp_path, again):
    folder, address = served
    (folder / "table.zip").write_bytes(zipped(CONTENT, again))
    remote = Remote(f"{address}/table.zip", "table.zip", digest(CONTENT), inside="table.csv")
    fetch("table", Source("page", (remote,)), tmp_path / "kept", "")
    assert (tmp_path / "kept/table.zip").is_file()


@pytest.mark.parametrize(
    ("inside", "served_as"), [("table.csv", zipped(b"other", b"")), ("", gzip.compress(b"other"))], ids=["zip", "gzip"]
)
def test_an_archive_with_other_contents_is_refused(served, tmp_path, inside, served_as):
    folder, address = served
    (folder / "table").write_bytes(served_as)
    name = "table.zip" if inside else "table.gz"
    remote = Remote(f"{address}/table", name, digest(CONTENT), inside=inside)
    with pytest.raises(DataMissing, match="its SHA-256 is"):
        fetch("table", Source("page", (remote,)), tmp_path / "kept", "")
    assert not (tmp_path / "kept").exists()


# Every name under which a data set is read, not only those of the files that are downloaded.
LOOKED_FOR = {
    "a9a": ["a9a[.gz]", "a9a.t[.gz]"],
    "adult": ["adult.data[.gz]", "adult.test[.gz]", "a9a[.gz]", "a9a.t[.gz]"],
    "bank": ["bank-additional-full.csv[.gz]", "bank-additional.zip", "folders bank, bank-additional", ".csv.gz"],
    "breast-cancer-wisconsin": ["breast-cancer-wisconsin.data[.gz]", "breast-cancer-wisconsin.csv[.gz]"],
    "cifar10": ["cifar10.npz", "cifar-10-binary.tar.gz", "data_batch_1.bin", "test_batch.bin", "cifar-10-batches-bin"],
    "creditcard": ["creditcard.csv[.gz]", "creditcardfraud.zip"],
    "fashion-mnist": ["fashion_mnist.npz", "train-images-idx3-ubyte[.gz]", "FashionMNIST/raw"],
    "imdb": ["imdb.npz", "imdb_tokens*.npz", "aclImdb_v1.tar.gz", "imdb.vocab", "folders imdb, aclImdb"],
    "kddcup99": ["kddcup.data_10_percent[.gz]", "corrected[.gz]"],
    "mnist": ["mnist.npz", "t10k-labels-idx1-ubyte[.gz]", "MNIST/raw"],
    "movielens-100k": ["u.data[.gz]", "ml-100k.zip", "ml-100k.inter"],
    "movielens-1m": ["ratings.dat[.gz]", "ml-1m.zip", "ml-1m.inter"],
    "svhn": ["svhn.npz", "train_32x32.mat", "test_32x32.mat"],
}


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "adult"])
def test_without_a_network_every_file_its_place_and_its_address_are_named(name, nobody_listens, tmp_path, monkeypatch):
    real, kept = SOURCES[name], tmp_path / "new" / "kept"
    remotes = tuple(Remote(f"{nobody_listens}/{each.file}", each.file, each.sha256) for each in real.remotes)
    replace_source(monkeypatch, name, Source(real.page, remotes))
    monkeypatch.setenv("TACIT_DATA", str(kept))
    with pytest.raises(DataMissing) as caught:
        load(name)
    message = str(caught.value)
    assert f"no connection to {nobody_listens.removeprefix('http://')}" in message
    wanted = [str(kept / name), "--data-path PATH", f"load({name!r}, path)", "TACIT_DATA", real.page, *LOOKED_FOR[name]]
    assert [each for each in (*wanted, *(remote.url for remote in remotes)) if each not in message] == []
    # What could not be had leaves no trace.
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidArgument) as refused:
        load(name, tmp_path)
    assert [each for each in LOOKED_FOR[name] if each not in str(refused.value)] == []


def test_what_lies_in_the_folder_stays_there_when_a_download_fails(nobody_listens, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/a9a.t").write_bytes(CONTENT)
    source = Source("page", (Remote(f"{nobody_listens}/a9a", "a9a", digest(CONTENT)),))
    with pytest.raises(DataMissing):
        fetch("a9a", source, tmp_path / "kept", "")
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["a9a.t"]


def test_a_missing_page_is_said_to_be_missing(served, tmp_path):
    _, address = served
    source = Source("page", (Remote(f"{address}/nowhere", "nowhere", digest(b"")),))
    with pytest.raises(DataMissing, match="the server answered 404"):
        fetch("nowhere", source, tmp_path / "kept", "")


@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
def test_load_downloads_reads_and_tells_the_source(served, tmp_path, monkeypatch):
    folder, address = served
    for name in ("a9a", "a9a.t"):
        (folder / name).write_bytes(CONTENT)
    remotes = tuple(Remote(f"{address}/{name}", name, digest(CONTENT)) for name in ("a9a", "a9a.t"))
    replace_source(monkeypatch, "a9a", Source("where it is described", remotes))
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "data"))
    data = load("a9a")
    assert data.train[1].tolist() == [0, 1]
    assert data.source == "where it is described"
    assert (tmp_path / "data/a9a/a9a.t").is_file()


def test_every_address_is_of_a_file_and_every_checksum_is_whole():
    for source in SOURCES.values():
        for remote in source.remotes:
            assert remote.url.startswith("http")
            assert len(remote.sha256) == 64
            assert int(remote.sha256, 16)


def test_a_download_on_a_terminal_shows_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(_download, "Console", partial(_download.Console, force_terminal=True))
    with _download._show_progress("adult.data") as shown:
        [task] = shown._bar.tasks
        shown.total = 10.0
        shown.update(4)
        assert (task.total, task.completed, task.description) == (10, 4, "adult.data")
        shown.reset()
        assert task.completed == 0
        shown.close()
    assert "Downloading adult.data" in capsys.readouterr().err
