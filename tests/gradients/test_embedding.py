"""Rows of tables: the fast sum of their gradients, and the one that stands in for it."""

import pytest
import torch

from tacit.gradients.rules import embedding
from tacit.gradients.rules.embedding import TableContribution


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
