"""What somebody new to it gets wrong, and whether the sentence that comes back says so."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.errors import InvalidArgument, OutOfOrder

X, Y = torch.randn(20, 3), torch.randint(2, (20,))


def run(model=None, loss=cross_entropy, **changes):
    settings = {
        "data": (X, Y),
        "mechanism": tacit.methods.dpsgd(clip_norm=1.0, multiplier=1.0),
        "sampling": tacit.Poisson(lot_size=20, population=20),
        "steps": 2,
    }
    return tacit.PrivateRun(model or nn.Linear(3, 2), loss, **settings | changes)


def train(**changes):
    training = run(**changes)
    for lot in training:
        training.release(lot)
    return training


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"budget": 3.0}, r"budget must be one such as Budget\(epsilon=3, delta=1e-5\). Got 3.0"),
        ({"schedule": [1, 1]}, r"schedule must be one such as Schedule\(.*\). Got \[1, 1\]"),
        ({"loss": "cross_entropy"}, "loss must be a function .* Got 'cross_entropy'"),
        ({"model": nn.Linear}, "model must be a torch.nn.Module. Got <class"),
        ({"data": X}, "data must be a pair .* Got a Tensor"),
        ({"data": "mnist"}, "data must be a pair .* Got a str"),
        ({"data": {"x": X, "y": Y}}, "none of them says what to predict"),
        ({"data": (X.tolist(), Y.tolist())}, "made of tensors or arrays. Got a float"),
        ({"data": (X, torch.tensor(1))}, "one row per example in every tensor. Got a single number"),
        ({"data": (X, Y, Y)}, r"item of the data set must be a pair \(input, target\).* Got a Tensor"),
        ({"data": [(x, y, y) for x, y in zip(X, Y, strict=True)]}, "must be a pair .* Got a tuple of 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_wrong_argument_is_named(changes, sentence):
    with pytest.raises(InvalidArgument, match=sentence):
        train(**changes)


def test_something_that_is_no_lot_is_refused():
    training = run()
    with pytest.raises(OutOfOrder, match=r"backward needs the lot .* Got <class 'tuple'>"):
        training.backward((X, Y))


def test_a_model_that_was_frozen_on_the_way_is_refused():
    training = run()
    training.model.requires_grad_(False)
    with pytest.raises(InvalidArgument, match="All parameters were frozen"):
        training.backward(next(iter(training)))


def test_a_parameter_that_is_a_single_number_is_trained():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.scale = nn.Linear(3, 2), nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            return self.head(x) * self.scale

    training = run(model=Scaled())
    gradient = training.release(next(iter(training)))["scale"]
    assert gradient.shape == ()
    assert gradient != 0
