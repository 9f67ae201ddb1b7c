"""What accountants are asked: the epsilon of published and of hard runs, and the multiplier for a budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """Poisson-sampled Gaussian steps, and the delta at which their epsilon is asked for."""

    name: str
    multiplier: float
    rate: float
    steps: int
    delta: float
    rate_as: str = ""


WARM_UP = Setting("warm-up", 2.0, 0.02, 100, 1e-4)


@dataclass(frozen=True)
class Target:
    """A budget for a run: which multiplier does it take?"""

    epsilon: float
    rate: float = 256 / 60_000
    steps: int = 14_062
    delta: float = 1e-5


def published_settings() -> list[Setting]:
    """The nine settings of Bu, Dong, Long, Su 2020, tables 1 to 4."""
    multipliers = (1.3, 1.1, 0.7, 0.6, 0.55, 0.5)
    steps = (3_516, 14_062, 10_547, 14_531, 15_938, 23_438)
    return [
        *(
            Setting(f"MNIST {index}", multiplier, 256 / 60_000, count, 1e-5, "256/60000")
            for index, (multiplier, count) in enumerate(zip(multipliers, steps, strict=True), start=1)
        ),
        Setting("Adult", 0.55, 256 / 29_305, 2_061, 1e-5, "256/29305"),
        Setting("IMDb", 0.56, 512 / 25_000, 439, 1e-5, "512/25000"),
        Setting("MovieLens", 0.6, 1 / 80, 1_600, 1e-6, "1/80"),
    ]


def hard_settings() -> list[Setting]:
    """The edges, where accountants lose digits, time or the answer."""
    return [
        Setting("tiny epsilon", 100.0, 1e-3, 1_000, 1e-5),
        Setting("delta 1e-15, long run", 1.0, 1e-3, 1_000_000, 1e-15),
        Setting("delta 1e-15, MNIST 2", 1.1, 256 / 60_000, 14_062, 1e-15, "256/60000"),
        Setting("rate 1e-6, long run", 0.5, 1e-6, 1_000_000, 1e-5),
        Setting("rate 1e-6, little noise", 0.3, 1e-6, 1_000, 1e-5),
        Setting("one step", 1.0, 0.01, 1, 1e-5),
        Setting("rate 1", 10.0, 1.0, 100, 1e-5),
        Setting("large epsilon", 0.3, 0.01, 1_000, 1e-5),
    ]
