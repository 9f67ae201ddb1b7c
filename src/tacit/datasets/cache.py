"""Downloads, and the folder where they are kept: TACIT_DATA, or else the one that the system has for such files."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, final
from urllib.parse import urlsplit

from tacit.datasets.files import members, reading
from tacit.datasets.sources import Remote, Source
from tacit.errors import DataMissing

VARIABLE = "TACIT_DATA"
_SECONDS = 20.0


def folder() -> Path:
    """Where data sets are kept, each in a folder with its name."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("tacit") / "data"


def fetch(name: str, source: Source, into: Path, looked: str) -> None:
    """Download whatever is not there yet; `DataMissing` with the names of all files if that cannot be done.

    `looked` is the sentence that says where it was looked for, and under which names. A folder that nothing came into
    is not left behind.
    """
    for remote in source.files:
        if (into / remote.file).is_file():
            continue
        try:
            with _folder_for(into):
                _download(remote, into)
        # Whatever goes wrong between here and a server far away, the remedy is the same.
        except Exception as error:
            why = f"{name} is not on this machine, and could not be downloaded ({_reason(error, remote.url)}). {looked}"
            raise DataMissing(f"{why} {_how_to_get(source, into)}", _own_copy(name)) from error


@contextmanager
def _folder_for(into: Path) -> Iterator[None]:
    """Make the folder; if that was for nothing, it and those above it that were made for it go again."""
    made = [folder for folder in (into, *into.parents) if not folder.exists()]
    try:
        into.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in made:
            # One that was never made is not there, and in another something else came to lie meanwhile.
            with suppress(OSError):
                folder.rmdir()
        raise


def _download(remote: Remote, into: Path) -> None:
    """One file: at its place only once it is whole, and is what was published."""
    import pooch

    # Pooch announces every file on standard error, where our own progress is shown.
    pooch.get_logger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(dir=into, prefix=".unfinished-") as scratch, _progress(remote.file) as shown:
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
    with reading(arrived, remote.inside or "a gzipped file"):
        if remote.inside:
            inside = next((data for path, data in members(arrived) if Path(path).name == remote.inside), b"")
        else:
            inside = gzip.decompress(arrived.read_bytes())
    found = hashlib.sha256(inside).hexdigest()
    if found != remote.sha256:
        raise ValueError(f"its SHA-256 is {found}, and should be {remote.sha256}")


def _how_to_get(source: Source, into: Path) -> str:
    files = ", ".join(remote.file for remote in source.files)
    addresses = " ".join(remote.url for remote in source.files)
    return f"Put {files} into {into} (from {addresses}); {source.page} describes the data."


def _own_copy(name: str) -> str:
    return (
        f"Or say where your copy lies: --data-path PATH on the command line, load({name!r}, path) in Python, or "
        f"{VARIABLE} for the folder in which copies lie, each in a folder with its name."
    )


def _reason(error: Exception, url: str) -> str:
    """In a few words what went wrong."""
    import requests

    match error:
        case requests.HTTPError(response=requests.Response() as response):
            return f"the server answered {response.status_code}"
        case requests.ConnectionError() | requests.Timeout():
            return f"no connection to {urlsplit(url).netloc}"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def _progress(file: str) -> Iterator[Any]:
    """What pooch is to report its progress to: a bar on standard error, if someone is watching."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield False
        return
    columns = (TextColumn("Downloading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, file)


@final
class _Bar:
    """A bar of rich's with the four names that pooch uses."""

    def __init__(self, bar: Any, file: str) -> None:
        self._bar, self._task = bar, bar.add_task(file, total=None)

    @property
    def total(self) -> float | None:
        """How many bytes there are."""
        total: float | None = self._bar.tasks[0].total
        return total

    @total.setter
    def total(self, total: float) -> None:
        self._bar.update(self._task, total=total or None)

    def update(self, amount: float) -> None:
        """So many bytes more."""
        self._bar.advance(self._task, amount)

    def reset(self) -> None:
        """Count from 0 again."""
        self._bar.update(self._task, completed=0)

    def close(self) -> None:
        """Nothing is left to do: the bar goes when its context ends."""
