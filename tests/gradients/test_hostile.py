"""Models, losses and examples that would make one example's gradient not its own, or longer than it seems."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients import per_example_gradients
from tacit.stages.bounds import Clip, NormalisedClip

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


def total(output: Tensor, target: Tensor) -> Tensor:
    return output - target


def moved(bound, model, inputs, targets, index, loss=total):
    """How far the bounded sum moves when one example leaves the lot."""
    kept = [i for i in range(len(targets)) if i != index]
    state = bound.init({}, 1.0)
    sums = [
        bound.sum(per_example_gradients(model, loss, tuple(x[rows] for x in inputs), targets[rows]), state).values
        for rows in (list(range(len(targets))), kept)
    ]
    return float(torch.stack([(sums[0][name] - sums[1][name]).double().norm() for name in sums[0]]).norm())


def single_passes(model, inputs, targets):
    """The gradients of every example by itself."""
    parameters = dict(model.named_parameters())
    rows = [
        torch.autograd.grad(F.cross_entropy(model(inputs[i : i + 1]), targets[i : i + 1]), list(parameters.values()))
        for i in range(len(targets))
    ]
    return {name: torch.stack([row[at] for row in rows]) for at, name in enumerate(parameters)}


def assert_right(model, inputs=X, targets=Y):
    found, expected = (
        per_example_gradients(model, F.cross_entropy, inputs, targets),
        single_passes(model, inputs, targets),
    )
    for name, rows in expected.items():
        torch.testing.assert_close(found.dense()[name], rows, rtol=1e-4, atol=1e-6)
    norms = torch.cat([rows.reshape(len(rows), -1) for rows in expected.values()], 1).norm(dim=1)
    torch.testing.assert_close(found.norms(), norms, rtol=1e-4, atol=1e-6)


class Weighed(nn.Module):
    """What a layer gives, weighed by a second input of the example and added up."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        return (self.layer(x) * weights).flatten(1).sum(1)


def test_terms_that_cancel_are_not_clipped_too_little_by_gram_matrices():
    """Two tokens whose contributions nearly cancel: their norm is lost in the rounding errors of Gram matrices."""
    model = Weighed(nn.Linear(64, 64, bias=False))
    x, weights = torch.randn(6, 2, 64) * 0.1, torch.ones(6, 2, 1)
    x[0], weights[0] = torch.randn(64) * 1e6, torch.tensor([[1.0], [-1.0 + 2e-4]])
    assert moved(Clip(1.0), model, (x, weights), torch.zeros(6), 0) < 1.001


def test_terms_that_cancel_are_not_clipped_too_little_in_convolutions():
    model = Weighed(nn.Conv2d(64, 64, 1, bias=False))
    x, weights = torch.randn(6, 64, 2, 1) * 0.1, torch.ones(6, 1, 2, 1)
    x[0], weights[0, 0] = torch.randn(64, 1, 1) * 1e6, torch.tensor([[1.0], [-1.0 + 2e-4]])
    assert moved(Clip(1.0), model, (x, weights), torch.zeros(6), 0) < 1.001


def test_equal_tokens_that_cancel_leave_the_other_examples_alone():
    """Two gradients of 1e12 and -1e12 for one row of a table: added up in turn, they swallow all others."""
    model = Weighed(nn.Embedding(5, 8))
    tokens, weights = torch.zeros(8, 2, dtype=torch.int64), torch.ones(8, 2, 1)
    weights[3] = torch.tensor([[1e12], [-1e12]])
    assert moved(Clip(1.0), model, (tokens, weights), torch.zeros(8), 3) < 1.001


@pytest.mark.parametrize("width", [1_000, 200_000], ids=["small", "large"])
def test_squares_that_vanish_are_not_taken_for_nothing(width):
    model = Weighed(nn.Linear(10, width, bias=False))
    x, weights = torch.randn(4, 10), torch.ones(4, 1)
    x[1], weights[1] = 5e18, 2.5e-23
    assert moved(Clip(1e-3), model, (x, weights), torch.zeros(4), 1) < 1.001e-3


@pytest.mark.parametrize("bound", [Clip(1e-30), NormalisedClip(1.0, gamma=1e-30), NormalisedClip(1.0, gamma=1e-46)])
def test_gradients_too_short_to_measure_are_bounded(bound):
    model = Weighed(nn.Linear(4, 3, bias=False))
    x = torch.cat([torch.full((1, 4), 1e-24), torch.zeros(1, 4), torch.ones(2, 4)])
    for index in (0, 1):
        assert moved(bound, model, (x, torch.ones(4, 1)), torch.zeros(4), index) <= bound.norm


