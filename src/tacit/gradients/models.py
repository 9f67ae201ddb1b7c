"""What is asked of a model: trainable parameters, no layer that mixes examples, nothing kept of the examples it saw."""

from __future__ import annotations

import copy
import math
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients.trace import iter_tensors

# Attributes that every torch module has; parameters, buffers and layers are looked at separately.
_TORCH_OWN = frozenset(vars(nn.Module()))
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
# Containers nested more deeply than this are not searched.
_DEEPEST = 4
# The modules of transformers whose models ask, by `is_tracing`, whether they may look at values.
_ASKING = ("transformers.masking_utils", "transformers.modeling_utils")
_CONFIGURATIONS: weakref.WeakKeyDictionary[nn.Module, tuple[Any, ...]] = weakref.WeakKeyDictionary()


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
    found = {name: type(module).__name__ for name, module in model.named_modules() if mixes_examples(module)}
    if not found:
        return
    layers = ", ".join(f"{kind} at '{name}'" if name else kind for name, kind in found.items())
    raise MixesExamples(
        f"{layers}: batch normalisation mixes examples, so one example's gradient is not its own. "
        "Replace it with GroupNorm: tacit.gradients.replace_batch_norm(model)."
    )


def mixes_examples(module: nn.Module) -> bool:
    """Whether a layer normalises over the lot in its current mode."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.training or module.running_mean is None
    return isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats


def find_suspects(model: nn.Module) -> tuple[nn.Module, ...]:
    """The layers that mix examples in one of their modes."""
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
    return tuple(module for module in model.modules() if isinstance(module, kinds))


def replace_batch_norm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of the model with every batch norm replaced by a GroupNorm of at most `groups` groups."""
    result = copy.deepcopy(model)
    if isinstance(result, nn.modules.batchnorm._BatchNorm):
        return _make_group_norm(result, groups)
    for parent in list(result.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                setattr(parent, name, _make_group_norm(child, groups))
    return result


def _make_group_norm(old: nn.modules.batchnorm._BatchNorm, groups: int) -> nn.GroupNorm:
    new = nn.GroupNorm(math.gcd(groups, old.num_features), old.num_features, old.eps, old.affine)
    return new.to(old.weight) if old.affine else new


def is_hooked(module: nn.Module) -> bool:
    """Whether other code than the module's own may run when it is called."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def is_compiled(model: nn.Module) -> bool:
    """Whether some layer is under torch.compile: compiled code does not show what it does with parameters."""
    return any(module._compiled_call_impl is not None or "_orig_mod" in module._modules for module in model.modules())


def run_eagerly(is_needed: bool) -> AbstractContextManager[Any]:
    """Run compiled layers without their compiled code. Switching takes time, so only where it is needed."""
    return torch.compiler.set_stance("force_eager") if is_needed else nullcontext()


def prepare_pass(model: Any) -> AbstractContextManager[None]:
    """For the time of a pass, turn off what models of Hugging Face do with several examples at once.

    They keep keys and values for later tokens, which training does not need, and leave a mask out if no example of the
    batch is padded, so that one example would decide what is computed for all. Nothing here imports transformers: a
    model that uses it has done so.
    """
    if "transformers" not in sys.modules or not isinstance(model, nn.Module):
        return nullcontext()
    configurations = _CONFIGURATIONS.get(model)
    if configurations is None:
        kind = sys.modules["transformers"].PreTrainedConfig
        held = (vars(module).get("config") for module in model.modules())
        configurations = tuple({id(each): each for each in held if isinstance(each, kind)}.values())
        _CONFIGURATIONS[model] = configurations
    return _without_cache(configurations) if configurations else nullcontext()


@contextmanager
def _without_cache(configurations: tuple[Any, ...]) -> Iterator[None]:
    changed = [each for each in configurations if getattr(each, "use_cache", False)]
    modules = [module for name in _ASKING if hasattr(module := sys.modules.get(name), "is_tracing")]
    before = [vars(module)["is_tracing"] for module in modules]
    for each in changed:
        each.use_cache = False
    for module in modules:
        vars(module)["is_tracing"] = lambda *_: True
    try:
        yield
    finally:
        for each in changed:
            each.use_cache = True
        for module, was in zip(modules, before, strict=True):
            vars(module)["is_tracing"] = was


def call_model(model: Any, inputs: Any) -> Any:
    """model(inputs); a tuple or dictionary of inputs is spread over the arguments."""
    with prepare_pass(model):
        if isinstance(inputs, tuple):
            return model(*inputs)
        if isinstance(inputs, dict):
            return model(**inputs)
        return model(inputs)


def refuse_constant(values: Tensor) -> None:
    """Raise `InvalidArgument` for losses, or outputs, that depend on no trainable parameter."""
    if not values.requires_grad:
        raise InvalidArgument(
            "The loss of no example depends on a trainable parameter, so there is nothing to learn from. Look for "
            ".detach(), .item(), argmax or torch.no_grad() in the model and in the loss, and use the model's outputs."
        )


def refuse_inference(error: RuntimeError) -> None:
    """Raise `InvalidArgument` if torch.inference_mode is the cause of an error."""
    if torch.is_inference_mode_enabled() or "nference tensor" in str(error):
        raise InvalidArgument(
            "torch.inference_mode records no operations, so neither code in it nor a model or a lot made in it has "
            "gradients. Make the model, draw lots and call run.backward outside of it; torch.no_grad is enough where "
            "you only want outputs."
        ) from error


def refuse_inference_tensors(tree: Any) -> None:
    """Raise `InvalidArgument` in torch.inference_mode, and for tensors that were made in it."""
    if torch.is_inference_mode_enabled() or any(tensor.is_inference() for tensor in iter_tensors(tree)):
        refuse_inference(RuntimeError("Inference tensors cannot be used."))


def iter_held(model: nn.Module, loss: object, *, registered: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield every tensor, number and text that model and loss hold, with its name.

    Parameters and buffers (if `registered`), plain attributes, and what the closure of a loss function holds.
    """
    for prefix, root in (("", model), ("loss", loss)):
        if isinstance(root, nn.Module):
            for path, module in root.named_modules():
                yield from _iter_module(".".join(filter(None, (prefix, path))), module, registered=registered)
            continue
        cells = getattr(root, "__closure__", None) or ()
        names = root.__code__.co_freevars if cells else ()  # type: ignore[attr-defined]
        for cell, name in zip(cells, names, strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                # A cell whose variable has no value yet.
                continue
            yield from _iter_inside(f"{prefix}: {name}", value, 1)


def iter_held_tensors(model: nn.Module, loss: object) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor that model and loss hold, with its name."""
    return ((name, value) for name, value in iter_held(model, loss) if isinstance(value, Tensor))


def iter_attributes(model: nn.Module, loss: object) -> Iterator[tuple[str, object]]:
    """Yield every number or text that model and loss hold, with its name."""
    held = iter_held(model, loss, registered=False)
    return ((name, value) for name, value in held if not isinstance(value, Tensor))


def _iter_module(path: str, module: nn.Module, *, registered: bool) -> Iterator[tuple[str, Any]]:
    if registered:
        for key, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            yield f"{path}.{key}".removeprefix("."), value
    for key, value in list(vars(module).items()):
        if key not in _TORCH_OWN:
            yield from _iter_inside(f"{path}.{key}".removeprefix("."), value, 1)


def _iter_inside(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and plain values in nested containers and simple objects."""
    if isinstance(value, (Tensor, *_PLAIN)):
        yield name, value
    elif depth >= _DEEPEST or isinstance(value, nn.Module):
        return
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            yield from _iter_inside(f"{name}[{key!r}]", item, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        for index, item in enumerate(list(value)):
            yield from _iter_inside(f"{name}[{index}]", item, depth + 1)
    elif type(value).__module__ not in ("builtins", "torch") and isinstance(getattr(value, "__dict__", None), dict):
        for key, item in list(vars(value).items()):
            yield from _iter_inside(f"{name}.{key}", item, depth + 1)


@contextmanager
def restore_buffers(model: nn.Module) -> Iterator[None]:
    """Undo every change to the buffers on exit."""
    before = {
        (module, key): (value, value.detach().clone())
        for module in model.modules()
        for key, value in module.named_buffers(recurse=False)
    }
    try:
        yield
    finally:
        for (module, key), (value, held) in before.items():
            if getattr(module, key) is not value:
                setattr(module, key, value)
            if not is_identical(value, held):
                with torch.no_grad():
                    value.copy_(held)


def is_identical(one: Tensor, other: Tensor) -> bool:
    """Equal bit for bit, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.allclose(one, other, 0.0, 0.0, equal_nan=True) if one.is_floating_point() else torch.equal(one, other)


@contextmanager
def refuse_changes(model: nn.Module, loss: object) -> Iterator[None]:
    """Raise `MixesExamples` on exit if model or loss hold something else than before."""
    before = {
        name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in iter_held(model, loss)
    }
    yield
    after = dict(iter_held(model, loss))
    names = [name for name, value in before.items() if name not in after or not _is_equal(value, after[name])]
    refuse_writes(names + [name for name in after if name not in before])


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and is_identical(one, other.detach())
    return type(one) is type(other) and (one == other or one != one)


def refuse_writes(names: list[str]) -> None:
    """Raise `MixesExamples` with the names of what the forward pass has changed."""
    if names:
        raise MixesExamples(
            f"The forward pass keeps something of the examples in {', '.join(map(repr, names))}, which would be "
            "released with the model, without noise. Leave such statistics out, or compute them on public data and "
            "keep them fixed."
        )
