"""Noise that a device makes by itself, here on the CPU, and on meta tensors, which know shapes only."""

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.randomness import Purpose, SecureSource, SeededSource
from tacit.stages.noise import GaussianNoise
from tacit.stages.noise.on_device import draw_normal, philox
from tacit.types import BoundedSum

CPU = torch.device("cpu")
WORD = 2**32 - 1
# The known answers of Random123, the authors' own library: counter, key and output.
ANSWERS = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((WORD,) * 4, (WORD,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def stream(step: int, seed: int = 0):
    return SeededSource(seed).stream(Purpose.NOISE, step)


@pytest.mark.parametrize(("counter", "key", "answer"), ANSWERS)
def test_philox_gives_the_known_answers(counter, key, answer):
    found = philox(tuple(torch.tensor([word]) for word in counter), key)
    assert " ".join(f"{int(word):08x}" for word in found) == answer


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_numbers_are_normal(kind):
    drawn = draw_normal(stream(1), 100_001, CPU, kind, 3.0).double().numpy() / 3
    assert drawn.shape == (100_001,)
    # False alarm 1e-6 each; the seed is fixed.
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    # The two numbers of a pair, and those of neighbouring pairs.
    for one, other in ((drawn[:50_000], drawn[50_001:]), (drawn[:50_000], drawn[1:50_001])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(50_000)


def test_no_two_steps_and_no_two_sources_draw_the_same():
    first, again, later, other = (draw_normal(each, 64, CPU, torch.float32, 1.0) for each in streams())
    assert torch.equal(first, again)
    assert not torch.isin(first, torch.cat([later, other])).any()
    secret = SecureSource()
    ones, others = (draw_normal(secret.stream(Purpose.NOISE, 0), 64, CPU, torch.float32, 1.0) for _ in range(2))
    assert not torch.isin(ones, others).any()


def streams():
    return stream(1), stream(1), stream(2), stream(1, seed=1)


def test_pieces_are_parts_of_one_draw(monkeypatch):
    whole = draw_normal(stream(1), 1000, CPU, torch.float64, 1.0)
    monkeypatch.setattr("tacit.stages.noise.on_device._PAIRS", 64)
    pieces = draw_normal(stream(1), 1000, CPU, torch.float64, 1.0)
    assert torch.equal(whole.sort().values, pieces.sort().values)


@pytest.mark.slow
def test_noise_is_added_without_looking_at_a_number():
    """A meta tensor has no numbers: whatever waits for a device fails on it."""
    values = {"w": torch.empty(3, 4, device="meta"), "b": torch.empty(5, device="meta")}
    noisy = GaussianNoise(1.0).mean_in_place(BoundedSum(values, 1.0), stream(0), 10.0)
    assert {name: (value.device.type, value.shape) for name, value in noisy.items()} == {
        "w": ("meta", (3, 4)),
        "b": ("meta", (5,)),
    }
