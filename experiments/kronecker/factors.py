"""Kronecker factors of the Fisher information, from inputs that are no private data, and clipping in their metric.

DP-KFC (Molina Van den Bosch et al. 2026): a layer's gradients have a covariance of about A (x) G, for second moments A
of the layer's inputs and G of the gradients at its outputs. Both are estimated at the first weights, on images of noise
with random labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.gradients import per_example_gradients
from tacit.stages.bounds.clip import at_least_single, clip_weights
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# What a release is multiplied by once more after the noise: nothing; the roots, which undoes the transformation; or
# their inverses again, a step of natural gradient descent.
Back = Literal["kept", "undone", "natural"]


@dataclass(frozen=True, eq=False)
class Layer:
    """The roots of a layer's factors and their inverses. A bias counts as one more column of the weight."""

    weight: str
    bias: str | None
    left: Tensor
    right: Tensor
    left_root: Tensor
    right_root: Tensor


@dataclass(frozen=True, eq=False)
class Factors:
    """The metric of a model: by layer, and a scale for each parameter that is in none."""

    layers: tuple[Layer, ...]
    scales: Mapping[str, float]

    def whiten(self, rows: Tensors) -> dict[str, Tensor]:
        """G^-1/2 g A^-1/2 for gradients [B, ...] of every layer."""
        return self._multiply(rows, [(layer.left, layer.right) for layer in self.layers], 1.0)

    def restore(self, rows: Tensors) -> dict[str, Tensor]:
        """G^1/2 g A^1/2: the way back."""
        return self._multiply(rows, [(layer.left_root, layer.right_root) for layer in self.layers], -1.0)

    def _multiply(self, rows: Tensors, pairs: list[tuple[Tensor, Tensor]], power: float) -> dict[str, Tensor]:
        found = {name: rows[name] * scale**power for name, scale in self.scales.items()}
        for layer, (left, right) in zip(self.layers, pairs, strict=True):
            weight = rows[layer.weight]
            flat = weight.flatten(2)
            if layer.bias is not None:
                flat = torch.cat([flat, rows[layer.bias][:, :, None]], dim=2)
            made = left @ (flat @ right)
            if layer.bias is not None:
                found[layer.bias] = made[:, :, -1]
                made = made[:, :, :-1]
            found[layer.weight] = made.reshape(weight.shape)
        return {name: found[name] for name in rows}


@dataclass(frozen=True, eq=False)
class KroneckerClip:
    """Clip gradients at `norm` in the metric of public factors.

    The factors depend on no example. So the transformed gradient of an example is a function of this example and of
    public numbers, and has a length of at most `norm` after clipping: adding or removing the example moves the sum by
    at most that, and the noise is isotropic there. What is done to the release afterwards costs nothing.
    """

    factors: Factors
    norm: float = 1.0
    back: Back = "kept"

    def init(self, like: Tensors, lot_size: float) -> State:
        return {}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        rows = self.factors.whiten(gradients.dense())
        norms = torch.stack([each.flatten(1).square().sum(1) for each in rows.values()]).sum(0).sqrt()
        weights = clip_weights(at_least_single(norms), self.norm)
        keep = weights > 0
        values = {name: torch.einsum("b,b...->...", weights[keep], each[keep]) for name, each in rows.items()}
        return BoundedSum(values, self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        if self.back == "kept":
            return noisy, state
        turn = self.factors.whiten if self.back == "natural" else self.factors.restore
        found = turn({name: value[None] for name, value in noisy.items()})
        return {name: value[0] for name, value in found.items()}, state


def find_factors(model: nn.Module, inputs: Tensor, classes: int, *, damping: float, seed: int) -> Factors:
    """The factors at the model's present weights, on public inputs with random labels.

    `damping` is relative to the mean eigenvalue of each factor. All is scaled so that the gradients of these inputs
    have a mean squared length of 1 in the metric.
    """
    labels = torch.randint(classes, (len(inputs),), generator=torch.Generator().manual_seed(seed))
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            hooks.append(module.register_forward_hook(_recorder(seen, name)))
    loss = F.cross_entropy(model(inputs), labels, reduction="sum")
    grads = torch.autograd.grad(loss, [outputs for _, outputs in seen.values()])
    for hook in hooks:
        hook.remove()
    layers = []
    with torch.no_grad():
        for (name, (given, _)), grad in zip(seen.items(), grads, strict=True):
            module = model.get_submodule(name)
            moments = _moments(module, given, grad)
            (right, right_root), (left, left_root) = (_roots(each, damping) for each in moments)
            bias = f"{name}.bias" if module.bias is not None else None
            layers.append(Layer(f"{name}.weight", bias, left, right, left_root, right_root))
    taken = {each for layer in layers for each in (layer.weight, layer.bias)}
    rows = per_example_gradients(model, F.cross_entropy, inputs, labels).dense()
    scales = {
        name: float(value[0].numel() ** 0.5 / value.flatten(1).norm(dim=1).square().mean().sqrt().clamp_min(1e-12))
        for name, value in rows.items()
        if name not in taken
    }
    return _normalised(Factors(tuple(layers), scales), rows)


def _recorder(seen: dict[str, tuple[Tensor, Tensor]], name: str):  # type: ignore[no-untyped-def]
    def record(module: nn.Module, given: tuple[Tensor, ...], outputs: Tensor) -> None:
        seen[name] = (given[0].detach(), outputs)

    return record


def _moments(module: nn.Module, given: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """A: second moments of inputs (with a 1 for the bias), summed over positions; G: of gradients, mean over positions.

    So their product is the covariance of gradients whose positions are independent (Grosse and Martens 2016).
    """
    if isinstance(module, nn.Conv2d):
        patches = F.unfold(given, module.kernel_size, module.dilation, module.padding, module.stride).transpose(1, 2)
        grad = grad.flatten(2).transpose(1, 2)
    else:
        patches, grad = given.reshape(len(given), -1, given.shape[-1]), grad.reshape(len(grad), -1, grad.shape[-1])
    if module.bias is not None:
        patches = torch.cat([patches, torch.ones_like(patches[..., :1])], dim=2)
    positions = patches.shape[1]
    patches, grad = patches.flatten(0, 1), grad.flatten(0, 1)
    return patches.T @ patches / len(given), grad.T @ grad / (len(given) * positions)


def _roots(moments: Tensor, damping: float) -> tuple[Tensor, Tensor]:
    """The inverse of the root, and the root, of the damped matrix."""
    values, vectors = torch.linalg.eigh(moments.double())
    values = values.clamp_min(0) + damping * values.clamp_min(0).mean().clamp_min(1e-30)
    inverse, root = ((vectors * values**power) @ vectors.T for power in (-0.5, 0.5))
    return inverse.to(moments.dtype), root.to(moments.dtype)


def _normalised(factors: Factors, rows: Tensors) -> Factors:
    made = factors.whiten(rows)
    size = float(torch.stack([each.flatten(1).square().sum(1) for each in made.values()]).sum(0).mean().sqrt())
    layers = tuple(
        Layer(each.weight, each.bias, each.left / size, each.right, each.left_root * size, each.right_root)
        for each in factors.layers
    )
    return Factors(layers, {name: scale / size for name, scale in factors.scales.items()})


def noise_images(shape: tuple[int, ...], count: int, *, alpha: float, low: float, high: float, seed: int) -> Tensor:
    """Images whose power falls with the frequency to the power 2 alpha, within the public range of pixels.

    `alpha` 0 is white noise, 1 pink noise, whose spectrum is near that of photographs.
    """
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(count, *shape, generator=generator)
    down, across = torch.fft.fftfreq(shape[-2])[:, None], torch.fft.fftfreq(shape[-1])[None]
    frequency = (down.square() + across.square()).sqrt()
    frequency[0, 0] = 1 / max(shape[-2:])
    made = torch.fft.ifft2(torch.fft.fft2(white) / frequency**alpha).real
    made = (made - made.mean()) / made.std()
    middle, reach = (low + high) / 2, (high - low) / 2
    return (middle + made * reach / 2).clamp(low, high)
