"""Per-example gradients without rules: the whole model vectorised by torch.func, or a backward pass per example."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import MixesExamples
from tacit.gradients.contributions import DenseContribution, LotGradients, Tensors, widen
from tacit.gradients.losses import Loss, per_example_losses
from tacit.gradients.models import call_model, is_identical, prepare_pass, refuse_changes, refuse_constant
from tacit.gradients.trace import Unclear, count_examples, map_tensors


def vectorise_model(model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors) -> LotGradients:
    """torch.func over the whole model: for models whose examples cannot be followed. Forms every gradient."""
    size = count_examples(inputs)
    if size == 0:
        return LotGradients(parameters, {}, torch.zeros(0))
    rest = {k: v.detach() for k, v in (*model.named_parameters(), *model.named_buffers()) if k not in parameters}

    def value(given: Tensors, example: Any, target: Any) -> tuple[Tensor, Tensor]:
        lot, wanted = (map_tensors(tree, lambda t: t.unsqueeze(0)) for tree in (example, target))
        arguments = lot if isinstance(lot, tuple) else () if isinstance(lot, dict) else (lot,)
        with prepare_pass(model):
            outputs = torch.func.functional_call(
                model, {**rest, **given}, arguments, lot if isinstance(lot, dict) else None
            )
        result = per_example_losses(loss, outputs, wanted, 1)[0]
        refuse_constant(result)
        return result, result

    gradient = torch.func.grad(value, has_aux=True)
    given = {name: parameter.detach() for name, parameter in parameters.items()}
    vectorised = torch.func.vmap(gradient, in_dims=(None, 0, 0), randomness="different")
    with ignore_warnings(), refuse_changes(model, loss), torch.enable_grad():
        dense, losses = vectorised(given, *(map_tensors(tree, torch.clone) for tree in (inputs, targets)))
    if losses.requires_grad:
        raise Unclear("the loss uses parameters, or a tensor made of them, where torch.func cannot see it")
    return _make_dense(parameters, dense, losses)


def _make_dense(parameters: Tensors, dense: Tensors, losses: Tensor) -> LotGradients:
    contributions = {name: DenseContribution(values.to(widen(values.dtype))) for name, values in dense.items()}
    return LotGradients(parameters, {**contributions}, losses)


def loop_over_examples(model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors) -> LotGradients:
    """A backward pass for every example alone: slow, and right for any model that runs and keeps nothing.

    The first example goes through twice, before and after the others: its gradient must not depend on them.
    """
    size = count_examples(inputs)
    if size == 0:
        return LotGradients(parameters, {}, torch.zeros(0))
    random = torch.get_rng_state()
    with refuse_changes(model, loss):
        found = [_differentiate_alone(model, loss, inputs, targets, parameters, index) for index in range(size)]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random)
            again = _differentiate_alone(model, loss, inputs, targets, parameters, 0)
    if size > 1 and not all(map(is_identical, again, found[0])):
        raise MixesExamples(
            "An example has another gradient when other examples have gone through the model or the loss before it, "
            "so something of them is kept. Store nothing of an example."
        )
    losses, *rows = zip(*found, strict=True)
    dense = {name: torch.stack(values) for name, values in zip(parameters, rows, strict=True)}
    return _make_dense(parameters, dense, torch.stack(losses))


def _differentiate_alone(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors, index: int
) -> list[Tensor]:
    """The loss of one example and its gradients, parameter by parameter."""

    def pick(value: Tensor) -> Tensor:
        return value[index : index + 1].clone()

    with torch.enable_grad():
        outputs = call_model(model, map_tensors(inputs, pick))
        value = per_example_losses(loss, outputs, map_tensors(targets, pick), 1)[0]
        # The loss of an example may be a constant, where the model or the loss has cases: its gradient is zero.
        found: tuple[Tensor | None, ...] = (None,) * len(parameters)
        if value.requires_grad:
            found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    pairs = zip(parameters.values(), found, strict=True)
    return [value.detach(), *(torch.zeros_like(parameter) if grad is None else grad for parameter, grad in pairs)]


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """torch.func warns where it has to loop; the result is the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield
