"""Which models mix examples, and what to do about it."""

from __future__ import annotations

import copy
import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that require a gradient, by name; an error if there is none."""
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"model must be a torch.nn.Module. Got {model!r}.")
    found: dict[str, Tensor] = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not found:
        raise InvalidArgument("model has no trainable parameter: every one has requires_grad=False.")
    if any(isinstance(value, nn.parameter.UninitializedParameter) for value in found.values()):
        raise InvalidArgument(
            "model has lazy layers, whose weights do not exist yet. Run it once on an example that is not private, "
            "such as zeros of the right shape, before the private run."
        )
    unreal = [name for name, value in found.items() if value.is_complex()]
    if unreal:
        raise InvalidArgument(
            f"Noise is for real numbers, and {', '.join(unreal)} holds complex ones. Keep real and imaginary parts as "
            "two parameters, joined by torch.complex."
        )
    return found


def refuse_mixing(model: nn.Module) -> None:
    """Raise `MixesExamples` with every layer that normalises over the lot."""
    found = {name: type(module).__name__ for name, module in model.named_modules() if mixes(module)}
    if not found:
        return
    layers = ", ".join(f"{kind} at '{name}'" if name else kind for name, kind in found.items())
    raise MixesExamples(
        f"{layers}: batch normalisation mixes examples, so one example's gradient is not its own. "
        "Replace it with GroupNorm: tacit.gradients.replace_batch_norm(model)."
    )


def suspects(model: nn.Module) -> tuple[nn.Module, ...]:
    """The layers that can mix examples, whether they do at the moment or not."""
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
    return tuple(module for module in model.modules() if isinstance(module, kinds))


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile has a hand in some layer: compiled code does not show what it does with parameters."""
    return any(module._compiled_call_impl is not None or "_orig_mod" in module._modules for module in model.modules())


def eagerly(is_needed: bool) -> AbstractContextManager[Any]:
    """Compiled layers run as they were written. Asking for it takes time, so only where there are some."""
    return torch.compiler.set_stance("force_eager") if is_needed else nullcontext()


def mixes(module: nn.Module) -> bool:
    """Whether a layer normalises over the lot at the moment."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.training or module.running_mean is None
    return isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats


def replace_batch_norm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of the model with every batch norm replaced by a GroupNorm of at most `groups` groups."""
    result = copy.deepcopy(model)
    if isinstance(result, nn.modules.batchnorm._BatchNorm):
        return _group_norm(result, groups)
    for parent in list(result.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                setattr(parent, name, _group_norm(child, groups))
    return result


def _group_norm(old: nn.modules.batchnorm._BatchNorm, groups: int) -> nn.GroupNorm:
    new = nn.GroupNorm(math.gcd(groups, old.num_features), old.num_features, old.eps, old.affine)
    return new.to(old.weight) if old.affine else new


def is_hooked(module: nn.Module) -> bool:
    """Whether something else than the module's own code may run when it is called."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