@pytest.mark.parametrize("width", [8, 512], ids=["small", "large"])
def test_sums_are_precise_under_autocast_and_for_models_in_half_precision(width):
    """In half precision a sum of many examples has steps as large as the clip norm."""
    x, targets = torch.randn(300, width), torch.zeros(300, dtype=torch.int64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gradients = per_example_gradients(nn.Linear(width, 512), F.cross_entropy, x, targets)
        ones = torch.ones(300)
        assert {value.dtype for value in gradients.weighted_sum(ones).values()} == {torch.float32}
        assert gradients.norms().dtype == torch.float32
    half = nn.Sequential(nn.Linear(width, 16), nn.LayerNorm(16), nn.Linear(16, 3)).bfloat16()
    gradients = per_example_gradients(half, F.cross_entropy, x.bfloat16(), targets)
    assert {value.dtype for value in gradients.weighted_sum(ones).values()} == {torch.float32}
    assert gradients.norms().dtype == torch.float32


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_cells_work_in_single_precision(kind):
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = kind(4, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(x)[0][:, -1])

    assert_right(Recurrent(), torch.randn(8, 5, 4))


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x


class Unseen(nn.Module):
    """A parameter that goes into an autograd function of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(3, 4)), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(Product.apply(x, self.weight))


class Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / grad.norm()


class MeetsInBackward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return Normed.apply(self.head(x))


class Sorted(nn.Module):
    """Examples in another order on the way, as packed sequences are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        order = x[:, 0].argsort(descending=True)
        return self.second(torch.relu(self.first(x[order]))[order.argsort()])


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.scale = nn.Linear(4, 3), nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) * self.scale


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        out, which = x.new_zeros(len(x), 3), x[:, 0] > 0
        for rows, expert in zip((which, ~which), self.experts, strict=True):
            out[rows] = expert(x[rows])
        return out


@pytest.mark.parametrize("build", [Unseen, MeetsInBackward, Sorted, Scalar])
def test_odd_models_have_the_gradients_of_single_passes(build):
    assert_right(build())


def test_examples_that_the_first_ones_did_not_reorder_are_told_apart():
    ordered = X.clone()
    ordered[:3, 0] = torch.tensor([3.0, 2.0, 1.0])
    assert_right(Sorted(), ordered)


def test_examples_that_go_other_ways_than_the_first_ones_are_told_apart():
    model, same = Experts(), X.clone()
    same[:, 0] = same[:, 0].abs()
    per_example_gradients(model, F.cross_entropy, same, Y)
    found = per_example_gradients(model, F.cross_entropy, X, Y).weighted_sum(torch.ones(8))
    expected = torch.autograd.grad(F.cross_entropy(model(X), Y, reduction="sum"), list(model.parameters()))
    for value, rows in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(value, rows)


def test_a_lot_that_is_cut_longer_than_the_first_is_not_cut_into_more_examples():
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            longest = int(lengths.max())
            rows = self.second(torch.relu(self.first(x[:, :longest].reshape(-1, 4))))
            return (rows.view(len(x), longest, -1) * (torch.arange(longest) < lengths[:, None])[..., None]).sum(1)

    model, x = Cut(), torch.randn(8, 4, 4) * 10
    for length in (2, 4):
        inputs = (x, torch.full((8,), length))
        assert moved(Clip(0.1), model, inputs, Y, 0, F.cross_entropy) < 0.1001


def test_random_numbers_inside_an_operation_with_parameters_are_not_drawn_twice():
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, F.dropout(self.head.weight, 0.5))

    model = Dropped()
    found = per_example_gradients(model, lambda output, target: output.sum(1), X, Y)
    # The loss is linear in the weights that were not dropped, so its gradient gives the loss back.
    given_back = (found.dense()["head.weight"] * model.head.weight.detach()).sum((1, 2))
    torch.testing.assert_close(found.losses, given_back)


class Centred(nn.Module):
    def __init__(self, share: float = 1.0, *, starts_at_zero: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.share = nn.Linear(4, 6), nn.Linear(6, 3), share
        if starts_at_zero:
            nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.second((h - self.share * h.mean(0)).tanh())


@pytest.mark.parametrize("size", [1, 2, 3])
def test_mixing_is_seen_however_small_the_first_lot_was(size):
    model = Centred()

    def train() -> None:
        for part in (slice(size), slice(None)):
            per_example_gradients(model, F.cross_entropy, X[part], Y[part])

    with pytest.raises(MixesExamples, match="mean combines different examples"):
        train()


@pytest.mark.parametrize("model", [Centred(1e-3), Centred(starts_at_zero=True)], ids=["little", "hidden by zeros"])
def test_mixing_that_hardly_shows_is_seen(model):
    with pytest.raises(MixesExamples, match="mean combines different examples"):
        per_example_gradients(model, F.cross_entropy, X, Y)


class Gated(nn.Module):
    def __init__(self, behind) -> None:
        super().__init__()
        self.head, self.gate, self.behind = nn.Linear(4, 3), nn.Parameter(torch.zeros(())), behind

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.lerp(x, self.behind(x), self.gate))


