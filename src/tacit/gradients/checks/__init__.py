"""Checks before anything is released: does each example's loss depend on that example alone?

`find_layout` examines a model once per loss, mode and shapes, and remembers the result. `examination.py` runs the model
on made-up examples and `examiner.py` follows them through every operation. `operations.py` lists the operations that
act on each example alone; `axes.py` and `indexing.py` say where the examples are afterwards, by labels (`labels.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import MixesExamples
from tacit.gradients.checks.examination import choose_sizes, examine, make_examples, refuse_mixed
from tacit.gradients.checks.examiner import Examiner
from tacit.gradients.checks.labels import CallLayout, Layout
from tacit.gradients.losses import Loss
from tacit.gradients.models import (
    call_model,
    is_compiled,
    mixes_examples,
    refuse_inference_tensors,
    refuse_mixing,
    run_eagerly,
)
from tacit.gradients.trace import Unclear, iter_tensors

__all__ = [
    "CallLayout",
    "Layout",
    "find_layout",
    "list_attributes_set_once",
    "list_public_writes",
    "make_examples_like",
    "refuse_mixing_function",
    "update_public_buffers",
]

_KNOWN: weakref.WeakKeyDictionary[nn.Module, dict[Any, tuple[Callable[[], object], Layout]]] = (
    weakref.WeakKeyDictionary()
)


def find_layout(
    model: nn.Module, loss: Loss, parameters: dict[str, Tensor], inputs: Any, targets: Any, *, again: bool = False
) -> Layout:
    """The layout, remembered per model, loss, mode and shapes (without the lot size); examined `again` on request.

    Raises `MixesExamples` if examples influence each other, and `Unclear` if they cannot be followed.
    """
    tensors = [inputs] if isinstance(inputs, Tensor) else list(iter_tensors(inputs))
    tensors += [targets] if isinstance(targets, Tensor) else iter_tensors(targets)
    key = (model.training, id(loss), *parameters, *[(tensor.shape[1:], tensor.dtype) for tensor in tensors])
    if tensors[0].is_inference():
        refuse_inference_tensors(inputs)
    known = _KNOWN.setdefault(model, {})
    of, layout = known.get(key, (None, None))
    if layout is None or of is None or of() is not loss or again:
        refuse_mixing(model)
        try:
            layout = examine(model, loss, parameters, inputs, targets)
        except Unclear as reason:
            layout = Layout((), doubt=str(reason))
        # A loss that cannot be referred to weakly is examined every time. It is not kept alive: it may hold the model.
        with suppress(TypeError):
            known[key] = (weakref.ref(loss), layout)
    if layout.doubt:
        raise Unclear(layout.doubt)
    if any(mixes_examples(module) for module in layout.suspects):
        refuse_mixing(model)
    return layout


def list_public_writes(model: nn.Module) -> frozenset[str]:
    """The buffers to which examined passes through the model write, without anything of the examples."""
    return frozenset().union(*(layout.writes for _, layout in _KNOWN.get(model, {}).values()))


def list_attributes_set_once(model: nn.Module) -> frozenset[str]:
    """The attributes that the first pass through the model sets once and for all."""
    return frozenset().union(*(layout.sets_once for _, layout in _KNOWN.get(model, {}).values()))


def make_examples_like(inputs: Any) -> Any:
    """Two made-up examples with the shapes and types of these."""
    return make_examples(inputs, 2)


def update_public_buffers(model: nn.Module, inputs: Any) -> None:
    """Let a model update such buffers once, by a pass on made-up examples."""
    with torch.random.fork_rng(devices=[]), torch.no_grad(), run_eagerly(is_compiled(model)):
        call_model(model, inputs)


def refuse_mixing_function(function: Callable[[Any], Any], inputs: Any) -> None:
    """Raise `MixesExamples` if the function's result for one input depends on the others; tried on made-up inputs."""
    size = choose_sizes(length for tensor in iter_tensors(inputs) for length in tensor.shape[1:])[0]
    made = make_examples(inputs, size)
    examiner = Examiner(list(iter_tensors(made)), size, {})
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), examiner:
            results = list(iter_tensors(function(made)))
        for result in results:
            refuse_mixed(examiner.label(result))
    except Unclear:
        # Cannot be followed: the guarantee lists it among its assumptions.
        return
    except Exception as error:
        if examiner.stopped is not None or isinstance(error, MixesExamples):
            raise
    finally:
        examiner.close()
