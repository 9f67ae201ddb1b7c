"""Losses as users write them: each example's is what the loss would give for it alone."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.slow_gradients import slow_gradients
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients

TOKENS = torch.randint(9, (5, 7), generator=torch.Generator().manual_seed(0))
# As where sentences are of different lengths; the first is full, and the last has one word.
IGNORED = torch.where(torch.arange(7) < torch.tensor([7, 3, 5, 2, 1])[:, None], TOKENS.roll(1, 1), -100)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.scores = nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scores(self.table(tokens).cumsum(1)).transpose(1, 2)


def assert_as_alone(model, loss, inputs, targets):
    found = per_example_gradients(model, loss, inputs, targets).dense()
    for name, rows in slow_gradients(model, loss, inputs, targets).dense().items():
        torch.testing.assert_close(found[name], rows)


@pytest.mark.parametrize(
    "loss",
    [
        F.cross_entropy,
        functools.partial(F.cross_entropy, label_smoothing=0.1),
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(label_smoothing=0.1),
    ],
)
def test_words_to_be_ignored_do_not_count(loss):
    assert_as_alone(Words().double(), loss, TOKENS, IGNORED)


def test_any_word_can_be_the_one_to_be_ignored():
    targets = torch.where(IGNORED < 0, 4, IGNORED)
    assert_as_alone(Words().double(), nn.CrossEntropyLoss(ignore_index=4), TOKENS, targets)


def test_an_example_with_nothing_but_ignored_words_adds_nothing():
    targets = IGNORED.clone()
    targets[2] = -100
    found = per_example_gradients(Words(), F.cross_entropy, TOKENS, targets).dense()
    longest = torch.stack([rows.flatten(1).abs().amax(1) for rows in found.values()]).amax(0)
    assert torch.equal(longest > 0, torch.tensor([True, True, False, True, True]))


def test_a_loss_that_cannot_be_vectorised_is_taken_example_by_example():
    def loss(output: Tensor, target: Tensor) -> Tensor:
        # Torch's looks whether a variance is below zero.
        return F.gaussian_nll_loss(output, target, torch.ones_like(output))

    assert_as_alone(nn.Linear(4, 3).double(), loss, torch.randn(6, 4).double(), torch.randn(6, 3).double())


def detached(outputs, targets):
    return F.cross_entropy(outputs.detach(), targets)


def mistakes(outputs, targets):
    return outputs.argmax(1) != targets


def nothing(outputs, targets):
    return torch.tensor(0.0)


class ByRows(nn.Module):
    """Examples that only torch.func can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row @ self.weight for row in x])


class Cut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


class Blocked(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x)


@pytest.mark.parametrize(
    ("build", "loss"),
    [
        *((build, loss) for build in (lambda: nn.Linear(4, 3), ByRows) for loss in (detached, mistakes, nothing)),
        (lambda: nn.Sequential(nn.Linear(4, 3), Cut()), nn.CrossEntropyLoss()),
        (lambda: Blocked(4, 3), F.cross_entropy),
    ],
)
def test_a_loss_that_no_parameter_leads_to_is_refused(build, loss):
    with pytest.raises(InvalidArgument, match="no example depends on a trainable parameter"):
        per_example_gradients(build(), loss, torch.randn(6, 4), torch.arange(6) % 3)


class Cases(nn.Module):
    """Negative examples are nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row @ self.weight if bool(row[0] > 0) else row.sum() for row in x])


def test_an_example_whose_loss_is_a_constant_adds_nothing():
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    found = per_example_gradients(Cases(), F.mse_loss, inputs, torch.zeros(6)).dense()["weight"]
    expected = torch.where(inputs[:, :1] > 0, 2 * inputs.sum(1, keepdim=True) * inputs, 0.0)
    torch.testing.assert_close(found, expected)


def test_gradients_are_refused_in_inference_mode_and_taken_without_grad():
    model, inputs, targets = nn.Linear(4, 3), torch.randn(6, 4), torch.arange(6) % 3
    expected = per_example_gradients(model, F.cross_entropy, inputs, targets).dense()
    with torch.no_grad():
        assert_same(per_example_gradients(model, F.cross_entropy, inputs, targets).dense(), expected)
    with torch.inference_mode(), pytest.raises(InvalidArgument, match="inference_mode keeps no record"):
        per_example_gradients(model, F.cross_entropy, inputs, targets)
    with torch.inference_mode():
        inputs, made = inputs.clone(), nn.Linear(4, 3)
    for one, given in ((model, inputs), (made, torch.randn(6, 4))):
        with pytest.raises(InvalidArgument, match="inference_mode keeps no record"):
            per_example_gradients(one, F.cross_entropy, given, targets)


def assert_same(found, expected):
    assert all(torch.equal(found[name], value) for name, value in expected.items())
