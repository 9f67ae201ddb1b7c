"""The gradient of cross-entropy by hand, for models whose layers are watched."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from support.slow_gradients import slow_gradients
from tacit.gradients import per_example_gradients
from tacit.gradients.entropy import losses_and_gradients
from tacit.gradients.losses import whole_losses
from tacit.gradients.sequence import Followed, Sequence

SIZE, CLASSES = 34, 4
X, Y = torch.randint(9, (SIZE, 3)), torch.randint(CLASSES, (SIZE,))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(9, 5), nn.Linear(5, CLASSES)

    def forward(self, tokens):
        return self.out(self.words(tokens).mean(1))


@pytest.mark.parametrize("loss", [cross_entropy, nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=2)])
def test_a_watched_model_agrees_with_single_passes(loss):
    model = Bag()
    found = per_example_gradients(model, loss, X, Y)
    bare = loss if loss is cross_entropy else nn.CrossEntropyLoss(ignore_index=loss.ignore_index, reduction="sum")
    expected = slow_gradients(model, bare, X, Y)
    torch.testing.assert_close(found.norms(), expected.norms(), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(
        found.weighted_sum(torch.ones(SIZE)), expected.weighted_sum(torch.ones(SIZE)), atol=1e-5, rtol=1e-4
    )


def examined() -> Sequence:
    """What plain cross-entropy does: one call."""
    sequence, scores = Sequence(SIZE), torch.zeros(SIZE, CLASSES)
    with Followed(sequence.note):
        whole_losses(cross_entropy, scores, Y, SIZE)
    return sequence


def test_losses_and_gradients_are_those_of_autograd():
    scores = (5 * torch.randn(SIZE, CLASSES)).requires_grad_()
    outputs = scores * 1.0
    edge = torch.autograd.graph.get_gradient_edge(outputs)
    values, (grad,) = losses_and_gradients(cross_entropy, outputs, Y, SIZE, [edge], examined(), is_proof=False)
    assert values.grad_fn is None
    wanted = cross_entropy(scores, Y, reduction="none")
    torch.testing.assert_close(values, wanted.detach())
    torch.testing.assert_close(grad, torch.autograd.grad(wanted.sum(), scores)[0])


def test_a_class_below_zero_is_left_to_torch():
    outputs, targets = torch.randn(SIZE, CLASSES, requires_grad=True) * 1.0, Y.clone()
    targets[1] = -100
    edge = torch.autograd.graph.get_gradient_edge(outputs)
    values, (grad,) = losses_and_gradients(cross_entropy, outputs, targets, SIZE, [edge], examined(), is_proof=False)
    assert values[1] == 0
    assert bool((grad[1] == 0).all())


def test_a_single_example_keeps_its_scores():
    """Seen from the side, one row of scores is one column of the same numbers: nothing may be computed in place."""
    outputs = torch.randn(1, CLASSES, requires_grad=True) * 1.0
    before = outputs.detach().clone()
    edge = torch.autograd.graph.get_gradient_edge(outputs)
    losses_and_gradients(cross_entropy, outputs, Y[:1], 1, [edge], examined(), is_proof=False)
    assert torch.equal(outputs, before)
