"""Small perceptrons are computed by hand, in numpy, and must agree with single passes."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, l1_loss, mse_loss

from support.slow_gradients import slow_gradients
from tacit.errors import InvalidArgument
from tacit.gradients import in_pieces, per_example_gradients
from tacit.gradients.perceptrons import find_chain

SIZE, FEATURES, CLASSES = 40, 6, 3
X, Y = torch.randn(SIZE, FEATURES), torch.randint(CLASSES, (SIZE,))


def deep(activation=nn.ReLU, bias=True):
    return nn.Sequential(
        nn.Linear(FEATURES, 5, bias=bias), activation(), nn.Linear(5, 4, bias=bias), nn.Tanh(), nn.Linear(4, CLASSES)
    )


def frozen(*names):
    model = deep()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in names)
    return model


def ending_in_an_activation():
    return nn.Sequential(nn.Tanh(), nn.Linear(FEATURES, CLASSES), nn.ReLU())


MODELS = {
    "logistic": lambda: nn.Linear(FEATURES, CLASSES),
    "without bias": lambda: nn.Linear(FEATURES, CLASSES, bias=False),
    "relu": deep,
    "tanh": lambda: deep(nn.Tanh),
    "sigmoid": lambda: deep(nn.Sigmoid),
    "no bias": lambda: deep(bias=False),
    "frozen weight": lambda: frozen("0.weight"),
    "frozen biases": lambda: frozen("0.bias", "4.bias"),
    "activations outside": ending_in_an_activation,
}


def assert_agrees(found, model, loss, inputs, targets, tolerance=1e-5):
    expected = slow_gradients(model, loss, inputs, targets)
    weights = torch.rand(len(inputs), dtype=inputs.dtype)
    torch.testing.assert_close(found.norms(), expected.norms(), rtol=tolerance, atol=tolerance)
    sums, wanted = found.weighted_sum(weights), expected.weighted_sum(weights)
    assert list(sums) == list(wanted)
    for name, rows in expected.dense().items():
        torch.testing.assert_close(found.dense()[name], rows, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(sums[name], wanted[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_by_hand_is_what_single_passes_give(build, dtype):
    model = build().to(dtype)
    inputs = X.to(dtype)
    found = per_example_gradients(model, cross_entropy, inputs, Y)
    assert found.layers
    assert_agrees(found, model, cross_entropy, inputs, Y, 1e-4 if dtype == torch.float32 else 1e-10)
    torch.testing.assert_close(found.losses, cross_entropy(model(inputs), Y, reduction="none").detach())


def test_the_loss_of_a_module_is_the_same_loss():
    model = deep()
    found = per_example_gradients(model, nn.CrossEntropyLoss(reduction="sum"), X, Y)
    assert found.layers
    assert_agrees(found, model, cross_entropy, X, Y)


OTHER_LOSSES = {
    "weighted": nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0])),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.2),
    "without a class": nn.CrossEntropyLoss(ignore_index=1, reduction="sum"),
}


@pytest.mark.parametrize("loss", OTHER_LOSSES.values(), ids=OTHER_LOSSES)
def test_other_forms_of_the_loss_agree_with_single_passes(loss):
    model = deep()
    found = per_example_gradients(model, loss, X, Y)
    assert found.layers
    bare = nn.CrossEntropyLoss(loss.weight, ignore_index=loss.ignore_index, label_smoothing=loss.label_smoothing)
    bare.reduction = "none"
    assert_agrees(found, model, bare, X, Y)


def in_place(outputs, targets):
    """Overwrites the outputs of the model."""
    return outputs.sub_(targets).square_().sum(1)


def mean_of_the_lot(outputs, targets):
    return (outputs - targets).abs().mean(1).mean()


@pytest.mark.parametrize("loss", [cross_entropy, mse_loss, l1_loss, in_place, mean_of_the_lot])
def test_other_losses_agree_with_single_passes(loss):
    model, targets = deep(), torch.rand(SIZE, CLASSES).softmax(1)
    found = per_example_gradients(model, loss, X, targets)
    assert found.layers
    assert_agrees(found, model, loss, X, targets)


def test_a_loss_with_a_penalty_on_the_weights_has_the_penalty_in_every_gradient():
    model = deep()

    def penalised(outputs, targets):
        return cross_entropy(outputs, targets, reduction="none") + model[0].weight.square().sum()

    assert_agrees(per_example_gradients(model, penalised, X, Y), model, penalised, X, Y)


def test_a_loss_that_depends_on_no_score_is_refused():
    with pytest.raises(InvalidArgument, match="trainable parameter"):
        per_example_gradients(deep(), lambda outputs, targets: targets.float() * 2, X, Y)


def test_a_frozen_layer_is_left_to_torch():
    model = frozen("2.weight", "2.bias")
    found = per_example_gradients(model, cross_entropy, X, Y)
    assert not found.layers
    assert_agrees(found, model, cross_entropy, X, Y)


def test_shared_weights_are_left_to_torch():
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Tanh(), nn.Linear(FEATURES, FEATURES))
    model[2].weight = model[0].weight
    found = per_example_gradients(model, cross_entropy, X, Y)
    assert not found.layers
    assert_agrees(found, model, cross_entropy, X, Y)


def test_a_hook_on_an_activation_is_not_left_out():
    model = deep()
    model[1].register_forward_hook(lambda module, args, out: 2 * out)
    found = per_example_gradients(model, cross_entropy, X, Y)
    assert not found.layers
    assert_agrees(found, model, cross_entropy, X, Y)


def test_examples_to_be_ignored_add_nothing():
    model, targets = deep(), Y.clone()
    targets[3] = -100
    assert per_example_gradients(model, cross_entropy, X, Y).layers
    found = per_example_gradients(model, cross_entropy, X, targets)
    assert found.norms()[3] < 1e-15
    assert bool((found.norms()[:3] > 0).all())


def test_a_class_that_there_is_not_is_an_error_as_in_torch():
    model, targets = deep(), Y.clone()
    targets[3] = CLASSES
    with pytest.raises(IndexError, match="out of bounds"):
        per_example_gradients(model, cross_entropy, X, targets)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38], ids=["nan", "infinite", "huge"])
@pytest.mark.parametrize("build", [MODELS["logistic"], deep, lambda: frozen("2.weight", "2.bias")], ids=["a", "b", "c"])
def test_an_example_without_a_gradient_adds_nothing_at_weight_zero(build, value):
    model, inputs = build(), X.clone()
    inputs[3] = value
    inputs[3, 0] = -value
    found = per_example_gradients(model, cross_entropy, inputs, Y)
    weights = torch.rand(SIZE)
    weights[3] = 0
    sums = found.weighted_sum(weights)
    kept = torch.arange(SIZE) != 3
    others = per_example_gradients(model, cross_entropy, X[kept], Y[kept])
    torch.testing.assert_close(found.norms()[kept], others.norms())
    for name, value in others.weighted_sum(weights[kept]).items():
        torch.testing.assert_close(sums[name], value)


def test_scores_far_apart_overflow_nothing():
    model = nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        model.weight.mul_(1e4)
    found = per_example_gradients(model, cross_entropy, X, Y)
    assert bool(found.norms().isfinite().all())
    assert bool(found.losses.isfinite().all())
    # Scores of ten thousand are rounded to a thousandth.
    assert_agrees(found, model, cross_entropy, X, Y, tolerance=1e-2)


def test_large_lots_are_left_to_torch():
    inputs = torch.randn(20_000, FEATURES)
    assert not per_example_gradients(deep(), cross_entropy, inputs, torch.randint(CLASSES, (20_000,))).layers


def test_tied_weights_and_an_activation_in_place_agree_with_single_passes():
    layer = nn.Linear(FEATURES, FEATURES)
    model = nn.Sequential(layer, nn.Tanh(), layer, nn.ReLU(inplace=True), nn.Linear(FEATURES, CLASSES, bias=False))
    assert find_chain(model) is not None
    assert_agrees(per_example_gradients(model, cross_entropy, X, Y), model, cross_entropy, X, Y)


def test_hooks_are_not_left_out():
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, CLASSES))
    before = per_example_gradients(model, cross_entropy, X, Y).norms()
    model[0].register_forward_hook(lambda module, args, out: 3 * out)
    assert find_chain(model) is None
    after = per_example_gradients(model, cross_entropy, X, Y)
    assert not torch.allclose(before, after.norms())
    assert_agrees(after, model, cross_entropy, X, Y)


@pytest.mark.parametrize(
    "model",
    [
        nn.Conv1d(6, 3, 1),
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)),
        nn.Sequential(nn.LSTM(6, 3)),
        nn.Sequential(nn.Linear(6, 3), nn.GELU()),
    ],
    ids=["convolution", "parametrised", "recurrent", "other activation"],
)
def test_other_models_are_recorded(model):
    assert find_chain(model) is None


def test_gradients_are_the_same_where_torch_does_not_record_them():
    model = nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        off = per_example_gradients(model, cross_entropy, X, Y).norms()
    assert torch.equal(off, per_example_gradients(model, cross_entropy, X, Y).norms())


def prove(model, loss, inputs=X, targets=Y):
    """The layout of a model after lots enough to trust it."""
    parameters = dict(model.named_parameters())
    layout = in_pieces(model, loss, inputs, targets, parameters)[1]
    per_example_gradients(model, loss, inputs, targets, parameters=parameters, layout=layout)
    assert layout.is_chain
    assert layout.proofs >= 32
    return layout


def test_a_proven_layout_gives_the_same_gradients():
    model = ending_in_an_activation()
    layout = prove(model, cross_entropy)
    assert_agrees(per_example_gradients(model, cross_entropy, X, Y, layout=layout), model, cross_entropy, X, Y)


def test_a_hook_on_a_parameter_is_not_left_out_once_a_layout_is_proven():
    model = deep()
    layout = prove(model, cross_entropy)
    before = per_example_gradients(model, cross_entropy, X, Y, layout=layout).norms()
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: 2 * gradient)
    after = per_example_gradients(model, cross_entropy, X, Y, layout=layout).norms()
    torch.testing.assert_close(after, 2 * before)


def test_a_loss_that_does_something_else_is_examined_again_once_a_layout_is_proven():
    calls = []

    def loss(outputs, targets):
        values = mse_loss(outputs, torch.zeros_like(outputs), reduction="none").sum(1)
        return values.mul(2) if calls else values

    model = deep()
    layout = prove(model, loss)
    calls.append("changed")
    found = per_example_gradients(model, loss, X, Y, layout=layout)
    assert_agrees(found, model, loss, X, Y)


def test_huge_gradients_make_numpy_warn_of_nothing():
    model = deep()
    layout = prove(model, cross_entropy)
    found = per_example_gradients(model, cross_entropy, X * 1e18, Y, layout=layout)
    assert all(value.isfinite().all() for value in found.weighted_sum(1 / found.norms().clamp_min(1)).values())


def test_weights_that_move_to_other_memory_are_seen():
    model, x, y = torch.nn.Linear(3, 3), torch.randn(40, 3), torch.randint(3, (40,))
    parameters = dict(model.named_parameters())
    _, layout = in_pieces(model, cross_entropy, x, y, parameters)

    def compare():
        found = per_example_gradients(model, cross_entropy, x, y, layout=layout)
        slow = per_example_gradients(model, cross_entropy, x, y, backend="vmap")
        torch.testing.assert_close(found.norms(), slow.norms())

    for _ in range(3):
        compare()
    assert layout.views
    with torch.no_grad():
        model.weight.mul_(2.0)
    compare()
    model.weight.data = torch.randn(3, 3)
    compare()
    # The same address and shape, the other way round.
    model.weight.data = model.weight.data.T
    compare()
