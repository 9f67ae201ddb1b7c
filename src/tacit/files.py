"""Files that only their owner may read, whatever they were before: what tells about private examples lies in them."""

from __future__ import annotations

import os
from pathlib import Path


def for_the_owner(path: str, flags: int) -> int:
    """An opener: `open(path, "w", opener=for_the_owner)`."""
    handle = os.open(path, flags, 0o600)
    Path(path).chmod(0o600)
    return handle
