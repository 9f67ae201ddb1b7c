"""Neighbouring lots: how their releases and what they leave behind are compared, and which data are taken."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit.audit.neighbour_trials import Released, Trial, as_rows, draw_rows, vary_rows
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients


def released(sums=1, **left):
    return Released(torch.zeros(2, sums), left, torch.zeros(2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (np.zeros(2), np.ones(2)),
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.zeros(2).double()),
        (torch.tensor([1]), torch.tensor([2])),
        (SimpleNamespace(mean=1.0), SimpleNamespace(mean=2.0)),
        ({"last": [1]}, {"last": [2]}),
    ],
)
def test_values_that_differ_are_named(one, other):
    assert released(last=one, same=3).changes(released(last=other, same=3)) == ("last",)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(2), np.full(2, 1e-9)),
        (SimpleNamespace(mean=1.0), SimpleNamespace(mean=1.0 + 1e-9)),
        # Deeper than attributes are followed.
        ([[[[[1]]]]], [[[[[2]]]]]),
    ],
)
def test_values_that_are_equal_up_to_rounding_or_too_deep_are_not_named(one, other):
    assert released(last=one).changes(released(last=other)) == ()


def test_sums_of_different_lengths_are_infinitely_far_apart():
    assert released(1).distances(released(2)).tolist() == [np.inf, np.inf]
    assert not released(1).is_same_release(released(2))


class Fails(nn.Linear):
    """Fails on an example that is not finite."""

    def forward(self, rows):
        if not rows.isfinite().all():
            raise self.error
        return super().forward(rows)


@pytest.mark.parametrize(("error", "kind"), [(InvalidArgument("no NaN"), "made NaN"), (KeyError("no NaN"), None)])
def test_an_example_is_made_nan_only_where_the_model_refuses_or_ignores_it(error, kind):
    def make():
        model = Fails(3, 2)
        model.error = error
        return model, F.cross_entropy

    trial = Trial(make, 1.0, 1, 0, None, 4, per_example_gradients)
    found = {each for each, _, _ in vary_rows(trial, (torch.ones(4, 3), torch.zeros(4).long()), 1, is_random=False)}
    assert found == {"removed", *([kind] if kind else [])}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: as_rows(iter([1]), 3), "a data set with a length"),
        (lambda: as_rows(("words", torch.zeros(2)), 3), "made of tensors or arrays. Got a str"),
        (lambda: draw_rows((torch.zeros(2), torch.zeros(2)), 3, 0), "Got 3, and 2 examples"),
    ],
)
def test_data_that_cannot_be_tested_are_refused(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()
