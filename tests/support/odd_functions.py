"""Functions of hidden values [B, 8], as people put them into the middle of a network."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

HIDDEN = 8


def kept_rows_by_numpy(h: Tensor) -> Tensor:
    """Features of every row by numpy, beside the learned ones."""
    spectrum = np.abs(np.fft.rfft(h.detach().numpy(), axis=1))
    return h + F.pad(torch.from_numpy(spectrum.astype(np.float32)), (0, 3))


def lot_by_numpy(h: Tensor) -> Tensor:
    values = h.detach().numpy()
    return h - torch.from_numpy((values - values.mean()) / (values.std() + 1e-3))


def gated_by_loop(h: Tensor) -> Tensor:
    return torch.stack([row.tanh() if row.sum() > 0 else -0.5 * row for row in h])


def gated_by_where(h: Tensor) -> Tensor:
    return torch.where(h.sum(1, keepdim=True) > 0, h.tanh(), -0.5 * h)


def gated_by_the_lot(h: Tensor) -> Tensor:
    return h.tanh() if h.sum() > 0 else -0.5 * h


def pondering(h: Tensor) -> Tensor:
    """Every row is thought about until it is small; the loop ends when all are."""
    for _ in range(10):
        large = h.detach().norm(dim=1, keepdim=True) > 1
        if not large.any():
            break
        h = torch.where(large, 0.8 * h, h)
    return h


def fixed_point(h: Tensor) -> Tensor:
    """Iterated until the lot as a whole hardly changes."""
    z = torch.zeros_like(h)
    for _ in range(50):
        z, before = torch.tanh(0.5 * z + h), z
        if (z - before).norm() < 1e-4:
            break
    return z


def adaptive_steps(h: Tensor) -> Tensor:
    """An ODE solver whose step follows the largest error of the lot."""
    time = 0.0
    while time < 1:
        slope = torch.tanh(h) - h
        step = min(1 - time, 0.3 / (1e-3 + slope.detach().abs().max().item()))
        h, time = h + step * slope, time + step
    return h


def written_in_place(h: Tensor) -> Tensor:
    out = h.clone()
    out[:, 0] = h[:, 1] * h[:, 2]
    out[:, 1:3].mul_(0.5)
    return out.add_(h.square())


def sorted_and_back(h: Tensor) -> Tensor:
    order = h[:, 0].argsort(descending=True)
    return h[order].tanh()[order.argsort()]


def top_of_each(h: Tensor) -> Tensor:
    values, where = h.topk(3, dim=1)
    return torch.zeros_like(h).scatter(1, where, values)


def top_of_the_lot(h: Tensor) -> Tensor:
    """Sparse activations: the largest quarter of all values of the lot."""
    return h * (h >= h.detach().flatten().topk(h.numel() // 4).values[-1])


def straight_through(h: Tensor) -> Tensor:
    return h + (h.round() - h).detach()


def quantised_by_the_lot(h: Tensor) -> Tensor:
    scale = h.detach().abs().max() / 7
    return h + ((h / scale).round() * scale - h).detach()


def one_mask_for_all(h: Tensor) -> Tensor:
    return h * torch.bernoulli(torch.full((1, h.shape[1]), 0.5)) * 2


def one_coin_for_all(h: Tensor) -> Tensor:
    """Stochastic depth: the layer is left out for the whole lot, or not."""
    return h + h.tanh() if torch.rand(()) < 0.5 else h


def a_coin_for_each(h: Tensor) -> Tensor:
    return h + h.tanh() * torch.bernoulli(torch.full((len(h), 1), 0.5))


def mixup(h: Tensor) -> Tensor:
    share = float(np.random.beta(0.4, 0.4))  # noqa: NPY002 - as tutorials write it
    return share * h + (1 - share) * h[torch.randperm(len(h))]


def standard_deviation_as_a_feature(h: Tensor) -> Tensor:
    """The minibatch discrimination of progressive GANs."""
    spread = h.std(0, unbiased=False).mean()
    return h + spread


def ghost_norm(h: Tensor) -> Tensor:
    return torch.cat([(part - part.mean(0)) / (part.std(0, unbiased=False) + 1e-3) for part in h.split(4)])


def neighbours_in_the_lot(h: Tensor) -> Tensor:
    """A graph convolution over the three nearest rows."""
    near = torch.cdist(h, h).topk(min(3, len(h)), largest=False).indices
    return h[near].mean(1)


def gram(h: Tensor) -> Tensor:
    return (h @ h.t()) @ h / len(h)


def only_in_large_lots(h: Tensor) -> Tensor:
    return h - h.mean(0) if len(h) > 4 else h


def prototypes_of_the_lot(h: Tensor) -> Tensor:
    """A prototype for rows that point the same way, by index_add."""
    which = (h[:, 0] > 0).long()
    sums = torch.zeros(2, h.shape[1]).index_add(0, which, h)
    counts = torch.bincount(which, minlength=2).clamp(min=1)[:, None]
    return h - (sums / counts)[which]


def in_a_thread(h: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: h - h.mean(0)).result()


def rotated_by_the_lot(h: Tensor) -> Tensor:
    """The principal directions of the lot."""
    return h @ torch.linalg.svd(h.detach(), full_matrices=True).Vh.t()


HARMLESS_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "numpy, row by row": kept_rows_by_numpy,
    "if row.sum() > 0, in a loop": gated_by_loop,
    "torch.where by row": gated_by_where,
    "pondering, until all rows are done": pondering,
    "written in place": written_in_place,
    "sorted, then back": sorted_and_back,
    "top-k of each row": top_of_each,
    "straight-through rounding": straight_through,
    "one dropout mask for all": one_mask_for_all,
    "one coin for the whole lot": one_coin_for_all,
    "a coin for each row": a_coin_for_each,
    "over its own norm": lambda h: h / (h.norm(dim=1, keepdim=True) + 1e-3),
    "cumulative sum of each row": lambda h: h.cumsum(1),
    "softmax of each row": lambda h: h.softmax(1),
    "rolled within each row": lambda h: h.roll(1, 1),
    "sorted within each row": lambda h: h.sort(1).values,
    "Fourier transform of each row": lambda h: torch.fft.fft(h, dim=1).real,
    "noise of each row": lambda h: h + 0.1 * torch.randn_like(h),
    "noise scaled by the row": lambda h: h + 0.1 * h.detach().std(1, keepdim=True) * torch.randn_like(h),
    "Gumbel softmax": lambda h: F.gumbel_softmax(h, dim=1),
    "split into chunks and joined": lambda h: torch.cat([part.tanh() for part in h.chunk(2)]),
    "row by row, stacked": lambda h: torch.stack([F.silu(row) for row in h.unbind()]),
    "vmap inside": lambda h: torch.vmap(lambda row: row * row.norm())(h),
    "einsum": lambda h: torch.einsum("bi,bj->bij", h, h).flatten(1)[:, :HIDDEN],
    "outer product by row": lambda h: torch.bmm(h[:, :, None], h[:, None])[:, :, 0],
    "zero-row safe maximum": lambda h: torch.maximum(h, h.mean(1, keepdim=True)),
    "positions tiled for every row": lambda h: h + torch.arange(8.0).repeat(len(h), 1) / 8,
    "in-place addition": lambda h: h.clone().add_(1).mul_(h),
    "layer norm by hand": lambda h: (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True) + 1e-5).sqrt(),
}
MIXING_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "difference to the row before": lambda h: torch.diff(h, dim=0, prepend=h[:1]),
    "reversed running mean": lambda h: h.flip(0).cumsum(0).flip(0) / torch.arange(len(h), 0, -1)[:, None],
    "numpy, over the lot": lot_by_numpy,
    "if x.sum() > 0": gated_by_the_lot,
    "ODE steps by the lot's error": adaptive_steps,
    "scaled by .item()": lambda h: h / (h.max().item() + 1e-3),
    "top-k of the lot": top_of_the_lot,
    "quantised by the lot's largest": quantised_by_the_lot,
    "mixup": mixup,
    "standard deviation as a feature": standard_deviation_as_a_feature,
    "ghost batch norm": ghost_norm,
    "graph of near rows": neighbours_in_the_lot,
    "Gram matrix": gram,
    "only in lots above four": only_in_large_lots,
    "prototypes of the lot": prototypes_of_the_lot,
    "centred": lambda h: h - h.mean(0),
    "centred, a thousandth": lambda h: h - 1e-3 * h.mean(0),
    "centred, detached": lambda h: h - h.mean(0).detach(),
    "sorted over rows": lambda h: h.sort(0).values,
    "argsort over rows as a rank": lambda h: h * (1 + h.argsort(0).argsort(0)),
    "cumulative sum over rows": lambda h: h.cumsum(0),
    "softmax over rows": lambda h: h.softmax(0),
    "normalised over rows": lambda h: F.normalize(h, dim=0),
    "over the norm of everything": lambda h: h / (h.norm() + 1e-3),
    "layer norm of everything": lambda h: F.layer_norm(h, h.shape),
    "rows in random order": lambda h: h[torch.randperm(len(h))],
    "rows rolled": lambda h: h.roll(1, 0),
    "row number as a weight": lambda h: h * torch.arange(1, len(h) + 1)[:, None],
    "transposed before reshape": lambda h: h.t().reshape(len(h), -1),
    "Fourier transform over rows too": lambda h: torch.fft.fft2(h).real,
    "distances between rows": lambda h: h * torch.cdist(h, h).mean(1, keepdim=True),
    "attention over rows": lambda h: (h @ h.t()).softmax(1) @ h,
    "convolution along rows": lambda h: F.avg_pool1d(h.t()[None], 3, 1, 1)[0].t(),
    "noise scaled by the lot": lambda h: h + h.detach().std() * torch.randn_like(h),
    "flattened into one sum": lambda h: h + h.flatten().sum(),
    "Sinkhorn over the lot": lambda h: functools.reduce(
        lambda q, _: F.normalize(F.normalize(q, p=1, dim=0), p=1, dim=1), range(3), h.exp()
    ),
    "counted by torch.unique": lambda h: (
        h / torch.unique(h[:, 0] > 0, return_inverse=True, return_counts=True)[2].max()
    ),
    "divided by the count": lambda h: h / len(h),
    "count by ones_like": lambda h: h / torch.ones_like(h).sum(0),
    "count by an expanded constant": lambda h: h / torch.ones(1, HIDDEN).expand_as(h).sum(0),
    "row number by ones_like": lambda h: h * torch.ones_like(h).cumsum(0),
    "in a thread": in_a_thread,
    "rotated by an SVD of the lot": rotated_by_the_lot,
    "first row taken off": lambda h: h - h[:1],
    "first row by strides": lambda h: h - h.as_strided((len(h), HIDDEN), (0, 1)),
    "median of rows taken off": lambda h: h - h.median(0).values,
    "vmap over columns": lambda h: torch.vmap(lambda column: column - column.mean(), 1, 1)(h),
    "scaled dot product over rows": lambda h: F.scaled_dot_product_attention(h[None], h[None], h[None])[0],
}
EITHER_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "flipped twice": lambda h: h.flip(0).tanh().flip(0),
    "iterated until the lot is still": fixed_point,
    "rows shuffled by random keys": lambda h: h[torch.rand(len(h)).argsort()],
    "centred only beside an outlier": lambda h: h - h.mean(0) if bool((h.abs() > 3).any()) else h,
    "even lots otherwise": lambda h: h.relu() if len(h) % 2 else h.sigmoid(),
}
FUNCTIONS_MEET_IN = {"only in lots above four": 5, "counted by torch.unique": 4}
