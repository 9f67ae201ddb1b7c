"""Noise across processes, forks, resumptions and restarts: no draw comes twice, and none is related to another."""

import os
import warnings
from itertools import combinations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import tacit
from tacit.randomness import Purpose, SecureSource
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

SIZE = 40_000
SHARED = SecureSource()


def in_processes(count: int, draw) -> list[np.ndarray]:
    """What each of so many forked processes drew."""
    found = []
    for _ in range(count):
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Newer interpreters warn of threads, of which the child uses none.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(draw().astype(np.float32).tobytes())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            found.append(np.frombuffer(pipe.read(), dtype=np.float32))
        assert os.waitpid(child, 0)[1] == 0
    return found


def noise_of(source: SecureSource, size: int = SIZE) -> np.ndarray:
    values = GaussianNoise(1.0).add(BoundedSum({"w": torch.zeros(size)}, 1.0), source.stream(Purpose.NOISE, 0))
    return values["w"].numpy()


def small_draws(source: SecureSource) -> np.ndarray:
    """Small draws come from a stock that is drawn ahead."""
    return np.concatenate([noise_of(source, 1000) for _ in range(SIZE // 1000)])


def assert_unrelated(draws: list[np.ndarray]) -> None:
    """Pairwise, also where one lags behind: correlations have sd 0.005, so 0.03 is one false alarm in 500 million."""
    for one, other in combinations(draws, 2):
        assert one.shape == other.shape == (SIZE,)
        for lag in (0, 1, 2, 1000):
            assert abs(np.corrcoef(one[lag:], other[: SIZE - lag])[0, 1]) < 0.03
        # Released numbers lie on a grid, so some agree by chance: about 0.3 % in the same place.
        assert np.mean(one == other) < 0.01


@pytest.mark.parametrize("draw", [noise_of, small_draws])
def test_processes_forked_from_one_draw_unrelated_noise(draw):
    draw(SHARED)
    assert_unrelated([draw(SHARED), *in_processes(3, lambda: draw(SHARED)), draw(SHARED)])


def test_processes_that_start_anew_draw_unrelated_noise():
    assert_unrelated(in_processes(3, lambda: noise_of(SecureSource())))


def test_lots_of_forked_processes_are_unrelated():
    """Coins at one half: agreements of 40,000 have sd 0.0025."""

    def lot() -> np.ndarray:
        drawn = np.zeros(SIZE)
        drawn[SHARED.stream(Purpose.LOT, 0).coins(SIZE, 0.5)] = 1
        return drawn

    for one, other in combinations([lot(), *in_processes(2, lot)], 2):
        assert np.mean(one == other) == pytest.approx(0.5, abs=0.015)


def begun(seed):
    torch.manual_seed(0)
    model = torch.nn.Linear(200, 200, bias=False)
    data = torch.zeros(10, 200), torch.zeros(10, dtype=torch.long)
    settings = {"mechanism": tacit.methods.dpsgd(1.0, 1.0), "sampling": tacit.FullBatch(10), "steps": 4, "seed": seed}
    return tacit.PrivateRun(model, cross_entropy, data=data, **settings)


def released(run) -> np.ndarray:
    """What one step releases. All examples are zero, so it is noise alone."""
    return run.release(next(iter(run)))["weight"].numpy().reshape(-1).copy()


def again(folder):
    data = torch.zeros(10, 200), torch.zeros(10, dtype=torch.long)
    return tacit.PrivateRun.resume(folder, torch.nn.Linear(200, 200, bias=False), cross_entropy, data=data)


def test_a_run_that_is_resumed_again_and_again_never_draws_the_same_noise(tmp_path):
    run = begun(None)
    first = released(run)
    run.save(tmp_path)
    draws = [first, released(run)]
    for _ in range(2):
        draws.append(released(again(tmp_path)))
    draws.append(released(begun(None)))
    assert_unrelated(draws)


def test_with_a_seed_the_same_step_is_the_same_draw_and_no_other_is(tmp_path):
    run = begun(3)
    first = released(run)
    run.save(tmp_path)
    second = released(run)
    assert np.array_equal(released(again(tmp_path)), second)
    assert_unrelated([first, second, released(begun(4))])
