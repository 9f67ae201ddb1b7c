"""Paths of users, and the one atomic writer: a file holds all new or all old content, also after a crash."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def expand_home(path: str | os.PathLike[str]) -> Path:
    """The path, beginning with the home folder in place of ~. A file may be called ~x if there is no user x.

    >>> print(expand_home("~nobody-of-that-name.csv"))
    ~nobody-of-that-name.csv
    """
    with suppress(RuntimeError):
        return Path(path).expanduser()
    return Path(path)


def name_of(path: Path) -> str:
    """The name of a file as text that can be written anywhere.

    Without a locale, Python reads a name that is not ASCII as surrogates, which no file can hold: it is in UTF-8 then.

    >>> name_of(Path("data/gr\\udcc3\\udcb6sse.csv"))
    'grösse.csv'
    """
    return path.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: `open(path, "w", opener=open_private)`."""
    handle = os.open(path, flags, 0o600)
    Path(path).chmod(0o600)
    return handle


def write_atomic(path: Path, content: bytes, *, is_private: bool, keep: Path | None = None) -> None:
    """Replace the content of a file; the previous content goes to `keep`.

    Folders are made as needed. A private file is readable by its owner only. After a crash or on a full disk the file
    holds its previous content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with open(unfinished, "wb", opener=open_private if is_private else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None:
            _link(path, keep)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _link(path: Path, name: Path) -> None:
    """Give the file a second name. Before the first write, and on file systems without links, do nothing."""
    linked = name.with_name(f"{name.name}.unfinished")
    with suppress(OSError):
        linked.unlink(missing_ok=True)
        os.link(path, linked)
        linked.replace(name)


def sync_folder(folder: Path) -> None:
    """Make new file names survive a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
