"""Losses as users write them: each example's is what the loss would give for it alone."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slow_gradients import slow_gradients
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
