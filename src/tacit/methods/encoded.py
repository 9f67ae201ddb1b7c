"""Gradient encoding and denoising (Nasr, Shokri and Houmansadr 2020): noise of any law, and its denoising.

Every gradient is clamped, by the rank of each coordinate, to a vector that was chosen in advance; noise of one law is
added to each coordinate; and the release is scaled by how little it looks like noise. The paper bounds the Rényi
divergences of one step by an integral per coordinate and adds them up. That is true, with one sign corrected, if every
example is encoded by itself, lots are Poisson samples and the vectors do not depend on the data: an encoding is within
the box of its vector, and for every symmetric law that falls off on both sides the corner of a box is its worst point.
The guarantee here is the exact privacy curve of that corner. docs/reference/methods/encoded.md has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from tacit import _validate
from tacit.accounting.densities import Floats
from tacit.accounting.events import Event
from tacit.accounting.losses import density_atoms
from tacit.accounting.search import find_least
from tacit.budget import Budget
from tacit.errors import InvalidArgument, NotAchievable
from tacit.guarantee import Claim
from tacit.methods.registry import Entry
from tacit.stages.bounds import DrawnVectors, Encode, Profile
from tacit.stages.bounds.encode import Vectors
from tacit.stages.mechanism import Mechanism, Method, Mode, Settings
from tacit.stages.noise import BoxNoise, Family, Normal
from tacit.stages.noise.laws import find_family
from tacit.stages.post import KSDenoise
from tacit.types import Post

ENTRY = Entry(
    name="encoded",
    kind="gradient",
    paper="Nasr et al. 2020",
    idea="Gradients are clamped to preselected vectors, coordinate by coordinate, so that noise of any law can be "
    "accounted for; releases are scaled by how little they look like noise.",
    status="proven",
    verdict="With the sign of its lemma put right, one example per encoding, Poisson lots and vectors that do not "
    "depend on the data. Micro-batches of several examples, as in its experiments, are refuted, and refused here.",
    rigorous="The exact privacy curve of noise on a box; several examples per encoding in random buckets only.",
    options={
        "noise": "a noise law, such as gaussian, student_t or laplace; `tacit noise --families` compares all of them",
        "denoise": "true or false: scale releases by their distance from pure noise",
        "vectors": "in Python only: Profile(levels), DrawnVectors(count, seed) or GivenVectors(...)",
        "buckets": "deal examples into so many buckets and encode their means",
    },
)

SOURCE = "Nasr et al. 2020, Theorem 1"
_ORDERS = np.arange(2, 65)
# Shifts of many coordinates are counted on so many nodes, between which the moments are smooth.
_NODES = 64
_BUCKETS = (
    "Buckets of several examples move the sum by twice a vector when one example leaves; the paper, which counts once, "
    "has no claim about them."
)
_SEVERAL = "What is certified is one box that holds every preselected vector, which no example fills."


def encoded(
    clip_norm: float = 1.0,
    multiplier: float | None = None,
    *,
    noise: str | Family = "student_t",
    vectors: Vectors | None = None,
    denoise: bool | None = None,
    examples_per_encoding: int = 1,
    buckets: int | None = None,
    mode: Mode = "rigorous",
) -> Mechanism:
    """Encoded gradients with `noise` of any law: a name from `tacit.stages.noise.list_families()`, or a law.

    The multiplier is the noise's standard deviation (for the Cauchy law, which has none, its scale) over `clip_norm`,
    the norm of every vector. In rigorous form there is one vector and by default no denoising; in paper form there are
    a thousand, and denoising. Several examples can be encoded together only in a number of `buckets`.

    >>> encoded(multiplier=1.1, noise="laplace").noise.family
    Laplace()
    """
    if _validate.count("examples_per_encoding", examples_per_encoding) > 1:
        raise InvalidArgument(
            f"examples_per_encoding must be 1. Got {examples_per_encoding}. If a lot is cut into micro-batches, one "
            "example more or less moves all later ones to another micro-batch, and the sum of their encodings can move "
            "by any multiple of a vector: nine times, for nine examples in pairs. Give buckets=K, to deal examples "
            "into K buckets."
        )
    chosen = vectors or (DrawnVectors() if mode == "paper" else Profile())
    bound = Encode(chosen, _validate.positive("clip_norm", clip_norm), buckets)
    family = find_family(noise)
    is_denoised = mode == "paper" if denoise is None else denoise
    # Relative to pure noise, so that ordinary learning rates work; the paper's own steps are shorter.
    post: tuple[Post, ...] = (KSDenoise(is_relative=mode == "rigorous"),) if is_denoised else ()
    method = Method("encoded", "Nasr et al. 2020", mode, claims=None if buckets else RenyiOverVectors())
    if buckets:
        method = replace(method, notes=(_BUCKETS,), attained=False)
    elif isinstance(chosen, DrawnVectors) and chosen.count > 1 and not isinstance(family, Normal):
        method = replace(method, notes=(_SEVERAL,), attained=False)
    return Mechanism(bound, BoxNoise(family, bound.box, multiplier), post, method)


@dataclass(frozen=True)
class RenyiOverVectors:
    """The paper's Lemmas 4 and 5 and Theorem 1, with the sign of Lemma 4 put right, at whole orders from 2 to 64.

    Rényi divergences of one step, the largest over all vectors for each order, times the number of steps; converted by
    Mironov 2017. It is for Poisson lots and equal steps.
    """

    source: str = SOURCE

    def claim(self, settings: Settings, event: Event) -> Claim | None:
        """None if the steps differ."""
        if settings.is_scheduled or settings.multiplier is None:
            return None
        return Claim(self._epsilon(settings, settings.multiplier, settings.delta), settings.delta, self.source)

    def calibrate(self, settings: Settings, budget: Budget) -> Mechanism:
        """The least noise with which this formula stays within the budget, to four digits."""

        def is_enough(multiplier: float) -> bool:
            return self._epsilon(settings, multiplier, budget.delta) <= budget.epsilon

        least = find_least(is_enough, 0.05, 0.1, within=1e-4, most=1e6, is_geometric=True)
        if math.isinf(least):
            raise NotAchievable(f"No noise brings the paper's formula down to epsilon {budget.epsilon:g}.")
        return settings.mechanism.with_multiplier(least)

    def _epsilon(self, settings: Settings, multiplier: float, delta: float) -> float:
        noise, bound = settings.mechanism.noise, settings.mechanism.bound
        assert isinstance(noise, BoxNoise)
        assert isinstance(bound, Encode)
        moments = vector_moments(noise.family, bound.vectors, multiplier, settings.dimension)
        divergences = sampled_divergences(moments, min(settings.rate, 1.0)).max(axis=0)
        return float(np.min(settings.steps * divergences - math.log(delta) / (_ORDERS - 1)))


def sampled_divergences(log_moments: Floats, rate: float) -> Floats:
    """Lemma 4 for orders 2 to 64, one row a vector: from log E_k, k = 0 to 64, over all coordinates together."""
    orders, powers = _ORDERS[:, None], np.arange(_ORDERS[-1] + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = special.gammaln(orders + 1) - special.gammaln(powers + 1) - special.gammaln(orders - powers + 1)
        terms = terms + special.xlogy(powers, rate) + special.xlog1py(np.maximum(orders - powers, 0), -rate)
    terms[powers > orders] = -np.inf
    return np.asarray(special.logsumexp(terms + log_moments[:, None, :], axis=2) / (_ORDERS - 1))


# A search for the noise calls it about twenty times, and is repeated for every seed.
@lru_cache(maxsize=64)
def vector_moments(family: Family, vectors: Vectors, multiplier: float, dimension: int) -> Floats:
    """log of the product of E_k over the coordinates of each vector, for k = 0 to 64: [vectors, 65]."""
    powers = np.arange(_ORDERS[-1] + 1)
    if isinstance(family, Normal):
        return np.asarray(powers * (powers - 1) / (2 * multiplier**2))[None]
    shifts, counts = _count_shifts(vectors, dimension)
    density = family.density(multiplier)
    each = np.zeros((shifts.size, powers.size))
    for row, shift in zip(each, shifts, strict=True):
        atoms = density_atoms(density, float(shift), "estimate", 1e-300, 4000)
        seen = atoms.p > 0
        row[:] = special.logsumexp(np.log(atoms.p[seen]) + (powers[:, None] - 1) * atoms.loss[seen], axis=1)
    return np.asarray(counts @ each)


@lru_cache(maxsize=4)
def _count_shifts(vectors: Vectors, dimension: int) -> tuple[Floats, Floats]:
    """Shifts, and how many coordinates of each vector have them; many shifts are distributed between nodes.

    A coordinate is split among the four nodes around it by cubic interpolation in its square: its moments depend mainly
    on that.
    """
    rows = vectors.rows(dimension)
    if len(rows) == 1:
        shifts, numbers = np.unique(rows, return_counts=True)
        if shifts.size <= _NODES:
            return shifts.astype(np.float64), numbers[None].astype(np.float64)
    nodes = np.linspace(0, float(rows.max()), _NODES)
    counts = np.empty((len(rows), _NODES))
    for result, row in zip(counts, rows.astype(np.float64, copy=False), strict=True):
        first = np.clip(np.searchsorted(nodes, row, side="right") - 2, 0, _NODES - 4)
        around = nodes[first + np.arange(4)[:, None]] ** 2
        result[:] = 0
        for place in range(4):
            others = np.delete(around, place, axis=0)
            shares = ((row**2 - others) / (around[place] - others)).prod(axis=0)
            result += np.bincount(first + place, shares, _NODES)
    return nodes, counts
