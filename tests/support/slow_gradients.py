"""The independent answer: per-example gradients by a loop of single backward passes."""

import torch
from torch import Tensor, nn


class SlowGradients:
    """Gradients of a lot, one row per example, kept in full."""

    def __init__(self, rows: dict[str, Tensor]) -> None:
        self._rows = rows

    def __len__(self):
        return len(next(iter(self._rows.values())))

    def dense(self):
        return self._rows

    def layer_norms(self):
        return {name: flat(rows).norm(dim=1) for name, rows in self._rows.items()}

    def norms(self):
        return torch.cat([flat(rows) for rows in self._rows.values()], dim=1).norm(dim=1)

    def scaled_norms(self, scale):
        scaled = [flat(rows * scale[name]) for name, rows in self._rows.items()]
        return torch.cat(scaled, dim=1).norm(dim=1)

    def products(self, vectors):
        return sum(flat(rows * vectors[name]).sum(1) for name, rows in self._rows.items())

    def weighted_sum(self, weights):
        return self.weighted_sum_by_layer(dict.fromkeys(self._rows, weights))

    def weighted_sum_by_layer(self, weights):
        totals = {}
        for name, rows in self._rows.items():
            kept = weights[name] != 0
            totals[name] = torch.einsum("b,b...->...", weights[name][kept].to(rows.dtype), rows[kept])
        return totals

    def without(self, index):
        """The same lot with one example taken out."""
        return SlowGradients({name: torch.cat([rows[:index], rows[index + 1 :]]) for name, rows in self._rows.items()})

    def piece(self, part):
        """Some of the examples."""
        return SlowGradients({name: rows[part] for name, rows in self._rows.items()})


def flat(rows):
    """One row of numbers per example, whatever the parameter's shape."""
    return rows.reshape(len(rows), rows[0].numel() if len(rows) else 0)


def slow_gradients(model: nn.Module, loss, inputs, targets) -> SlowGradients:
    """One forward and one backward pass per example."""
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows = {name: torch.zeros(len(inputs), *p.shape, dtype=p.dtype) for name, p in trainable.items()}
    for i in range(len(inputs)):
        value = loss(model(inputs[i : i + 1]), targets[i : i + 1])
        found = torch.autograd.grad(value.sum(), list(trainable.values()), allow_unused=True)
        for name, gradient in zip(trainable, found, strict=True):
            if gradient is not None:
                rows[name][i] = gradient
    return SlowGradients(rows)
