"""A small model, small data, and runs over them."""

import torch
from torch.nn.functional import cross_entropy

import tacit
from support.slow_gradients import slow_gradients
from tacit import methods
from tacit.randomness import Purpose, SeededSource
from tacit.stages.bounds import Clip
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

N, FEATURES, CLASSES = 200, 5, 3
INPUTS = torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(CLASSES, (N,), generator=torch.Generator().manual_seed(1))


def small_model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 4), torch.nn.Tanh(), torch.nn.Linear(4, CLASSES))


def small_run(model=None, **changes):
    settings = {
        "data": (INPUTS, TARGETS),
        "mechanism": methods.dpsgd(clip_norm=0.5, multiplier=1.1),
        "sampling": tacit.Poisson(lot_size=20, population=N),
        "steps": 5,
        "seed": 0,
    }
    return tacit.PrivateRun(model or small_model(), cross_entropy, **settings | changes)


def train(run, steps=None, lr=0.5):
    optimizer = torch.optim.SGD(run.model.parameters(), lr=lr)
    for lot in run:
        run.backward(lot)
        optimizer.step()
        if steps is not None and run.step >= steps:
            break
    return weights(run.model)


def weights(model):
    return torch.cat([p.detach().flatten().double() for p in model.parameters()])


def gradients_in(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def noise_of(step, like, multiplier, clip_norm, seed=0):
    """The noise that a seeded run draws at a step, from the stage itself."""
    empty = BoundedSum({name: torch.zeros_like(value) for name, value in like.items()}, clip_norm)
    return GaussianNoise(multiplier).add(empty, SeededSource(seed).stream(Purpose.NOISE, step))


def assert_noisy_mean(run, lot, multiplier, lot_size, clip_norm=0.5):
    """What `run.backward` releases of its first lot: the clipped sum of a slow loop, its noise, over the lot size."""
    expected = Clip(clip_norm).sum(slow_gradients(run.model, cross_entropy, lot.inputs, lot.targets), {}).values
    noise, grid = noise_of(0, expected, multiplier, clip_norm), multiplier * clip_norm / 2**5
    run.backward(lot)
    for name, value in gradients_in(run.model).items():
        wanted = (expected[name] + noise[name]) / lot_size
        torch.testing.assert_close(value, wanted, atol=grid / lot_size, rtol=1e-5)
