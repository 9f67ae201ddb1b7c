"""Losses as users write them: each example's is what the loss would give for it alone."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.slow_gradients import slow_gradients
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.gradients.losses import apply_loss, differentiate_losses
from tacit.gradients.trace import OperationLog, OperationWatcher

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
    with torch.inference_mode(), pytest.raises(InvalidArgument, match="inference_mode"):
        per_example_gradients(model, F.cross_entropy, inputs, targets)
    with torch.inference_mode():
        inputs, made = inputs.clone(), nn.Linear(4, 3)
    for one, given in ((model, inputs), (made, torch.randn(6, 4))):
        with pytest.raises(InvalidArgument, match="inference_mode"):
            per_example_gradients(one, F.cross_entropy, given, targets)


def assert_same(found, expected):
    assert all(torch.equal(found[name], value) for name, value in expected.items())


SIZE, CLASSES = 34, 4
BAGS, CLASS = torch.randint(9, (SIZE, 3)), torch.randint(CLASSES, (SIZE,))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(9, 5), nn.Linear(5, CLASSES)

    def forward(self, tokens):
        return self.out(self.words(tokens).mean(1))


@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=2)])
def test_cross_entropy_by_hand_of_a_recorded_model_agrees_with_single_passes(loss):
    model = Bag()
    found = per_example_gradients(model, loss, BAGS, CLASS)
    bare = loss if loss is F.cross_entropy else nn.CrossEntropyLoss(ignore_index=loss.ignore_index, reduction="sum")
    expected = slow_gradients(model, bare, BAGS, CLASS)
    torch.testing.assert_close(found.norms(), expected.norms(), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(
        found.weighted_sum(torch.ones(SIZE)), expected.weighted_sum(torch.ones(SIZE)), atol=1e-5, rtol=1e-4
    )


def examined() -> OperationLog:
    """What plain cross-entropy does: one call."""
    log, scores = OperationLog(SIZE), torch.zeros(SIZE, CLASSES)
    with OperationWatcher(log.note):
        apply_loss(F.cross_entropy, scores, CLASS, SIZE)
    return log


def test_losses_and_gradients_by_hand_are_those_of_autograd():
    scores = (5 * torch.randn(SIZE, CLASSES)).requires_grad_()
    outputs = scores * 1.0
    edge = torch.autograd.graph.get_gradient_edge(outputs)
    values, (grad,) = differentiate_losses(F.cross_entropy, outputs, CLASS, SIZE, [edge], examined(), keeps_graph=False)
    assert values.grad_fn is None
    wanted = F.cross_entropy(scores, CLASS, reduction="none")
    torch.testing.assert_close(values, wanted.detach())
    torch.testing.assert_close(grad, torch.autograd.grad(wanted.sum(), scores)[0])


def test_a_class_below_zero_is_left_to_torch():
    outputs, targets = torch.randn(SIZE, CLASSES, requires_grad=True) * 1.0, CLASS.clone()
    targets[1] = -100
    edge = torch.autograd.graph.get_gradient_edge(outputs)
    values, (grad,) = differentiate_losses(
        F.cross_entropy, outputs, targets, SIZE, [edge], examined(), keeps_graph=False
    )
    assert values[1] == 0
    assert bool((grad[1] == 0).all())


def test_a_single_example_keeps_its_scores():
    """Seen from the side, one row of scores is one column of the same numbers: nothing may be computed in place."""
    outputs = torch.randn(1, CLASSES, requires_grad=True) * 1.0
    before = outputs.detach().clone()
    edge = torch.autograd.graph.get_gradient_edge(outputs)
    differentiate_losses(F.cross_entropy, outputs, CLASS[:1], 1, [edge], examined(), keeps_graph=False)
    assert torch.equal(outputs, before)


def test_a_loss_that_cannot_be_hashed_or_inspected_is_called_as_it_is():
    class Unhashable:
        __hash__ = None

        def __call__(self, outputs, targets, reduction="mean"):
            return F.cross_entropy(outputs, targets, reduction=reduction)

    outputs, targets = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 1])
    values, _, reduction = apply_loss(Unhashable(), outputs, targets, 3)
    assert reduction == "mean"
    assert torch.equal(values, F.cross_entropy(outputs, targets, reduction="none"))
    # Its signature is not known to Python.
    assert torch.equal(apply_loss(torch.sub, outputs, outputs, 3)[0], torch.zeros(3, 2))


def test_a_loss_that_returns_no_tensor_is_refused():
    with pytest.raises(InvalidArgument, match=r"must return a tensor. Got float"):
        apply_loss(lambda outputs, targets: 0.5, torch.zeros(3, 2), torch.zeros(3), 3)
