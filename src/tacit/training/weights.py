"""Checks that weights change only through releases.

From the moment a lot is handed out until it is given to `run.backward`, weights and buffers must not change. After
that, an optimizer may change them, using released gradients only. What a user does with a copy of the lot cannot be
checked; the guarantee lists it first among its assumptions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from tacit.errors import MixesExamples, OutOfOrder
from tacit.gradients.models import iter_attributes, refuse_writes
from tacit.guarantee import Assumption
from tacit.types import Tensors

LOTS_STAY_INSIDE = Assumption(
    "lots_stay_inside",
    "Lots are used by run.backward only: what you compute from their examples yourself is not covered.",
)

# Numbers of a tensor compared on every lot; all numbers are compared on the first lots and on every 256th.
_SAMPLED, _FIRST, _EVERY = 32, 3, 256

_ACCUMULATED = (
    "loss.backward() would put gradients without noise into p.grad. Remove it: run.backward(lot) puts the noisy "
    "gradients there. For gradients of public data use torch.autograd.grad."
)
_FOREIGN = (
    "p.grad holds a gradient that run.backward did not write, so optimizer.step() would release it without noise. Call "
    "optimizer.step() right after run.backward(lot), and change p.grad in place only (p.grad.mul_(...))."
)
_CLOSURE = (
    "optimizer.step(closure) computes the loss of its examples again, without noise. Call optimizer.step() without a "
    "closure, and use an optimizer that needs none, such as SGD or Adam, in place of LBFGS."
)
_CHANGED = (
    "The weights changed between `for lot in run` and run.backward(lot), while the lot was available without noise. "
    "The guarantee of this run no longer holds. Call optimizer.step() after run.backward(lot) only, and start a new "
    "run from the earlier weights."
)
_WRITTEN = (
    "The forward pass changed weights or buffers of the model, which would be released without noise. Remove what "
    "writes to them, or compute it on public data before the run."
)
_NO_STEP = (
    "run.backward was called twice without optimizer.step(), so a released gradient that was paid for would be lost. "
    "Call optimizer.step() after every run.backward. To use less memory, give PrivateRun micro_batch=...; for larger "
    "lots, raise the lot size of the sampling; to use the gradient otherwise, call run.release(lot)."
)


class Weights:
    """The parameters and buffers of one run, and whether they may change now."""

    def __init__(self, model: nn.Module, parameters: Tensors) -> None:
        self._model, self._parameters = model, list(parameters.values())
        # The dictionaries, not the tensors: a buffer may be replaced by another tensor.
        self._buffers = [module._buffers for module in model.modules() if len(module._buffers)]
        self._is_sharded = any(hasattr(each, "to_local") for each in self._parameters)
        self._pointers: list[int] = []
        self._views: list[np.ndarray[Any, Any]] = []
        self.granted: dict[int, weakref.ref[Tensor]] = {}
        self._lots = 0
        self._at_hand_out: _Snapshot | None = None
        self._at_release: object = None
        self.violation = ""
        self.is_active = self.is_mixed_up = self._has_stepped = self._has_optimizer = self._is_last = False
        known = weakref.ref(self)
        handles = [
            parameter.register_post_accumulate_grad_hook(_make_hook(known))  # type: ignore[no-untyped-call]
            for parameter in self._parameters
        ]
        # Frozen ones too: an optimizer must not move them by a gradient that somebody else has put there.
        keys = [id(parameter) for parameter in (*self._parameters, *model.parameters())]
        _GUARDED.update(dict.fromkeys(keys, known))
        weakref.finalize(self, _release, handles, keys, known)
        _watch_optimizers()

    def hand_out(self) -> None:
        """Start watching: a lot is about to be handed out, so nothing may change until it is released."""
        self.is_active = True
        self._lots += 1
        self._at_hand_out = self._snapshot()

    def refuse_changed(self) -> None:
        """Raise `OutOfOrder` if a weight or buffer changed while a lot was handed out, now or earlier in this run."""
        if not self.violation and self._at_hand_out is not None and self._snapshot() != self._at_hand_out:
            self.violation = _CHANGED
        if self.violation:
            raise OutOfOrder(self.violation)

    def refuse_written(self) -> None:
        """Raise `MixesExamples` if the forward pass wrote to a parameter or a buffer."""
        if self._at_hand_out is None:
            return
        if self.is_settling or self._is_sharded:
            is_written = self._snapshot() != self._at_hand_out
        else:
            is_written = [tensor._version for tensor in self._tensors()] != self._at_hand_out[0]
        if is_written:
            self.violation = _WRITTEN
            raise MixesExamples(_WRITTEN)

    @property
    def is_settling(self) -> bool:
        """Whether this is one of the first lots, for which attributes of the model are compared too."""
        return self._lots <= _FIRST

    @contextmanager
    def watch(self, loss: object, set_once: Callable[[nn.Module], frozenset[str]]) -> Iterator[None]:
        """Raise `MixesExamples` if the forward pass changes an attribute of model or loss.

        The first pass may set the attributes that `set_once` lists.
        """
        before = dict(iter_attributes(self._model, loss))
        yield
        changed = [name for name, value in iter_attributes(self._model, loss) if before.get(name) != value]
        if changed and self._lots == 1:
            known = set_once(self._model)
            changed = [name for name in changed if name not in known]
        refuse_writes(changed)

    def refuse_unless_stepped(self) -> None:
        """Raise `OutOfOrder` if the last released gradients were not used."""
        if self._has_stepped or self._at_release is None:
            return
        if self._at_release == self._marks():
            raise OutOfOrder(_NO_STEP)

    def grant(self, gradients: list[tuple[Tensor, Tensor]], *, is_last: bool) -> None:
        """Allow an optimizer to use these released gradients. After the last ones, the model is free."""
        self._is_last = is_last
        self.granted = {id(parameter): weakref.ref(value) for parameter, value in gradients}
        self._at_release = self._marks()
        self._at_hand_out = None
        self._has_stepped = self.is_mixed_up = False

    def _marks(self) -> object:
        """Tell whether the parameters changed. A step without an optimizer may write to `.data`: no version changes."""
        if self._has_optimizer:
            return [parameter._version for parameter in self._parameters]
        return self._snapshot()

    def forget(self) -> None:
        """Stop watching: the lot is used, and weights may change."""
        self._at_release = self._at_hand_out = None
        self.granted = {}

    def step(self) -> None:
        """Note that an optimizer uses the released gradients."""
        self._has_stepped = self._has_optimizer = True
        self.is_active = not self._is_last

    def mix_up(self) -> None:
        """Refuse a gradient without noise that was added to p.grad."""
        if self.is_active:
            self.is_mixed_up = True
            raise OutOfOrder(_ACCUMULATED)

    def _snapshot(self) -> _Snapshot:
        """The state of all weights and buffers; writing to `.data` changes numbers, but no version."""
        tensors = self._tensors() if self._buffers else self._parameters
        if self._is_sharded:
            # The shards of this process.
            with torch.no_grad():
                tensors = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
        pointers = [tensor.data_ptr() for tensor in tensors]
        if pointers != self._pointers:
            views = map(_view_some, tensors)
            self._pointers, self._views = pointers, [view for view in views if view is not None]
        digests = list(map(_digest, tensors)) if self._lots <= _FIRST or self._lots % _EVERY == 0 else None
        versions = [tensor._version for tensor in tensors]
        return versions, pointers, [view.tobytes() for view in self._views], digests

    def _tensors(self) -> list[Tensor]:
        if not self._buffers:
            return self._parameters
        return self._parameters + [value for kept in self._buffers for value in kept.values() if value is not None]


# Versions, addresses and a sample of the numbers of each tensor; a digest of all of them now and then.
_Snapshot = tuple[list[int], list[int], list[bytes], list[int] | None]


def _view_some(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """A view of up to about 32 numbers of the tensor; None where numpy cannot look at it."""
    if not tensor.is_cpu or not tensor.is_contiguous() or not tensor.numel():
        return None
    flat = tensor.detach().reshape(-1)
    some = flat[:: max(1, flat.numel() // _SAMPLED)]
    return some.view(torch.int16).numpy() if tensor.dtype == torch.bfloat16 else some.numpy()


def _digest(tensor: Tensor) -> int:
    """A checksum: it changes when any number of the tensor changes, except by rare coincidence."""
    if not tensor.numel() or tensor.is_complex() or tensor.dtype == torch.bool:
        return 0
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return int(tensor.detach().contiguous().view(kinds[tensor.element_size()]).sum())


_GUARDED: dict[int, weakref.ref[Weights]] = {}


def _make_hook(known: weakref.ref[Weights]) -> Callable[[Tensor], None]:
    def hook(parameter: Tensor) -> None:
        weights = known()
        if weights is not None:
            weights.mix_up()

    return hook


def _release(handles: list[Any], keys: list[int], known: weakref.ref[Weights]) -> None:
    for handle in handles:
        handle.remove()
    for key in keys:
        if _GUARDED.get(key) is known:
            del _GUARDED[key]


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    used: Weights | None = None
    last: weakref.ref[Weights] | None = None
    weights: Weights | None = None
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            known = _GUARDED.get(id(parameter))
            if known is None:
                continue
            if known is not last:
                # Mostly one run has them all.
                last, weights = known, known()
            if weights is None or not weights.is_active:
                continue
            gradient, used = parameter.grad, weights
            if gradient is not None:
                # Looked up here, as a call for each parameter takes as long as a small sum.
                ours = weights.granted.get(id(parameter))
                if ours is None or ours() is not gradient or weights.is_mixed_up:
                    raise OutOfOrder(_ACCUMULATED if weights.is_mixed_up else _FOREIGN)
    if used is None:
        return
    # The first of the arguments is the optimizer itself; lists, as a generator would take longer.
    if [each for each in args[1:] if each is not None] or kwargs.get("closure") is not None:
        raise OutOfOrder(_CLOSURE)
    used.step()


_HOOKS: list[Any] = []


def _watch_optimizers() -> None:
    """Hook every optimizer step of this process, once."""
    if not _HOOKS:
        _HOOKS.append(register_optimizer_step_pre_hook(_before_step))
