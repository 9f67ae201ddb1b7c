"""What someone would look for who knows all examples but one, and tries all values of that one."""

import hashlib
from itertools import combinations

import numpy as np

from tacit.ledger import fingerprint


def guesses(*arrays, seeds=(0,)) -> set[bytes]:
    """The first half of every digest that could be made of a guess: of some of the arrays, plain or with known extras.

    Known extras are the number of examples, and the salt that old versions derived from a seed.
    """
    extras = [(), (np.asarray([len(arrays[-1])]),)]
    salts = [hashlib.sha256(f"salt {seed}".encode()).digest()[:16] for seed in seeds]
    extras += [(np.frombuffer(salt, np.uint8),) for salt in salts]
    some = [each for count in range(1, len(arrays) + 1) for each in combinations(arrays, count)]
    found = {fingerprint(*extra, *each) for extra in extras for each in some}
    plain = [b"".join(np.ascontiguousarray(one).tobytes() for one in each) for each in some]
    for content in [*plain, *(each.encode() for each in tuple(found))]:
        found |= {digest(content) for digest in (md5, sha1, sha256, sha512, blake2b, blake2s)}
    return {each[: len(each) // 2].encode() for each in found}


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def sha1(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha512(content: bytes) -> str:
    return hashlib.sha512(content).hexdigest()


def blake2b(content: bytes) -> str:
    return hashlib.blake2b(content).hexdigest()


def blake2s(content: bytes) -> str:
    return hashlib.blake2s(content).hexdigest()


def neighbours(labels) -> tuple[np.ndarray, np.ndarray]:
    """The labels, and those with another first one."""
    other = np.array(labels)
    other[0] = 1 - other[0]
    return np.array(labels), other


def shown(content: bytes, candidates: set[bytes]) -> list[bytes]:
    """Which of the candidates someone finds who reads the content."""
    return [each for each in candidates if each in content.lower()]
