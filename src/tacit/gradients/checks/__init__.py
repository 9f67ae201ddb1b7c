"""Checks before anything is released: does each example's loss depend on that example alone?

`find_layout` examines a model once per loss, mode and shapes, and remembers the result: `examination.py` runs the model
on made-up examples, and `examiner.py` follows them through every operation. `operations.py` lists the operations that
act on each example alone; `axes.py` and `indexing.py` say where the examples are afterwards, by labels (`labels.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tacit.errors import MixesExamples
from tacit.gradients.checks.examination import (
    choose_sizes,
    find_layout,
    list_attributes_set_once,
    list_public_writes,
    make_examples,
    make_examples_like,
    refuse_mixed,
)
from tacit.gradients.checks.examiner import Examiner
from tacit.gradients.checks.labels import CallLayout, Layout
from tacit.gradients.models import call_model, is_compiled, run_eagerly
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
