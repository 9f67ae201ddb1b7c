"""The strongest attack on correlated noise: it undoes the correlation and adds up what the canary did in its steps.

Every statement of `distinguish` is wrong with a probability of 1 % at most; seeds are fixed.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import linalg

from tacit.accounting import calibrate, curve
from tacit.audit import Training, audit_training
from tacit.audit.given import Releases
from tacit.audit.statistics import distinguish
from tacit.methods import dpsgd
from tacit.stages.more_samplings import CyclicPoisson
from tacit.stages.noise.banded import BandedNoise

STEPS, BANDS, DELTA, RUNS = 8, 2, 1e-3, 240
# Each example takes its turn for certain, so there is nothing to gain from sampling.
LOTS = CyclicPoisson(1, 2, groups=BANDS)


@dataclass(frozen=True)
class EveryGroupAtOnce(CyclicPoisson):
    """A planted bug: an example is in every lot, and its steps are charged as if they were apart."""

    def lot(self, n, rng, step=0):
        return np.arange(n)


def mechanism(multiplier):
    return dpsgd(1.0, multiplier, noise="banded", bands=BANDS)


def multiplier_for(epsilon):
    return calibrate(lambda z: Releases(mechanism(z), LOTS, STEPS).event(1), epsilon=epsilon, delta=DELTA)


def undone(releases, with_canary):
    """C times the releases, over the noise: what is left is the canary's columns and independent noise."""
    noise = releases.mechanism.noise
    column = np.zeros(STEPS)
    column[:BANDS] = noise.coefficients
    strategy = linalg.toeplitz(column, np.zeros(STEPS))
    rows = np.ones((1, 1)) if with_canary else np.zeros((0, 1))
    found = np.stack([releases((rows, None)).numpy().ravel() for _ in range(RUNS)])
    return found @ strategy.T / noise.multiplier, strategy


def attack(sampling, epsilon, score):
    torch.manual_seed(0)
    releases = Releases(mechanism(multiplier_for(epsilon)), sampling, STEPS)
    proven = curve(releases.event(1))
    members, strategy = undone(releases, True)
    others, _ = undone(releases, False)
    scores = (score(side, strategy) for side in (members, others))
    return distinguish(*scores, delta=DELTA, proven=proven)


def project_turns(found, strategy):
    """The largest projection on what a group's turns add up to."""
    turns = np.stack([strategy[:, group::BANDS].sum(axis=1) for group in range(BANDS)])
    return (found @ turns.T).max(axis=1)


def project_all_steps(found, strategy):
    return found @ strategy.sum(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_canary_does_not_contradict_what_is_proven(epsilon):
    found = attack(LOTS, epsilon, project_turns)
    assert not found.contradicts
    assert found.bound.epsilon <= epsilon


@pytest.mark.slow
def test_the_attack_is_not_blind():
    assert attack(LOTS, 8.0, project_turns).gaussian.epsilon > 3


@pytest.mark.slow
def test_steps_that_are_not_kept_apart_are_found_out():
    assert attack(EveryGroupAtOnce(1, 2, groups=BANDS), 8.0, project_all_steps).contradicts


@pytest.mark.slow
def test_noise_used_twice_is_found_out(monkeypatch):
    right, first = BandedNoise.advance, {}

    def reuse(self, past, fresh, step):
        if step == 0:
            first["of this run"] = fresh
        return right(self, past, first["of this run"], step)

    monkeypatch.setattr(BandedNoise, "advance", reuse)
    assert attack(LOTS, 8.0, lambda found, _: np.abs(found[:, 0] - found[:, 1])).contradicts


def reuse_with_the_wrong_sign(monkeypatch):
    """A planted bug: every other step's draw is that of the step before, with the wrong sign."""
    right, before = BandedNoise.advance, {}

    def wrong(self, past, fresh, step):
        before[step] = -before[step - 1] if step % 2 else fresh
        return right(self, past, before[step], step)

    monkeypatch.setattr(BandedNoise, "advance", wrong)


@pytest.mark.slow
def test_noise_of_a_past_step_reused_with_the_wrong_sign_is_found_out_by_many_runs(monkeypatch):
    reuse_with_the_wrong_sign(monkeypatch)
    assert attack(LOTS, 8.0, lambda found, _: np.abs(found[:, 0] + found[:, 1])).contradicts


def audited(epsilon, steps=16):
    """One run with gradient canaries, each of which takes its turn in every other step for certain."""
    sampling = CyclicPoisson(20, 40, groups=2)
    multiplier = calibrate(
        lambda z: Releases(dpsgd(1.0, z, noise="banded", bands=2), sampling, steps).event(1),
        epsilon=epsilon,
        delta=DELTA,
    )
    torch.manual_seed(0)
    training = Training(
        torch.nn.Linear(200, 50),
        torch.nn.functional.cross_entropy,
        (torch.randn(40, 200), torch.randint(50, (40,))),
        dpsgd(1.0, multiplier, noise="banded", bands=2),
        sampling,
        steps,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.0),
    )
    return audit_training(training, delta=DELTA, canaries=1000, confidence=0.99, share=0.3, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_canaries_in_one_run_do_not_contradict_what_is_proven(epsilon):
    report = audited(epsilon)
    assert not report.finding.contradicts
    assert report.finding.bound.epsilon <= report.proven <= epsilon
    # The attack is not blind.
    assert epsilon < 8 or report.finding.gaussian.epsilon > 3


@pytest.mark.slow
def test_noise_reused_with_the_wrong_sign_is_found_out_in_one_run(monkeypatch):
    reuse_with_the_wrong_sign(monkeypatch)
    assert audited(1.0, steps=64).finding.contradicts
