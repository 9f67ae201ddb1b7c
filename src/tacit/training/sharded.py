"""One run whose weights lie in shards on several devices: FSDP2 (`torch.distributed.fsdp.fully_shard`).

Weights, gradients and optimizer states stay in shards. While the gradients of a lot are taken, a plain twin of the
model holds whole weights, gathered one parameter at a time; the examples of a process are told apart there, as on one
machine. The bounded sums of all processes are added up and scattered again, one parameter at a time, so that each
process holds the sum of its shard, for which it alone draws noise. Shards share no coordinate: every coordinate gets
noise once, with the standard deviation of one machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Partial, Shard

from tacit.errors import CannotResume, InvalidArgument
from tacit.stages.bounds.clip import Clip, NormalisedClip
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise
from tacit.training.folder import SHARDS, read_checkpoint, write_checkpoint
from tacit.types import BoundedSum, Tensors

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


@final
class Twin:
    """A plain copy of a sharded model, with whole weights inside `gather_weights` and no memory for them outside."""

    def __init__(self, model: nn.Module, size: int) -> None:
        self._model = model
        # Whether all processes have been asked whether this step may be drawn.
        self.is_drawing = False
        self._sharded = dict(model.named_parameters())
        _refuse_unless_even(self._sharded, size)
        self.model = _copy_plain(model, {})
        self._plain = dict(self.model.named_parameters())
        if self._plain.keys() != self._sharded.keys():
            raise InvalidArgument(
                "The parameters of this model cannot be followed through fully_shard. Shard its layers, then the model "
                "itself, and change nothing afterwards."
            )

    @contextmanager
    def gather_weights(self) -> Iterator[None]:
        """Whole weights, for as long as this lasts. Called by all processes at once."""
        for one, other in zip(self._model.modules(), self.model.modules(), strict=True):
            other.training = one.training
        try:
            for name, plain in self._plain.items():
                value = self._sharded[name].detach()
                plain.requires_grad_(self._sharded[name].requires_grad)
                plain.data = value.full_tensor() if isinstance(value, DTensor) else value
            yield
        finally:
            for plain in self._plain.values():
                plain.data = _make_light(plain)

    def scatter(self, bounded: BoundedSum) -> BoundedSum:
        """The shard of this process, of the sum over all processes. The whole sum is nowhere."""
        kinds = bounded.released_as or {name: value.dtype for name, value in bounded.values.items()}
        values, shards = dict(bounded.values), {}
        for name in list(values):
            like = self._sharded[name]
            whole = values.pop(name).double()
            assert isinstance(like, DTensor)
            summed = DTensor.from_local(whole, like.device_mesh, [Partial()]).redistribute(placements=like.placements)
            shards[name] = summed.to_local()
        return replace(bounded, values=shards, released_as=kinds)

    def place(self, values: Tensors) -> dict[str, Tensor]:
        """Released shards as gradients of the sharded parameters."""
        return {name: _shard_like(self._sharded[name], value) for name, value in values.items()}

    def save(self, folder: Path, name: str, parts: Mapping[str, Any]) -> None:
        """Write the shards of this process: of the model, and of the states of optimizer and schedule."""
        tree = {"model": self._model.state_dict(), **{key: part and part.state_dict() for key, part in parts.items()}}
        write_checkpoint(folder / SHARDS / name, _localise(tree))

    def load(self, folder: Path, name: str) -> dict[str, Any]:
        """What `save` wrote, as shards of this model."""
        tree = read_checkpoint(folder / SHARDS / name, needs=("model", "optimizer", "scheduler"))
        for key, value in self._model.state_dict().items():
            if key not in tree["model"]:
                raise CannotResume(f"The saved weights do not fit this model: {key} is missing.")
            if isinstance(value, DTensor):
                tree["model"][key] = _shard_like(value, tree["model"][key])
        return tree

    def shard_states(self, part: Any, state: dict[str, Any] | None) -> dict[str, Any] | None:
        """The saved state of an optimizer, whose tensors of a parameter's shape are shards like it."""
        owned = [parameter for group in getattr(part, "param_groups", ()) for parameter in group["params"]]
        for place, each in ((state or {}).get("state") or {}).items():
            for key, value in each.items():
                if isinstance(value, Tensor) and value.dim() and isinstance(owned[place], DTensor):
                    each[key] = _shard_like(owned[place], value)
        return state


