"""Gradients of people who have several rows: the rows of each are averaged before any norm is taken.

Let g be the mean of the gradients of the rows that were drawn of one person. It depends on the rows of that person
only, and clipping bounds its norm by the clip norm, however many rows there are and whatever they hold. So a person who
is added or removed moves the sum by at most the clip norm. The divisor is the person's own number of drawn rows: it is
private, and may be, because it is applied before clipping. Which rows are drawn of a person does not depend on other
people either, so it can be fixed first, and the statement holds for every outcome.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tacit.gradients.contributions import (
    BackendUsed,
    Contribution,
    DenseContribution,
    LotGradients,
    OuterProduct,
    OuterProductSum,
    leave_autocast,
    make_product,
)
from tacit.gradients.rules.embedding import TableContribution, TiedContribution
from tacit.types import PerExampleGradients


@runtime_checkable
class PeopleGradients(Protocol):
    """Gradients of rows that know how to average those of a person, such as those of an audit with canaries."""

    def average(self, counts: Tensor, parameters: dict[str, Tensor]) -> PerExampleGradients: ...


def average_rows(rows: PerExampleGradients, counts: Tensor, parameters: dict[str, Tensor]) -> PerExampleGradients:
    """The mean gradient of each person; the next `counts[i]` rows belong to person i.

    The rows of a person become further terms of one sum, as the uses of a parameter do, so no gradient is formed that
    was not formed for the rows. A person with a row that is not finite contributes zero, like any such example.
    """
    if isinstance(rows, PeopleGradients):
        return rows.average(counts, parameters)
    if not isinstance(rows, LotGradients):
        given: dict[str, Contribution] = {name: DenseContribution(value) for name, value in rows.dense().items()}
        losses, backend = rows.norms(), BackendUsed("bookkeeping")
    else:
        given, losses, backend = rows.contributions, rows.losses, rows.backend
    places = _Places(counts)
    with leave_autocast(losses.device.type):
        merged = {name: _merge(use, places) for name, use in given.items()}
        return LotGradients(parameters, merged, places.average(losses.detach()), backend=backend)


class _Places:
    """Where each row goes: to a person, and to one of equally many slots of that person. Unused slots are zero."""

    def __init__(self, counts: Tensor) -> None:
        self.counts, self.size = counts, len(counts)
        self.slots = int(counts.max())
        self.person = torch.repeat_interleave(torch.arange(self.size, device=counts.device), counts)
        first = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        self.slot = torch.arange(len(first), device=counts.device) - first

    def shares(self, values: Tensor) -> Tensor:
        """One over the person's number of rows, in a shape that multiplies the values of rows."""
        share = (1 / self.counts.to(values.dtype))[self.person]
        return share.view(-1, *[1] * (values.dim() - 1))

    def average(self, values: Tensor) -> Tensor:
        """The mean of each person's rows."""
        total = values.new_zeros((self.size, *values.shape[1:]))
        return total.index_add_(0, self.person, values * self.shares(values))

    def spread(self, values: Tensor, *, is_shared: bool) -> Tensor:
        """[rows, T, ...] to [people, slots * T, ...]; divided by the number of rows if `is_shared`."""
        found = values.new_zeros((self.size, self.slots, *values.shape[1:]))
        found[self.person, self.slot] = values * self.shares(values) if is_shared else values
        return found.flatten(1, 2)


def _merge(use: Contribution, places: _Places) -> Contribution:
    match use:
        case OuterProduct() | OuterProductSum():
            product = use.as_sum()
            grads, inputs = places.spread(product.grads, is_shared=True), places.spread(product.inputs, is_shared=False)
            return make_product(grads, inputs)
        case TableContribution():
            return _merge_table(use, places)
        case TiedContribution():
            product = use.product
            grads, inputs = places.spread(product.grads, is_shared=True), places.spread(product.inputs, is_shared=False)
            return TiedContribution(_merge_table(use.table, places), OuterProductSum(grads, inputs))
    return DenseContribution(places.average(use.dense()))


def _merge_table(table: TableContribution, places: _Places) -> TableContribution:
    grads, tokens = places.spread(table.grads, is_shared=True), places.spread(table.tokens, is_shared=False)
    return TableContribution(grads, tokens, table.rows, table.padding)
