"""The loss that a model computes itself: which form it has, and what is said where no form is known."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit.errors import InvalidArgument
from tacit.gradients.model_loss import add_decoder_inputs, find_model_loss, lose_binary, lose_span, lose_square

INPUTS = {"rows": torch.randn(3, 4, generator=torch.Generator().manual_seed(0))}
NUMBERS = torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
SPANS = {"start_positions": torch.tensor([0, 2, 4]), "end_positions": torch.tensor([1, 3, 4])}


class Scores(nn.Module):
    """Two numbers a row, and a loss of them by the function given."""

    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.loss = nn.Linear(4, 2), loss

    def forward(self, rows, labels=None):
        logits = self.layer(rows)
        return SimpleNamespace(logits=logits, loss=None if labels is None else self.loss(logits, labels))


class Spans(nn.Module):
    """Where an answer starts and ends, with the mean of both cross-entropies."""

    def __init__(self, has_ends=True):
        super().__init__()
        torch.manual_seed(0)
        self.starts, self.ends, self.has_ends = nn.Linear(4, 5), nn.Linear(4, 5), has_ends

    def forward(self, rows, start_positions=None, end_positions=None):
        start, end, loss = self.starts(rows), self.ends(rows), None
        if start_positions is not None:
            loss = (F.cross_entropy(start, start_positions) + F.cross_entropy(end, end_positions)) / 2
        return SimpleNamespace(start_logits=start, end_logits=end if self.has_ends else None, loss=loss)


@pytest.mark.parametrize(
    ("own", "form"), [(F.mse_loss, lose_square), (F.binary_cross_entropy_with_logits, lose_binary)]
)
def test_the_loss_of_numbers_is_found_and_is_that_of_each_example(own, form):
    model = Scores(own)
    found = find_model_loss(model, INPUTS, NUMBERS)
    assert found is form
    alone = [own(model(row).logits, wanted) for row, wanted in zip(INPUTS["rows"], NUMBERS, strict=True)]
    assert torch.allclose(found(model(**INPUTS), NUMBERS), torch.stack(alone))


def test_the_loss_of_spans_is_found_and_is_that_of_each_example():
    model = Spans()
    found = find_model_loss(model, INPUTS, SPANS)
    assert found is lose_span
    alone = [
        model(INPUTS["rows"][at : at + 1], *(value[at : at + 1] for value in SPANS.values())).loss for at in range(3)
    ]
    assert torch.allclose(found(model(**INPUTS), SPANS), torch.stack(alone))


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (Spans(has_ends=False), SPANS),
        (Scores(lambda logits, labels: logits.sum()), torch.zeros(3, 5)),
        (Scores(lambda logits, labels: logits.sum()), torch.zeros(3, 2, 2, dtype=torch.long)),
    ],
)
def test_a_loss_of_labels_that_no_form_fits_is_refused(model, targets):
    with pytest.raises(InvalidArgument, match=r"cannot be computed per example"):
        find_model_loss(model, INPUTS, targets)


def test_a_model_without_a_loss_of_one_number_is_refused():
    with pytest.raises(InvalidArgument, match=r"returns its loss as one number"):
        find_model_loss(Scores(lambda logits, labels: logits), INPUTS, NUMBERS)


def test_inputs_without_names_are_refused():
    with pytest.raises(InvalidArgument, match=r"named inputs and labels.*Tensor"):
        find_model_loss(Scores(F.mse_loss), INPUTS["rows"], NUMBERS)


def test_the_inputs_of_a_decoder_are_made_from_the_labels_only_if_they_are_not_given():
    model = nn.Module()
    model._shift_right = lambda labels: labels - 1
    assert torch.equal(add_decoder_inputs(model, INPUTS, NUMBERS)["decoder_input_ids"], NUMBERS - 1)
    given = {**INPUTS, "decoder_input_ids": NUMBERS}
    assert add_decoder_inputs(model, given, NUMBERS) is given


def test_a_model_without_scores_has_no_known_loss():
    class Silent(Scores):
        def forward(self, rows, labels=None):
            return SimpleNamespace(loss=self.layer(rows).mean())

    with pytest.raises(InvalidArgument, match=r"cannot be computed per example"):
        find_model_loss(Silent(None), INPUTS, torch.tensor([0, 1, 1]))