def refuse_unless_sharded(mechanism: Mechanism) -> None:
    """Raise `InvalidArgument` for stages that need more than a shard of the sum."""
    is_plain = type(mechanism.noise) is GaussianNoise and type(mechanism.bound) in (Clip, NormalisedClip)
    if not is_plain or mechanism.post or mechanism.guide is not None:
        raise InvalidArgument(
            f"With fully_shard, noise is drawn for each shard by itself, and {mechanism.method.name} needs the whole "
            "sum. Use dpsgd with Gaussian noise, or data parallel processes without fully_shard."
        )


def _refuse_unless_even(parameters: Tensors, size: int) -> None:
    for name, value in parameters.items():
        if not isinstance(value, DTensor):
            if value.requires_grad:
                raise InvalidArgument(f"{name!r} is not sharded. Call fully_shard on the model too, after its layers.")
            continue
        placed = value.placements
        if value.device_mesh.size() != size or len(placed) != 1 or not isinstance(placed[0], Shard):
            raise InvalidArgument(
                f"{name!r} is placed as {placed} on {value.device_mesh.size()} of {size} processes. Use fully_shard on "
                "a mesh of one dimension with all processes."
            )


def _copy_plain(module: nn.Module, known: dict[int, Any]) -> Any:
    """The module without sharding: parameters of their own, buffers and all else shared."""
    if id(module) in known:
        return known[id(module)]
    if isinstance(module, nn.RNNBase):
        raise InvalidArgument("Recurrent layers keep their weights in one block, which fully_shard takes apart.")
    # fully_shard puts a class of its own in front of the module's.
    kind: type[nn.Module] = type(module).__mro__[2] if isinstance(module, FSDPModule) else type(module)
    made = nn.Module.__new__(kind)
    known[id(module)] = made
    for name, value in vars(module).items():
        if name == "_modules":
            copied: Any = {key: each and _copy_plain(each, known) for key, each in value.items()}
        elif name == "_parameters":
            copied = {key: None if each is None else _make_plain(each, known) for key, each in value.items()}
        elif name in _HOOKS:
            owners = {key: type(getattr(hook, "__self__", None)).__module__ for key, hook in value.items()}
            kept = ((key, hook) for key, hook in value.items() if not owners[key].startswith("torch.distributed"))
            copied = type(value)(kept)
        else:
            copied = value
        made.__dict__[name] = copied
    return made


def _make_plain(value: Tensor, known: dict[int, Any]) -> nn.Parameter:
    if id(value) not in known:
        local = value.to_local() if isinstance(value, DTensor) else value
        light = _make_light(local.detach(), value.shape)
        known[id(value)] = nn.Parameter(light, requires_grad=value.requires_grad)
    return cast(nn.Parameter, known[id(value)])


def _make_light(like: Tensor, shape: torch.Size | None = None) -> Tensor:
    """A tensor of this shape that holds one number."""
    return torch.zeros((), dtype=like.dtype, device=like.device).expand(like.shape if shape is None else shape)


def _shard_like(like: Tensor, local: Tensor) -> Tensor:
    assert isinstance(like, DTensor)
    if local.shape != like.to_local().shape:
        raise CannotResume(
            f"A saved shard has shape {tuple(local.shape)}, and the model's has {tuple(like.to_local().shape)}."
        )
    return DTensor.from_local(local, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())


def _localise(tree: Any) -> Any:
    if isinstance(tree, DTensor):
        return tree.to_local()
    if isinstance(tree, dict):
        return {key: _localise(value) for key, value in tree.items()}
    return [_localise(value) for value in tree] if isinstance(tree, list) else tree
