"""Which examples these are, as a number that changes when they do. Private, like the examples themselves.

Whoever has it and knows all examples but one can try all values of the last one. So nothing writes it down as it is: a
ledger keys it with its own secret, and what else commits to data (reports, comparisons) with a salt of its own that
stays in a file of the owner's.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np

from tacit.errors import InvalidArgument


def fingerprint(*arrays: Any) -> str:
    """A SHA-256 of the arrays' types, shapes and contents.

    It is a function of private data: whoever has it can tell whether a guess of *all* the data is right. Never write it
    down: `Ledger.spend(..., fingerprint=...)` keys it first, and `salted_fingerprint` is the one for other files.

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


def salted_fingerprint(salt: str, *arrays: Any) -> str:
    """The fingerprint of the arrays behind a secret `salt` of hexadecimal digits: it commits, and tells nothing."""
    return fingerprint(np.frombuffer(bytes.fromhex(salt), np.uint8), *arrays)


def new_salt() -> str:
    """A secret of 128 bits, also for a run with a seed: whoever reads about such a run may know the seed."""
    return secrets.token_hex(16)


def is_secret(salt: str | None, seed: int | None) -> bool:
    """Whether nobody else knows the salt of a run: there is one, and it was not made from the seed, as it once was."""
    return salt is not None and (seed is None or salt != _salt_of_seed(seed))


def _salt_of_seed(seed: int) -> str:
    return hashlib.sha256(f"salt {seed}".encode()).hexdigest()[:32]
