"""Downloads the files of a data set, and keeps those that have the published checksum."""

from __future__ import annotations

import gzip
import hashlib
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, final
from urllib.parse import urlsplit

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tacit.datasets import VARIABLE, Remote, Source
from tacit.datasets._files import explain_errors, list_members
from tacit.errors import DataMissing

_SECONDS = 20.0


def fetch(name: str, source: Source, into: Path, searched: str) -> None:
    """Download the files that are not there yet; if that fails, raise `DataMissing` with the names of all files.

    `searched` is the sentence that says where the files were searched for. No empty folder is left behind.
    """
    for remote in source.remotes:
        if (into / remote.file).is_file():
            continue
        try:
            with _make_folder(into):
                _download(remote, into)
        # Whatever goes wrong with the network, the remedy is the same.
        except Exception as error:
            reason = _explain(error, remote.url)
            files, addresses = ((getattr(each, key) for each in source.remotes) for key in ("file", "url"))
            raise DataMissing(
                f"{name} is not on this machine, and could not be downloaded ({reason}). {searched} "
                f"Put {', '.join(files)} into {into} (from {' '.join(addresses)}); {source.page} describes the data.",
                f"Or give the path of your copy: --data-path PATH on the command line, load({name!r}, path) in Python, "
                f"or {VARIABLE} for the folder that holds copies, each in a subfolder with its name.",
            ) from error


@contextmanager
def _make_folder(into: Path) -> Iterator[None]:
    """Make the folder; if the download fails, remove it and the parents that were made for it."""
    made = [folder for folder in (into, *into.parents) if not folder.exists()]
    try:
        into.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in made:
            # It was never made, or another process has put something there.
            with suppress(OSError):
                folder.rmdir()
        raise


def _download(remote: Remote, into: Path) -> None:
    """Download one file; it is moved to its place only when it is whole and has the published checksum."""
    # Pooch announces every file on standard error, where our own progress bar is.
    pooch.get_logger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(dir=into, prefix=".unfinished-") as scratch, _show_progress(remote.file) as shown:
        downloader = pooch.HTTPDownloader(progressbar=shown, timeout=_SECONDS)
        served = None if remote.inside is not None else f"sha256:{remote.sha256}"
        arrived = Path(
            pooch.retrieve(
                remote.url, served, fname=remote.file, path=scratch, downloader=downloader, progressbar=False
            )
        )
        if remote.inside is not None:
            _check_inside(arrived, remote)
        arrived.replace(into / remote.file)


def _check_inside(arrived: Path, remote: Remote) -> None:
    with explain_errors(arrived, remote.inside or "a gzipped file"):
        if remote.inside:
            inside = next((data for path, data in list_members(arrived) if Path(path).name == remote.inside), b"")
        else:
            inside = gzip.decompress(arrived.read_bytes())
    found = hashlib.sha256(inside).hexdigest()
    if found != remote.sha256:
        raise ValueError(f"its SHA-256 is {found} instead of {remote.sha256}")


def _explain(error: Exception, url: str) -> str:
    """What went wrong, in a few words."""
    match error:
        case requests.HTTPError(response=requests.Response() as response):
            return f"the server answered {response.status_code}"
        case requests.ConnectionError() | requests.Timeout():
            return f"no connection to {urlsplit(url).netloc}"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def _show_progress(file: str) -> Iterator[Any]:
    """The progress bar that pooch reports to: on standard error, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield False
        return
    columns = (TextColumn("Downloading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _DownloadBar(bar, file)


@final
class _DownloadBar:
    """A progress bar of rich, with the four names that pooch uses."""

    def __init__(self, bar: Any, file: str) -> None:
        self._bar, self._task = bar, bar.add_task(file, total=None)
        # How many bytes there are; 0 if that is not known.
        self.total = 0.0

    def update(self, amount: float) -> None:
        """Add so many bytes."""
        self._bar.update(self._task, total=self.total or None, advance=amount)

    def reset(self) -> None:
        """Count from 0 again."""
        self._bar.update(self._task, completed=0)

    def close(self) -> None:
        """Nothing to do: the bar ends with its context."""
