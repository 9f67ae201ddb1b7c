"""Files that only their owner may read, whatever they were before: what tells about private examples lies in them."""

from __future__ import annotations

import os
from pathlib import Path


def for_the_owner(path: str, flags: int) -> int:
    """An opener: `open(path, "w", opener=for_the_owner)`."""
    handle = os.open(path, flags, 0o600)
    Path(path).chmod(0o600)
    return handle


def write_whole(path: Path, content: bytes, *, is_private: bool) -> None:
    """Put the content into the file, all of it or nothing of it; if it is private, for its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    with open(unfinished, "wb", opener=for_the_owner if is_private else None) as file:
        file.write(content)
    unfinished.replace(path)
