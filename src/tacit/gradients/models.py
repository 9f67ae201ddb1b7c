"""Which models mix examples, and what to do about it."""

from __future__ import annotations

import copy
import math

from torch import nn

from tacit.errors import MixesExamples


def refuse_mixing(model: nn.Module) -> None:
    """Raise `MixesExamples` with every layer that normalises over the lot."""
    found = {name: type(module).__name__ for name, module in model.named_modules() if _mixes(module)}
    if not found:
        return
    layers = ", ".join(f"{kind} at '{name}'" if name else kind for name, kind in found.items())
    raise MixesExamples(
        f"{layers}: batch normalisation mixes examples, so one example's gradient is not its own. "
        "Replace it with GroupNorm: tacit.gradients.replace_batch_norm(model)."
    )


def _mixes(module: nn.Module) -> bool:
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
