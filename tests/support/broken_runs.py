"""Audits of DP-SGD, done right and with one thing wrong: for the controls, and for how often each of them succeeds."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional as F

from support.broken_stages import ForgottenNoise, HalvedNoise, InOrder, SkippedClip
from tacit.accounting import Gaussian, curve
from tacit.audit import AuditReport, ManyRuns, Training, audit, audit_training
from tacit.audit.given import Releases
from tacit.methods import dpsgd
from tacit.stages.mechanism import Mechanism
from tacit.stages.sampling import FullBatch, Poisson
from tacit.types import Sampling

DELTA = 1e-5
RIGHT = dpsgd(clip_norm=1.0, multiplier=1.0)
FORGOTTEN = replace(RIGHT, noise=ForgottenNoise(1.0))
HALVED = replace(RIGHT, noise=HalvedNoise(1.0))
SKIPPED = replace(RIGHT, bound=SkippedClip(1.0))
IN_ORDER, POISSON = InOrder(2, 40), Poisson(2, 40)


def white_box(mechanism: Mechanism, seed: int = 0) -> AuditReport:
    """1,000 gradient canaries among 1,000 examples, 300 steps at rate 0.02."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(60, 30)
    data = (torch.randn(1000, 60), torch.randint(30, (1000,)))
    training = Training(
        model,
        F.cross_entropy,
        data,
        mechanism,
        Poisson(20, 1000),
        300,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    )
    return audit_training(training, delta=DELTA, canaries=1000, seed=seed)


def transcript(sampling: Sampling, runs: int = 320, seed: int = 0) -> AuditReport:
    """All releases of one epoch on forty examples whose gradients are short; one more is as long as the clip norm."""
    releases = Releases(dpsgd(clip_norm=1.0, multiplier=0.8), sampling, steps=20)
    rows = 0.01 * np.random.default_rng(0).normal(size=(40, 1))
    attack = ManyRuns(runs, example=(np.array([5.0]), 0.0), seed=seed)
    return audit(releases, (rows, np.zeros(40)), delta=DELTA, attack=attack, proven=curve(releases.event(1)))


def by_the_data(data: tuple) -> int:
    """What a sum must not be divided by."""
    return len(data[0])


def by_a_constant(data: tuple) -> int:
    """What it may be divided by."""
    return 20


def normalised(count: Callable[[tuple], int], seed: int = 0) -> AuditReport:
    """One full batch of twenty examples and 3,000 parameters with ample noise, divided by something."""
    releases = Releases(dpsgd(clip_norm=1.0, multiplier=20.0), FullBatch(population=20), steps=1)
    rows = np.zeros((20, 3000))
    rows[:, 0] = 0.5
    attack = ManyRuns(120, example=(rows[0], 0.0), seed=seed)

    def train(data: tuple) -> torch.Tensor:
        return releases(data) * 20 / count(data)

    return audit(train, (rows, np.zeros(20)), delta=DELTA, attack=attack, proven=curve(Gaussian(20.0)))
