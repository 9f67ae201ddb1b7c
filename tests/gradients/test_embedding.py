"""Rows of tables: the fast sum of their gradients, and the one that stands in for it."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from tacit.gradients.contributions import OuterProductSum
from tacit.gradients.rules import embedding
from tacit.gradients.rules.embedding import TableContribution, TiedContribution


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("count", [1, 4])
def test_rows_are_summed_alike_with_and_without_scipys_kernel(monkeypatch, kind, index, padding, count):
    generator = torch.Generator().manual_seed(count)
    # Columns of wider tensors, as concatenations and pairs of tokens leave them.
    grads = torch.randn(50, count, 9, generator=generator, dtype=kind)[:, :, 2:7]
    tokens = torch.randint(0, 6, (50, 2 * count), generator=generator).to(index)[:, ::2]
    weights = torch.rand(50, generator=generator, dtype=kind)
    piece = TableContribution(grads, tokens, 6, padding)
    assert embedding.csc_matvecs is not None, "scipy has moved its kernel: sums of tables take three times as long"
    fast = piece.weighted_sum(weights)
    monkeypatch.setattr(embedding, "csc_matvecs", None)
    assert torch.allclose(fast, piece.weighted_sum(weights), atol=1e-5)
    one_by_one = torch.zeros(6, 5, dtype=kind)
    for example in range(50):
        for place in range(count):
            if tokens[example, place] != padding:
                one_by_one[tokens[example, place]] += weights[example] * grads[example, place]
    assert torch.allclose(fast, one_by_one, atol=1e-5)


def make_piece(size=3, count=4, padding=-1):
    generator = torch.Generator().manual_seed(size)
    grads = torch.randn(size, count, 5, generator=generator)
    return TableContribution(grads, torch.randint(0, 6, (size, count), generator=generator), 6, padding)


def test_scaled_norms_are_those_of_the_scaled_gradients():
    piece, scale = make_piece(), torch.rand(30, generator=torch.Generator().manual_seed(0)) + 0.5
    expected = (piece.dense().flatten(1) * scale).norm(dim=1)
    assert torch.allclose(piece.scaled_norms(scale), expected, rtol=1e-5)


@pytest.mark.parametrize(("size", "count"), [(0, 4), (3, 0)])
def test_examples_without_tokens_have_norm_zero(size, count):
    assert make_piece(size, count).squared_norms({}).tolist() == [0] * size


def test_tables_with_different_padding_are_not_joined():
    piece = make_piece()
    assert piece.join([piece, make_piece(padding=2)]) is None
    assert isinstance(piece.join([piece, make_piece()]), TableContribution)


@pytest.mark.parametrize("change", [{"max_norm": 0.1}, {"scale_grad_by_freq": True}])
def test_tables_that_torch_rescales_are_not_taken_for_plain_ones(change):
    table = torch.nn.Embedding(6, 5, **change)
    call = SimpleNamespace(argument=lambda place, name, default=None: given.get(name, default))
    given = {"input": torch.zeros(3, 4).long(), "weight": table.weight, **change}
    assert embedding.embedding(call, torch.zeros(3, 4, 5), lambda tokens: tokens) == {}
    derived = SimpleNamespace(function=F.embedding, args=(given["input"][0], table.weight), kwargs=change)
    assert embedding.pull_to_table(derived, torch.zeros(3, 4, 5)) is None


def test_bags_of_different_lengths_are_left_to_others():
    given = {"input": torch.zeros(6).long(), "weight": torch.zeros(6, 5), "offsets": torch.tensor([0, 1, 4])}
    call = SimpleNamespace(argument=lambda place, name, default=None: given.get(name, default))
    assert embedding.embedding_bag(call, torch.zeros(3, 5), lambda tokens: tokens) == {}


def test_an_example_left_out_of_a_tied_table_contributes_zero():
    generator = torch.Generator().manual_seed(1)
    product = OuterProductSum(*(torch.randn(3, 2, width, generator=generator) for width in (6, 5)))
    tied = TiedContribution(make_piece(), product)
    found = tied.without(torch.tensor([False, True, False])).dense()
    assert not found[1].any()
    assert torch.equal(found[[0, 2]], tied.dense()[[0, 2]])
