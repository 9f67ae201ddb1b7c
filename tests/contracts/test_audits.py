"""One suite over every proven method: an attack that sees all that is released does not contradict what is proven.

Each audit makes 60 runs on each of two neighbouring data sets, which differ in an example as long as one can be, and
is wrong with a probability of 1 % at most; seeds are fixed. The same trials are rows of `tacit audit --claims`, with
400 runs; refuted methods are broken in tests/audit/test_fixtures.py. A new method gets this test by being listed there.
"""

import pytest

from tacit.audit import Verdict
from tacit.audit.fixtures import gradient, linear

TRIALS = {str(trial.fixture()): trial for trial in (*gradient.TRIALS, *linear.TRIALS)}
# Its published noise takes ten seconds to find: once is enough, in tacit audit --claims.
SLOW = {"encoded (paper)"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TRIALS.keys() - SLOW))
def test_an_attack_does_not_contradict_what_is_proven(name):
    report = TRIALS[name].run(runs=60)
    assert report.verdict is Verdict.STANDS, str(report)
    assert report.finding.bound.epsilon <= report.proven


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dpsgd", "objective_perturbation, without delta", "gradient_perturbation, one pass"])
def test_the_attack_is_not_blind(name):
    assert TRIALS[name].run(runs=240).finding.gaussian.epsilon > 0.5
