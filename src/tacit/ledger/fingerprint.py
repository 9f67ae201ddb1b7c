"""Which examples these are, as a number that changes when they do. Private, like the examples themselves."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from tacit.errors import InvalidArgument


def fingerprint(*arrays: Any) -> str:
    """A SHA-256 of the arrays' types, shapes and contents.

    It is a function of private data: whoever has it can tell whether a guess of *all* the data is right. A ledger
    keeps it only mixed with a secret of its own.

    >>> fingerprint(np.zeros(3)) == fingerprint(np.zeros(3)), fingerprint(np.zeros(3)) == fingerprint(np.zeros((3, 1)))
    (True, False)
    """
    digest = hashlib.sha256()
    for each in arrays:
        array = np.asarray(each)
        if array.dtype.hasobject:
            raise InvalidArgument(
                f"An array of Python objects ({array.dtype}) has no fingerprint. Turn its columns into numbers or "
                "text of fixed length first."
            )
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
