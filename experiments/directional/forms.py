"""The methods that are compared, by the names that the paper gives them, and the mechanism of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tacit import Budget, methods
from tacit.accounting import Gaussian
from tacit.accounting.rdp import MOMENTS_ORDERS, RenyiProfile
from tacit.stages.mechanism import Mechanism

from . import by_chance

NO_NOISE = "without noise"
# In AdaClip the paper clips 99 % of all gradients, by a gamma of 0.01. Here gamma is the squared length that a whitened
# gradient is expected to have, clipped at 1: with 100 next to all are clipped, with 0.01 next to none would be.
GAMMA = 100.0
PUBLISHED = {
    "Gaussian": partial(methods.dpsgd, mode="paper"),
    "ours, w = 1": partial(methods.directional, mode="paper", variant="w1"),
    "AdaClip": partial(methods.adaclip, mode="paper", gamma=GAMMA),
    # Takes the gradient of all data before every step, unless a set says that w is drawn by chance.
    "ours": partial(methods.directional, mode="paper"),
}
RIGOROUS = {
    "Gaussian, certified (and w = 1)": methods.dpsgd,
    "directional, certified": partial(methods.directional, grain="parameter", objective="l2"),
    "AdaClip, certified": partial(methods.adaclip, gamma=GAMMA),
}
# The moments accountant with orders up to 63 only.
FEW_ORDERS = "Gaussian, orders up to 63"
ADACLIP = ("AdaClip, certified", "AdaClip")
# On large networks the paper sets most of a gradient to zero, and adds it to the next.
PRUNED = ("Gaussian, pruned", "ours, w = 1, pruned", "ours, pruned")
PRUNED_RIGOROUS = ("Gaussian, certified (and w = 1)", "pruned, certified")
_MOST = 64
LARGE = ("alexnet", "resnet18")


def forms_of(about: Mapping[str, Any]) -> tuple[str, ...]:
    """What is compared on a set."""
    every = (*PRUNED_RIGOROUS, *PRUNED) if about["model"] in LARGE else (*RIGOROUS, *PUBLISHED)
    return tuple(form for form in every if form not in about.get("left_out", ()) and form in about.get("only", every))


def mechanism(
    form: str, about: Mapping[str, Any], budget: Budget, *, rate: float, steps: int, seed: int
) -> tuple[Mechanism, Budget | None]:
    """A method with its clip norm, and the budget by which its noise is found; none where it is known."""
    clip_norm = about["clip_norm"]
    is_drawn, share = about.get("w") == "by chance", about.get("share", by_chance.SHARE)
    if form == "ours" and is_drawn:
        given = (clip_norm, rate, steps, budget.epsilon, budget.delta)
        return by_chance.full_method(*given, seed=seed, share=share), None
    if form == "ours, pruned":
        given = (clip_norm, rate, steps, budget.epsilon, budget.delta)
        return by_chance.pruned_full_method(*given, keep=about["keep"], share=share), None
    if form == FEW_ORDERS:
        return methods.dpsgd(clip_norm, few_orders_multiplier(budget, rate, steps), mode="paper"), None
    if "pruned" in form:
        return pruned(form, clip_norm, about["keep"]), budget
    return {**PUBLISHED, **RIGOROUS}[form](clip_norm), budget


def few_orders_multiplier(budget: Budget, rate: float, steps: int) -> float:
    """The least noise for which the moments accountant with orders up to 63 keeps the budget, to five digits."""
    orders, low, high = tuple(order for order in MOMENTS_ORDERS if order < _MOST), 0.1, 1e4
    while high / low > 1 + 1e-5:
        middle = math.sqrt(low * high)
        found = RenyiProfile.of(Gaussian(middle).sampled(rate) * steps, orders, "classical")
        fits = found.epsilon(budget.delta).upper <= budget.epsilon
        low, high = (low, middle) if fits else (middle, high)
    return high


def pruned(form: str, clip_norm: float, keep: float) -> Mechanism:
    """The largest coordinates only: as published with either rule for the noise, or with a proof."""
    if form == "pruned, certified":
        return methods.pruned(clip_norm, keep=keep)
    published = methods.pruned(clip_norm, keep=keep, mode="paper")
    if form == "ours, w = 1, pruned":
        return published
    # What the moments accountant says of Gaussian noise, whatever else is released.
    moments = methods.dpsgd(mode="paper", denominator="realised").method.claims
    return replace(published, method=replace(published.method, claims=moments))
