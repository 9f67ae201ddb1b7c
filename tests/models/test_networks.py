"""Networks that take noise well: their units, their size, and that no example has a say in another's gradient."""

import pytest
import torch
from torch.nn import functional as F

from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.models import make_own_model
from tacit.models.networks import Reviews, Tempered, standardised, tempered_cnn


def test_tempered_units_are_bounded_and_scaled():
    unit = Tempered(scale=2.0, slope=0.5)
    assert float(unit(torch.tensor(1e9))) == pytest.approx(2.0)
    assert float(unit(torch.tensor(0.3))) == pytest.approx(2 * torch.tanh(torch.tensor(0.15)).item())
    with pytest.raises(InvalidArgument, match="slope"):
        Tempered(slope=0)


@pytest.mark.parametrize(("groups", "is_standardised"), [(0, False), (4, False), (4, True)])
def test_gradients_are_those_of_single_passes(groups, is_standardised):
    torch.manual_seed(0)
    model = tempered_cnn((1, 16, 16), 3, slope=0.7, groups=groups, is_standardised=is_standardised)
    images, labels = torch.randn(3, 1, 16, 16), torch.tensor([0, 1, 2])
    found = per_example_gradients(model, F.cross_entropy, images, labels).dense()
    for index in range(3):
        loss = F.cross_entropy(model(images[index : index + 1]), labels[index : index + 1])
        single = torch.autograd.grad(loss, list(model.parameters()))
        for (name, _), gradient in zip(model.named_parameters(), single, strict=True):
            assert torch.allclose(found[name][index], gradient, atol=1e-5)


def test_without_a_hidden_layer_scores_are_linear_in_what_filters_see():
    model = tempered_cnn((1, 28, 28), 10, groups=4, hidden=0)
    assert [tuple(layer.weight.shape) for layer in model if isinstance(layer, torch.nn.Linear)] == [(10, 512)]
    with pytest.raises(InvalidArgument, match="hidden"):
        tempered_cnn((1, 28, 28), 10, hidden=-1)


def test_images_that_are_too_small_are_refused():
    with pytest.raises(InvalidArgument, match="at least 12 x 12"):
        tempered_cnn((1, 8, 8), 10)


def test_standardised_filters_need_a_normalisation_behind_them():
    with pytest.raises(InvalidArgument, match="groups must be 1 or more"):
        tempered_cnn((1, 28, 28), 10, is_standardised=True)


def test_standardised_filters_are_the_same_at_any_length_and_offset():
    plain = torch.nn.Conv2d(2, 3, 4)
    shifted = torch.nn.Conv2d(2, 3, 4)
    shifted.load_state_dict({"weight": 5 * plain.weight + 7, "bias": plain.bias})
    images = torch.randn(2, 2, 9, 9)
    assert torch.allclose(standardised(plain)(images), standardised(shifted)(images), atol=1e-4)


def test_only_layers_with_a_matrix_can_be_standardised():
    for layer in (torch.nn.GroupNorm(2, 4), torch.nn.Tanh()):
        with pytest.raises(InvalidArgument, match="two dimensions"):
            standardised(layer)


def test_reviews_are_scored_by_the_mean_of_their_words():
    torch.manual_seed(0)
    model, words = Reviews(9, 2), torch.randint(9, (3, 5))
    assert torch.allclose(model(words), model(words.flip(1)), atol=1e-6)
    expected = model.layers(torch.stack([model.embedding.weight[each].mean(0) for each in words]))
    assert torch.allclose(model(words), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [("net.txt", "", "is not a Python file"), ("net.py", "1 / 0", "cannot be run: ZeroDivisionError")],
)
def test_a_file_that_defines_no_model_is_refused_with_the_reason(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidArgument, match=words):
        make_own_model(f"{tmp_path / name}:make", (4,), 2)
