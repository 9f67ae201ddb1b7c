"""A rule for another layer is one file: it is registered from outside of the package, and then used."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.slow_gradients import slow_gradients
from tacit.gradients import per_example_gradients
from tacit.gradients.contributions import DenseContribution
from tacit.gradients.rules import RULES, rule

X, Y = torch.randn(40, 6), torch.randint(3, (40,))


@pytest.fixture
def prelu():
    """Registers a rule for this test alone."""
    assert F.prelu not in RULES
    yield rule(F.prelu)
    del RULES[F.prelu]


def assert_agrees(model):
    found, expected = (make(model, F.cross_entropy, X, Y) for make in (per_example_gradients, slow_gradients))
    torch.testing.assert_close(found.norms(), expected.norms())
    torch.testing.assert_close(found.dense(), expected.dense())


def make_model():
    return nn.Sequential(nn.Linear(6, 5), nn.PReLU(5), nn.Linear(5, 3))


def test_a_rule_from_outside_is_used(prelu):
    used = []

    @prelu
    def slopes(call, grads, front):
        x, weight = call.args
        used.append(call.function)
        return {id(weight): DenseContribution(grads * front(x.detach()).clamp_max(0.0))}

    assert_agrees(make_model())
    assert used


def test_a_wrong_rule_from_outside_is_found_out(prelu):
    """The first lot checks every rule against autograd; the model is then treated as a whole."""

    @prelu
    def ones(call, grads, front):
        return {id(call.args[1]): DenseContribution(torch.ones_like(grads))}

    assert_agrees(make_model())
