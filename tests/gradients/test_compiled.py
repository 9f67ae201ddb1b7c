"""Models under torch.compile: what is compiled cannot be watched, so it runs as it was written."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tacit.gradients import per_example_gradients

X, Y = torch.randn(5, 1, 8, 8), torch.randint(3, (5,))


def plain():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def norms(model):
    return per_example_gradients(model, cross_entropy, X, Y).norms()


def test_a_compiled_model_has_the_gradients_of_the_plain_one():
    assert torch.allclose(norms(torch.compile(plain(), backend="eager")), norms(plain()))


def test_so_has_one_that_was_compiled_in_place_or_in_part():
    whole, part = plain(), plain()
    whole.compile(backend="eager")
    part[0] = torch.compile(part[0], backend="eager")
    assert torch.allclose(norms(whole), norms(plain()))
    assert torch.allclose(norms(part), norms(plain()))


@pytest.mark.slow
def test_compiled_code_is_left_as_it_was():
    model = torch.compile(plain(), backend="eager")
    before = model(X)
    norms(model)
    assert torch.equal(model(X), before)
