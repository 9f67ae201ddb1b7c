"""Normal numbers made on the device of a model, by Philox under a key that the keystream of AES gives for each draw.

Philox-4x32-10 (Salmon, Moraes, Dror, Shaw 2011) turns a counter into four words by ten rounds of multiplications, so
every number is made by itself, and nothing is copied to the device but scalars. It is a generator for simulations,
which passes every test of TestU01, and no cipher: docs/security.md says what that means for privacy. Products are taken
in halves of 16 bits, so that no device has to agree on what an overflow is.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tacit.guarantee import Assumption
from tacit.randomness import Stream

NOISE_ON_DEVICE = Assumption(
    "noise_on_device",
    "Noise was made on the device of the model by Philox-4x32-10, with 128 new bits from AES-256 in every step. Nobody "
    "can tell its numbers from chance.",
)

_WORD = 2**32 - 1
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_BUMPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
# Pairs of normal numbers that are made at a time.
_PAIRS = 2**22

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def draw_normal(rng: Stream, size: int, device: torch.device, kind: torch.dtype, scale: float) -> Tensor:
    """`size` independent normal numbers of standard deviation `scale`, on the device, in single or double precision.

    Key and half of the counter are 128 fresh bits of the stream; the other half counts pairs. A radius comes from 64
    bits, so the tails reach 9.4 standard deviations; the probability beyond is 6e-20.
    """
    secret = np.empty(4, dtype=np.uint32)
    rng.fill(secret)
    key, nonce = (int(secret[0]), int(secret[1])), (int(secret[2]), int(secret[3]))
    pairs = (size + 1) // 2
    found = torch.empty(2 * pairs, dtype=kind, device=device)
    for start in range(0, pairs, _PAIRS):
        numbers = torch.arange(start, min(start + _PAIRS, pairs), device=device)
        third, fourth = (torch.full_like(numbers, half) for half in nonce)
        words = philox((numbers & _WORD, numbers >> 32, third, fourth), key)
        radius, angle = _find_polar(words, kind, scale)
        here = found[2 * start : 2 * start + 2 * len(numbers)]
        torch.mul(radius, angle.cos(), out=here[: len(numbers)])
        torch.mul(radius, angle.sin_(), out=here[len(numbers) :])
    return found[:size]


def philox(counters: Words, key: tuple[int, int]) -> Words:
    """Four words of 32 bits for every counter of four words, in tensors of 64 bits.

    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> [f"{int(word):08x}" for word in philox((zero, zero, zero, zero), (0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    a, b, c, d = counters
    low, high = key
    for _ in range(_ROUNDS):
        (above_a, below_a), (above_c, below_c) = _multiply(a, _FACTORS[0]), _multiply(c, _FACTORS[1])
        a, b, c, d = above_c ^ b ^ low, below_c, above_a ^ d ^ high, below_a
        low, high = (low + _BUMPS[0]) & _WORD, (high + _BUMPS[1]) & _WORD
    return a, b, c, d


def _multiply(word: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """The upper and the lower word of a product."""
    upper, lower = word * (factor >> 16), word * (factor & 0xFFFF)
    return (upper + (lower >> 16)) >> 16, (((upper & 0xFFFF) << 16) + lower) & _WORD


def _find_polar(words: Words, kind: torch.dtype, scale: float) -> tuple[Tensor, Tensor]:
    """Radius and angle of a pair of normal numbers, by Box and Muller's method."""
    coarse, fine, turn, rest = (word.to(kind) for word in words)
    # In (0, 1]: the second word decides where the first is small, which is where the tails come from.
    uniform = fine.add_(0.5).mul_(2.0**-32).add_(coarse).mul_(2.0**-32)
    radius = uniform.log_().mul_(-2.0 * scale**2).sqrt_()
    return radius, rest.add_(0.5).mul_(2.0**-32).add_(turn).mul_(2 * math.pi * 2.0**-32)
