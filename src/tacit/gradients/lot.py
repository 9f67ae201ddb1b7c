"""The gradients of one lot: norms, weighted sums and, if asked, every one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.gradients import small
from tacit.gradients.engine import full_precision
from tacit.gradients.merging import merged
from tacit.gradients.pieces import Piece

Tensors = dict[str, Tensor]


@dataclass(eq=False)
class LotGradients:
    """The gradients of one lot, example by example: private.

    Made of pieces, one for every parameter that was used, or of the layers of a small perceptron, whose norms are given
    along. `few` names the parameters whose pieces are summed in numpy.
    """

    parameters: Tensors
    given: dict[str, Piece]
    losses: Tensor
    few: frozenset[str] = frozenset()
    layers: tuple[small.Layer, ...] = ()
    _norms: Tensor | None = field(default=None, repr=False)
    _squares: Tensors | None = field(default=None, repr=False)

    @staticmethod
    def of(parameters: Tensors, pieces: dict[str, list[Piece]], losses: Tensor) -> LotGradients:
        """Several uses of one parameter are added up before their norm is taken."""
        single = {
            name: each[0] if len(each) == 1 else merged(each, parameters[name].shape) for name, each in pieces.items()
        }
        few = frozenset(name for name, piece in single.items() if small.is_small(piece))
        return LotGradients(parameters, single, losses, few)

    def __len__(self) -> int:
        return self.losses.shape[0]

    @property
    def pieces(self) -> dict[str, Piece]:
        """By parameter, what it contributes to every example's gradient."""
        if self.layers and not self.given:
            self.given = {name: piece for layer in self.layers for name, piece in layer.pieces().items()}
        return self.given

    def norms(self) -> Tensor:
        """[B]: each example's gradient norm over all trainable parameters; NaN or infinite if it is not finite."""
        if self._norms is None:
            if not self.pieces:
                self._norms = self.losses.new_zeros(len(self))
            elif len(self.few) == len(self.pieces):
                self._norms = small.norms(self.pieces)
            else:
                self._norms = torch.stack(list(self._by_parameter().values())).sum(0).sqrt_()
        return self._norms

    def _by_parameter(self) -> Tensors:
        """By parameter, the squared norms. A weight and its bias share an output gradient, and its norms."""
        if self._squares is None:
            known: dict[int, Tensor] = {}
            with self._exactly():
                self._squares = {name: piece.squares(known) for name, piece in self.pieces.items()}
        return self._squares

    def _exactly(self) -> AbstractContextManager[Any]:
        """Whoever trains under autocast asks for norms and sums there too."""
        return full_precision(self.losses.device.type)

    def layer_norms(self) -> Tensors:
        """[B] for each parameter: the norm of its part of each example's gradient."""
        zero = self.losses.new_zeros(len(self))
        squares = self._by_parameter()
        return {name: squares.get(name, zero).sqrt() for name in self.parameters}

    def scaled_norms(self, scale: Mapping[str, Tensor]) -> Tensor:
        """[B]: the norms of gradients whose every coordinate is multiplied by its scale: a number for each coordinate
        of a parameter, or a single one. The gradients are not formed, or only some examples' at a time."""
        squares = self.losses.new_zeros(len(self))
        with self._exactly():
            for name, piece in self.pieces.items():
                by, single = scale[name], self.parameters[name].numel() > scale[name].numel()
                by_one = self._by_parameter()[name] * by.square() if single else piece.scaled_norms(by).square()
                squares = squares + by_one
        return squares.sqrt_()

    def products(self, vectors: Mapping[str, Tensor]) -> Tensor:
        """[B]: the inner product of each example's gradient with one vector."""
        with self._exactly():
            each = [piece.products(vectors[name]) for name, piece in self.pieces.items()]
        return sum(each, self.losses.new_zeros(len(self)))

    def weighted_sum(self, weights: Tensor) -> Tensors:
        """Sum over examples of weight times gradient. At weight zero an example adds zero, even if not finite."""
        if not self.layers:
            return self.weighted_sum_by_layer(dict.fromkeys(self.parameters, weights))
        found = small.layer_sums(self.layers, self.norms(), weights)
        return {name: found[name] if name in found else torch.zeros_like(p) for name, p in self.parameters.items()}

    def weighted_sum_by_layer(self, weights: Tensors) -> Tensors:
        """The same with weights for each parameter by itself."""
        norms = self.norms()
        is_finite = math.isfinite(_total(norms) if norms.is_cpu else norms.sum().item())
        result: Tensors = {}
        with self._exactly():
            for name, parameter in self.parameters.items():
                piece = self.pieces.get(name)
                if piece is None or not norms.shape[0]:
                    result[name] = torch.zeros_like(parameter)
                    continue
                if not is_finite:
                    piece = piece.without((weights[name] == 0) & ~norms.isfinite())
                by = weights[name]
                found = small.weighted_sum(piece, by) if name in self.few else piece.weighted_sum(by)
                result[name] = found if found.shape == parameter.shape else found.view_as(parameter)
        return result

    def dense(self) -> Tensors:
        """[B, ...] for each parameter: as much memory as B copies of the model."""
        result: Tensors = {}
        with self._exactly():
            for name, parameter in self.parameters.items():
                piece = self.pieces.get(name)
                shape = (len(self), *parameter.shape)
                result[name] = parameter.new_zeros(shape) if piece is None else piece.dense().view(shape)
        return result


def _total(norms: Tensor) -> float:
    """Some number that is finite if all norms are: a dot product is numpy's fastest sum."""
    values = norms.numpy() if norms.dtype != torch.bfloat16 else norms.float().numpy()
    with np.errstate(over="ignore"):
        return float(np.dot(values, values))
