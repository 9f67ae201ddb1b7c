"""Views of one example: averaged before they are clipped, so one contribution, whatever their number."""

import pytest
import torch
from torch.nn import functional as F

import tacit
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.gradients.views import Shifts, Views
from tacit.stages.bounds import Clip

torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(48, 2))
IMAGES, LABELS = torch.randn(7, 1, 6, 6), torch.randint(2, (7,))


def in_turn(*shifts):
    """Another shift at every call, round and round."""
    state = {"next": 0}

    def augment(images):
        shift = shifts[state["next"] % len(shifts)]
        state["next"] += 1
        return torch.roll(images, shift, -1)

    return augment


def test_gradients_are_the_means_of_those_of_the_views():
    found = Views(in_turn(0, 1, 2), 3)(MODEL, F.cross_entropy, IMAGES, LABELS)
    singles = [
        per_example_gradients(MODEL, F.cross_entropy, torch.roll(IMAGES, shift, -1), LABELS).dense()
        for shift in range(3)
    ]
    for name, value in found.dense().items():
        assert torch.allclose(value, sum(single[name] for single in singles) / 3, atol=1e-6)
    whole = torch.cat([value.flatten(1) for value in found.dense().values()], 1)
    assert torch.allclose(found.norms(), whole.norm(dim=1), atol=1e-6)


class Words(torch.nn.Module):
    """A table that is looked up, with weights by place, and a layer that may be the same table."""

    def __init__(self, is_tied):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(30, 20), torch.nn.Linear(20, 30, bias=False)
        if is_tied:
            self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head((self.table(tokens) * torch.linspace(-1, 1, 6)[:, None]).sum(1))


@pytest.mark.parametrize("is_tied", [False, True])
def test_gradients_of_tables_and_wide_layers_are_means_too(is_tied):
    model, tokens, labels = Words(is_tied), torch.randint(30, (5, 6)), torch.randint(30, (5,))
    found = Views(in_turn(0, 1), 2)(model, F.cross_entropy, tokens, labels)
    for index in range(5):
        both = torch.stack([tokens[index], torch.roll(tokens[index], 1)])
        loss = F.cross_entropy(model(both), labels[index].repeat(2))
        single = torch.autograd.grad(loss, list(model.parameters()))
        for (name, _), gradient in zip(model.named_parameters(), single, strict=True):
            assert torch.allclose(found.dense()[name][index], gradient, atol=1e-6)
            assert torch.allclose(found.layer_norms()[name][index], gradient.norm(), rtol=1e-4)


def test_shifted_images_are_moved_each_by_itself_and_nothing_comes_round():
    torch.manual_seed(1)
    images = torch.zeros(300, 2, 5, 7)
    images[:, :, 2, 3] = torch.tensor([1.0, 2.0])
    views = Shifts(1)(images)
    assert torch.equal(views.sum((2, 3)), images.sum((2, 3)))
    places = {tuple(place.tolist()) for place in views[:, 0].nonzero()[:, 1:]}
    assert places == {(row, column) for row in (1, 2, 3) for column in (2, 3, 4)}
    # Both channels of an image move together.
    assert torch.equal(views[:, 1], 2 * views[:, 0])
    assert float(Shifts(2)(torch.ones(50, 1, 3, 3)).mean()) < 1
    with pytest.raises(InvalidArgument, match="pixels"):
        Shifts(0)


def test_one_example_moves_the_clipped_sum_by_at_most_the_clip_norm():
    clip = Clip(0.01)
    whole = clip.sum(Views(in_turn(0, 1, 2, 3), 4)(MODEL, F.cross_entropy, IMAGES, LABELS), {})
    for left in range(7):
        kept = [i for i in range(7) if i != left]
        less = clip.sum(Views(in_turn(0, 1, 2, 3), 4)(MODEL, F.cross_entropy, IMAGES[kept], LABELS[kept]), {})
        moved = torch.cat([(whole.values[name] - less.values[name]).flatten() for name in whole.values])
        assert float(moved.norm()) <= 0.01 * (1 + 1e-5)
        assert whole.sensitivity == 0.01


def test_a_run_takes_views_and_costs_the_same():
    def guarantee(**views):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 2))
        run = tacit.PrivateRun(
            model,
            F.cross_entropy,
            data=(IMAGES, LABELS),
            mechanism=tacit.methods.dpsgd(clip_norm=1.0, multiplier=1.0),
            sampling=tacit.Poisson(lot_size=3, population=7),
            steps=4,
            seed=0,
            **views,
        )
        for lot in run:
            run.release(lot)
        return run.guarantee()

    plain, seen = guarantee(), guarantee(gradients=Views(in_turn(0, 1), 2))
    assert seen.event == plain.event


def test_a_view_too_few_is_refused():
    with pytest.raises(InvalidArgument, match="one view for each example"):
        Views(lambda images: images[1:], 2)(MODEL, F.cross_entropy, IMAGES, LABELS)
    with pytest.raises(InvalidArgument, match="count"):
        Views(torch.clone, 0)
