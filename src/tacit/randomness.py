"""Random numbers for noise and lots: from an unpredictable keystream, or from a fixed seed for tests.

AES-256 in counter mode gives the bits, Box-Muller turns them into normal numbers. A `Source` hands out one
`Stream` per purpose and step. A secure source never hands out a stream twice and keeps its key in memory
only. A seeded source gives the same stream for the same purpose and step, so a resumed run repeats the lost
draws; anyone who knows the seed can subtract the noise, so its results are not for release.

A fingerprint of data is as private as the examples: anyone who has it and knows all examples but one can try every
value of the last one. So it is only written with a secret: a ledger's own, or a salt in a file of the owner's.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, NoReturn, Protocol, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from tacit import _validate
from tacit._rows import drop_pages
from tacit.errors import InvalidArgument, OutOfOrder

Indices = NDArray[np.int64]
# What lots or noise remember from one step to the next, while the process lives.
Memory = Any

# How lots are drawn from a stream. A seeded run that was saved with another number cannot repeat its lost steps.
DRAWING = 2
# Draws up to this size come from a stock.
_FEW = 4096
# Below this rate, coins are not tossed one by one.
_LOW = 1 / 64
# Pairs of normal numbers per piece: the scratch space stays in the processor's cache.
_PAIRS = 24_576
# Bytes in a line of the processor's cache.
_LINE = 64
_ZEROS = memoryview(bytes(2**17))
# Bytes that are hashed at a time.
_HASHED = 2**26
# Radius bits below this (one in 32,768 in single precision) get 63 more, because they form the tails.
_RARE = 2**16

_FORKED = (
    "This run began in process {pid} and continues in its fork {here}: both would spend one budget and draw the same "
    "noise. Continue in the first process, or save the run and resume it in one other process."
)


def refuse_forked(pid: int) -> None:
    """Raise `OutOfOrder` in any process other than `pid`, such as a fork of it."""
    if os.getpid() != pid:
        raise OutOfOrder(_FORKED.format(pid=pid, here=os.getpid()))


class Purpose(IntEnum):
    """The purpose of a stream. Two purposes never share bits."""

    LOT = 1
    NOISE = 2
    SHUFFLE = 3
    BOUND = 4


class Source(Protocol):
    """Hands out streams, and says whether their draws may be released."""

    @property
    def is_secret(self) -> bool:
        """Whether nobody can repeat the draws."""

    def stream(self, purpose: Purpose, step: int) -> Stream:
        """The stream for one purpose at one step."""


@final
class SecureSource:
    """A fresh key from the operating system, kept in memory only. No stream repeats."""

    is_secret = True

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._key = secrets.token_bytes(32)
        self._numbers = itertools.count()
        self._pool = _Pool()
        self._memories: dict[Purpose, dict[str, Memory]] = {}
        self._process = os.getpid()

    def stream(self, purpose: Purpose, step: int) -> Stream:
        """A stream that was never handed out before."""
        # A fork has a copy of the key and must not draw its parent's noise.
        if os.getpid() != self._process:
            self._renew()
        return Stream(self._key, next(self._numbers), self._pool, self._memories.setdefault(purpose, {}))

    def __repr__(self) -> str:
        return "SecureSource()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A secure source cannot be copied or saved: the same noise drawn twice would cancel.")


@final
class SeededSource:
    """The same streams for the same seed: for tests and reproductions, not for release."""

    is_secret = False

    def __init__(self, seed: int) -> None:
        self.seed = _validate.count("seed", seed, at_least=0)
        self._key = hashlib.sha256(f"tacit seed {self.seed}".encode()).digest()
        self._memories: dict[Purpose, dict[str, Memory]] = {}

    def stream(self, purpose: Purpose, step: int) -> Stream:
        """The one stream of this purpose and step."""
        return Stream(self._key, (int(purpose) << 56) + step, None, self._memories.setdefault(purpose, {}))

    def __repr__(self) -> str:
        return f"SeededSource({self.seed})"


def source_for(seed: int | None) -> Source:
    """A secure source, or a seeded one if a seed is given."""
    return SecureSource() if seed is None else SeededSource(seed)


# The source and number of the current step, if there is one.
_CURRENT: ContextVar[tuple[Source, int] | None] = ContextVar("_CURRENT", default=None)


class CurrentStep:
    """A context in which `bound_stream` draws from the source of the step's lot and noise.

    A class, because entering a generator would take as long as a small sum.
    """

    __slots__ = ("_outer", "_step")

    def __init__(self, source: Source, step: int) -> None:
        self._step = source, step

    def __enter__(self) -> None:
        self._outer = _CURRENT.set(self._step)

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._outer)


def bound_stream() -> Stream:
    """A stream for a bound that needs random numbers: of the current step, or else from a new secure source."""
    source, step = _CURRENT.get() or (SecureSource(), 0)
    return source.stream(Purpose.BOUND, step)


@final
class Stream:
    """Random bits in order, each used once. `number` selects one of 2^64 streams under one key.

    With a `pool`, small draws of normal numbers come from its stock.
    """

    def __init__(
        self, key: bytes, number: int, pool: _Pool | None = None, memory: dict[str, Memory] | None = None
    ) -> None:
        self._key, self._number, self._pool = key, number, pool
        self._memory: dict[str, Memory] = {} if memory is None else memory

    def recall(self, name: str, fresh: Callable[[], Memory]) -> Memory:
        """What was kept under this name since the source began, or else a new one; in memory only, never saved.

        For lots and noise that depend on earlier steps. It is as secret as the noise.
        """
        if name not in self._memory:
            self._memory[name] = fresh()
        return self._memory[name]

    def at(self, step: int) -> Stream | None:
        """The stream of the same purpose at another step; None if it can never be drawn again."""
        if self._pool is not None:
            return None
        return Stream(self._key, (self._number >> 56 << 56) + step, None, self._memory)

    @property
    def step(self) -> int | None:
        """The step of a stream that can be drawn again; None for the others."""
        return None if self._pool is not None else self._number % 2**56

    @cached_property
    def _keystream(self) -> CipherContext:
        start = self._number.to_bytes(8, "big") + bytes(8)
        return Cipher(algorithms.AES(self._key), modes.CTR(start)).encryptor()

    def __reduce__(self) -> NoReturn:
        raise TypeError("A stream cannot be copied or saved: the same noise drawn twice would cancel.")

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite an array with random bits."""
        bits = memoryview(out).cast("B")  # type: ignore[arg-type]
        for start in range(0, len(bits), len(_ZEROS)):
            piece = bits[start : start + len(_ZEROS)]
            self._keystream.update_into(_ZEROS[: len(piece)], piece)

    def coins(self, n: int, rate: float) -> Indices:
        """The indices below `n` whose own coin shows heads, each with probability `rate`, in ascending order.

        The probability is `rate` rounded down to a multiple of 2^-32, or of 2^-64 for rates below 1/64, which cannot
        harm privacy. Below 1/64, a binomial number of heads is drawn, then that many distinct indices: in time
        proportional to the heads, and within 2^-150 of the law of independent coins (docs/explanations/security.md).
        """
        if rate >= 1:
            return np.arange(n, dtype=np.int64)
        if rate < _LOW:
            heads = int(rate * 2**64)
            if not n or not heads:
                return np.empty(0, dtype=np.int64)
            least, totals = _count_heads(n, heads)
            return self._choose(n, least + bisect_right(totals, self._draw_below(totals[-1])))
        bits = np.empty(n, dtype=np.uint32)
        self.fill(bits)
        return np.flatnonzero(bits < np.uint32(math.floor(rate * 2**32)))

    def _draw_below(self, bound: int) -> int:
        """A whole number below `bound`, each with the same probability."""
        count = bound.bit_length()
        bits = np.empty((count + 7) // 8, dtype=np.uint8)
        while True:
            self.fill(bits)
            value = int.from_bytes(bits.tobytes(), "big") >> (8 * len(bits) - count)
            if value < bound:
                return value

    def _choose(self, n: int, count: int) -> Indices:
        """`count` distinct indices below `n` in ascending order, each such set with the same probability.

        These are the first distinct ones among independent draws: never more draws are added than are missing.
        """
        width, found = (n - 1).bit_length(), np.empty(0, dtype=np.int64)
        while missing := count - len(found):
            # Some more than are missing on average, because draws of n or more are left out.
            words = np.empty((missing << width) // n + missing // 8 + 8, dtype=np.uint64)
            self.fill(words)
            words &= np.uint64((1 << width) - 1)
            found = np.sort(np.concatenate([found, words[words < n][:missing].view(np.int64)]))
            is_new = found[1:] != found[:-1]
            if not is_new.all():
                found = np.append(found[:1], found[1:][is_new])
        return found

    def normal(self, size: int, *, wide: bool = False, scale: float = 1.0) -> NDArray[Any]:
        """`size` independent normal numbers of standard deviation `scale`, in single or, if `wide`, double precision.

        Radius and angle come from 31 and 32 random bits (63 and 64 in double precision), and the long radii from 63
        more, so the tails reach 11.4 standard deviations; the probability beyond is 4e-30.
        """
        real = np.float64 if wide else np.float32
        out: NDArray[Any] = np.empty(size, dtype=real)
        start = 0
        for piece in self.normal_pieces(size, real, scale):
            out[start : start + len(piece)] = piece
            start += len(piece)
        return out

    def normal_pieces(self, size: int, real: type[np.floating], scale: float) -> Iterator[NDArray[Any]]:
        """The same numbers in pieces. Each piece overwrites the one before, so that all stay in the cache.

        >>> [len(piece) for piece in Stream(bytes(32), 0).normal_pieces(60_000, np.float32, scale=1.0)]
        [49152, 10848]
        """
        if self._pool is not None and size <= _FEW and real is np.float32:
            yield self._pool.take(size, self) * np.float32(scale)
            return
        with _borrow_scratch(real) as scratch:
            for start in range(0, size, 2 * _PAIRS):
                yield scratch.box_muller(self, min(size - start, 2 * _PAIRS), scale)


@lru_cache(maxsize=16)
def _count_heads(n: int, heads: int) -> tuple[int, list[int]]:
    """How often each number of heads comes among `n` coins, each with probability heads / 2^64.

    Returns the least number, and running totals of the weights from it on, in units of 2^-256 of the most likely one.
    Numbers whose weight rounds to zero, 18 standard deviations away, are left out.
    """
    tails, middle = 2**64 - heads, (n + 1) * heads >> 64
    below, above = [2**256], [2**256]
    for k in range(middle, 0, -1):
        below.append(below[-1] * k * tails // ((n - k + 1) * heads))
        if not below[-1]:
            break
    for k in range(middle, n):
        above.append(above[-1] * (n - k) * heads // ((k + 1) * tails))
        if not above[-1]:
            break
    return middle - len(below) + 1, list(itertools.accumulate([*reversed(below), *above[1:]]))


class _Pool:
    """Normal numbers drawn in advance, each handed out once: a small draw takes nearly as long as a large one."""

    def __init__(self) -> None:
        self._lock, self._process = Lock(), os.getpid()
        self._stock: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._next = 0

    def take(self, size: int, stream: Stream) -> NDArray[np.float32]:
        """The next `size` numbers; `stream` draws more when the stock runs out."""
        with self._lock:
            if os.getpid() != self._process:
                # A fork has copies of stock and stream and must not draw its parent's noise.
                stream = Stream(secrets.token_bytes(32), 0)
                self._stock, self._process = self._stock[:0], os.getpid()
            if self._next + size > len(self._stock):
                self._stock, self._next = stream.normal(2 * _PAIRS), 0
            start = self._next
            self._next += size
            return self._stock[start : self._next]


def _allocate_aligned(size: int, kind: type[np.number]) -> NDArray[Any]:
    """Memory aligned to a cache line, with which numpy's sine and cosine take two thirds of the time."""
    width = np.dtype(kind).itemsize
    space = np.empty(size * width + _LINE, dtype=np.uint8)
    start = -space.ctypes.data % _LINE
    return space[start : start + size * width].view(kind)


# Scratch spaces not in use. Two concurrent draws never share one: noise would overwrite noise.
_SPARE: dict[type[np.floating], list[_Scratch]] = {np.float32: [], np.float64: []}
_KEPT = 4


@contextmanager
def _borrow_scratch(real: type[np.floating]) -> Iterator[_Scratch]:
    """A scratch space for one draw, reused because mapping new pages takes time."""
    spare = _SPARE[real]
    try:
        scratch = spare.pop()
    except IndexError:
        scratch = _Scratch(wide=real is np.float64)
    try:
        yield scratch
    finally:
        if len(spare) < _KEPT:
            spare.append(scratch)


class _Scratch:
    """Memory for one piece of a draw. Numpy, because torch would start its threads for every small piece."""

    def __init__(self, *, wide: bool) -> None:
        real, whole, count = (np.float64, np.int64, 63) if wide else (np.float32, np.int32, 31)
        self._real, self._bits = real, _allocate_aligned(2 * _PAIRS, whole)
        # Reuses the memory of the bits once they are radii and angles, to stay in the cache.
        self._out = self._bits.view(real)
        self._radius, self._angle = _allocate_aligned(_PAIRS, real), _allocate_aligned(_PAIRS, real)
        self._positive, self._half, self._fraction = whole(2**count - 1), real(0.5), real(2.0**-count)
        self._turn = real(math.pi * 2.0**-count)

    def box_muller(self, stream: Stream, size: int, scale: float) -> NDArray[Any]:
        """Normal numbers of standard deviation `scale`, which overwrite the previous ones."""
        pairs = (size + 1) // 2
        radius, angle, bits = self._radius[:pairs], self._angle[:pairs], self._bits[: 2 * pairs]
        stream.fill(bits)
        self._uniform(stream, bits[:pairs], radius)
        # -2 log of a uniform number in (0, 1] is the squared radius.
        np.log(radius, out=radius)
        np.multiply(radius, self._real(-2.0 * scale**2), out=radius)
        np.sqrt(radius, out=radius)
        angle[:] = bits[pairs:]
        np.multiply(angle, self._turn, out=angle)
        out = self._out[:size]
        first, second = out[:pairs], out[pairs:]
        np.cos(angle, out=first)
        np.multiply(first, radius, out=first)
        other = len(second)
        np.sin(angle[:other], out=second)
        np.multiply(second, radius[:other], out=second)
        return out

    def _uniform(self, stream: Stream, bits: NDArray[Any], out: NDArray[Any]) -> None:
        """Fill `out` with (k + 1/2) / 2^31, in (0, 1], for k of 31 bits; 63 bits in double precision."""
        # Signed integers convert to floating point five times as fast, so the sign bit is dropped.
        np.bitwise_and(bits, self._positive, out=bits)
        out[:] = bits
        np.add(out, self._half, out=out)
        np.multiply(out, self._fraction, out=out)
        # One by one: in three pieces of four there is one of them or none.
        finer = np.empty(1, dtype=np.int64)
        while bits[least := bits.argmin()] < _RARE:
            stream.fill(finer)
            out[least] = (int(bits[least]) + ((int(finer[0]) & (2**63 - 1)) + 0.5) * 2.0**-63) * float(self._fraction)
            bits[least] = self._positive


def fingerprint(*arrays: Any) -> str:
    """A SHA-256 of the arrays' types, shapes and contents.

    It is private: it confirms a guess of *all* the data. Never write it to a file: `Ledger.spend(..., fingerprint=...)`
    keys it first, and `salted_fingerprint` is for other files.

    >>> fingerprint(np.zeros(3)) == fingerprint(np.zeros(3)), fingerprint(np.zeros(3)) == fingerprint(np.zeros((3, 1)))
    (True, False)
    """
    digest = hashlib.sha256()
    for each in arrays:
        array = np.asarray(each)
        if array.dtype.hasobject:
            raise InvalidArgument(
                f"An array of Python objects ({array.dtype}) has no fingerprint. Convert its columns to numbers or "
                "text of fixed length first."
            )
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, len(content), _HASHED):
            digest.update(content[start : start + _HASHED].data)
            drop_pages(content)
    return digest.hexdigest()


def salted_fingerprint(salt: str, *arrays: Any) -> str:
    """The fingerprint of a secret `salt` (hexadecimal) and the arrays: it commits to them and reveals nothing."""
    return fingerprint(np.frombuffer(bytes.fromhex(salt), np.uint8), *arrays)


def new_salt() -> str:
    """A random secret of 128 bits, never derived from a seed, which readers of a run may know."""
    return secrets.token_hex(16)


def is_secret_salt(salt: str | None, seed: int | None) -> bool:
    """Whether a run has a salt that nobody else knows: old versions derived it from the seed."""
    return salt is not None and (seed is None or salt != hashlib.sha256(f"salt {seed}".encode()).hexdigest()[:32])