def test_what_a_gate_hides_until_the_first_step_opens_it_is_seen():
    with pytest.raises(MixesExamples, match="mean combines different examples"):
        per_example_gradients(Gated(lambda x: x.mean(0)), F.cross_entropy, X, Y)
    assert_right(Gated(lambda x: x[0]))


def test_mixing_is_seen_among_examples_that_are_mostly_alike():
    alike = torch.zeros(8, 4)
    alike[5] = 1.0
    with pytest.raises(MixesExamples, match="mean combines different examples"):
        per_example_gradients(Centred(), F.cross_entropy, alike, Y)


class Remembers(nn.Module):
    def __init__(self, *, is_private: bool) -> None:
        super().__init__()
        self.head, self.is_private = nn.Linear(4, 3), is_private
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.seen += x.mean(0) if self.is_private else 1
        return self.head(x)


def test_a_model_that_keeps_statistics_of_the_examples_is_refused():
    model = nn.Sequential(Remembers(is_private=True))
    with pytest.raises(MixesExamples, match=r"writes something of the examples into '0\.seen'"):
        per_example_gradients(model, F.cross_entropy, X, Y)
    assert torch.equal(model[0].seen, torch.zeros(4))


def test_a_counter_is_no_secret_and_counts_lots():
    model = Remembers(is_private=False)
    per_example_gradients(model, F.cross_entropy, X, Y)
    assert torch.equal(model.seen, torch.ones(4))


def test_an_embedding_that_rewrites_the_rows_it_looks_up_is_refused():
    model = nn.Sequential(nn.Embedding(9, 4, max_norm=0.5), nn.Flatten(), nn.Linear(8, 3))
    with pytest.raises(MixesExamples, match=r"writes something of the examples into '0\.weight'"):
        per_example_gradients(model, F.cross_entropy, torch.randint(9, (8, 2)), Y)


def _against_others(output: Tensor, target: Tensor) -> Tensor:
    z = F.normalize(output)
    return F.cross_entropy(z @ z.t(), torch.arange(len(z)), reduction="none")


@pytest.mark.parametrize(
    "loss",
    [
        lambda output, target: F.cross_entropy(output, target, reduction="none") / len(target),
        lambda output, target: F.cross_entropy(output, target, reduction="none").softmax(0),
        lambda output, target: F.cross_entropy(
            output, target, weight=1 / (1.0 + torch.bincount(target, minlength=3)), reduction="none"
        ),
        _against_others,
    ],
    ids=["divided by the lot", "normalised over the lot", "class weights of the lot", "contrastive"],
)
def test_a_loss_that_looks_at_the_lot_is_refused(loss):
    model = nn.Linear(4, 3)
    per_example_gradients(model, F.cross_entropy, X, Y)
    with pytest.raises(MixesExamples, match=r"depends on how many examples|combines different examples"):
        per_example_gradients(model, loss, X, Y)


@pytest.mark.parametrize(
    "loss",
    [nn.MSELoss(reduction="sum"), functools.partial(F.mse_loss, reduction="sum"), nn.KLDivLoss(reduction="batchmean")],
    ids=["sum", "partial", "batchmean"],
)
def test_several_values_an_example_are_reduced_as_the_loss_would_for_it_alone(loss):
    model, targets = nn.Linear(4, 3), torch.rand(8, 3)
    found = per_example_gradients(model, loss, X, targets).losses
    expected = torch.stack([loss(model(X[i : i + 1]), targets[i : i + 1]) for i in range(8)])
    torch.testing.assert_close(found, expected.detach())


def test_a_sequence_with_a_forward_of_its_own_is_not_taken_for_a_chain():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model.forward = lambda x: x + nn.Sequential.forward(model, x)
    assert_right(model)


def test_complex_parameters_are_refused():
    model = nn.Linear(4, 3, dtype=torch.complex64)
    with pytest.raises(InvalidArgument, match="complex"):
        per_example_gradients(model, F.cross_entropy, X, Y)


def test_one_odd_example_does_not_cast_doubt_on_the_others():
    """A first lot with examples that are not finite, or huge, is still treated in one pass."""
    model = nn.Sequential(nn.Linear(4, 3))
    odd = X.clone()
    odd[0], odd[1] = torch.nan, 1e15
    gradients = per_example_gradients(model, F.cross_entropy, odd, Y, backend="bookkeeping")
    assert gradients.norms().isfinite().tolist() == [False, *[True] * 7]
