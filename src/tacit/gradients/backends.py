"""Three ways to per-example gradients: rules for one backward pass (book-keeping), torch.func, single passes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import MixesExamples
from tacit.gradients.checks import CallLayout, Layout, find_layout
from tacit.gradients.checks.labels import Rows
from tacit.gradients.contributions import Contribution, DenseContribution, LotGradients, Tensors, leave_autocast, widen
from tacit.gradients.hugging_face import prepare_pass
from tacit.gradients.losses import Loss, differentiate_losses, per_example_losses
from tacit.gradients.models import (
    call_model,
    is_identical,
    refuse_changes,
    refuse_constant,
    restore_buffers,
    run_eagerly,
)
from tacit.gradients.perceptrons import differentiate_perceptron
from tacit.gradients.rules import ANY_ARGUMENT, ANY_AXIS, RULES
from tacit.gradients.rules.embedding import pull_to_table
from tacit.gradients.trace import (
    Call,
    DifferentOperations,
    LogComparison,
    Record,
    Recorder,
    Unclear,
    iter_tensors,
    map_tensors,
)

# Gradients are checked on 32 examples before a layout is trusted, and up to three different passes are examined.
_ENOUGH, _TRIES = 32, 3
# Examples with norms above this many medians are left out of the check: their rounding errors would hide the others.
_FARTHEST = 100.0
_HALF = (torch.float16, torch.bfloat16)


def count_examples(inputs: Any) -> int:
    """How many examples there are: the first dimension of the first tensor."""
    return (inputs if isinstance(inputs, Tensor) else next(iter_tensors(inputs))).shape[0]


def keep_books(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors, layout: Layout | None = None
) -> LotGradients:
    """Record one forward pass, run one backward pass to the outputs of the recorded calls, and apply a rule to each."""
    if count_examples(inputs) == 0:
        return LotGradients(parameters, {}, torch.zeros(0))
    if layout is None or layout.doubt:
        layout = find_layout(model, loss, parameters, inputs, targets)
    with nullcontext() if torch.is_grad_enabled() else torch.enable_grad():
        for _ in range(_TRIES):
            if layout.writes_inputs:
                inputs, targets = (map_tensors(tree, torch.clone) for tree in (inputs, targets))
            try:
                if layout.proofs < _ENOUGH:
                    _prove(model, loss, inputs, targets, parameters, layout)
                return _apply_rules(model, loss, inputs, targets, parameters, layout)
            except DifferentOperations:
                # Another path through the model: examined before anything is released from it.
                layout.doubt = "the model did something else on a later lot"
                layout = find_layout(model, loss, parameters, inputs, targets, again=True)
        raise Unclear("the model does different things for different lots")


def _prove(model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors, layout: Layout) -> None:
    """Check gradients on the first examples of a lot. If they are wrong, the layout is never used again (`Unclear`).

    Examples whose gradients are not finite are left out: they prove nothing, and contribute zero later.
    """

    def check(kept: Any) -> Tensor:
        # Copies: some models change their inputs in place.
        some, wanted = (map_tensors(tree, lambda tensor: tensor[kept].clone()) for tree in (inputs, targets))
        with torch.random.fork_rng(devices=[]), restore_buffers(model):
            return _apply_rules(model, loss, some, wanted, parameters, layout, is_proof=True).norms()

    try:
        finite = check(slice(0, _ENOUGH)).isfinite()
        if bool(finite.any()) and not bool(finite.all()):
            check(finite.nonzero().flatten())
    except DifferentOperations:
        raise
    except Unclear as reason:
        layout.doubt = str(reason)
        raise
    layout.proofs += int(finite.sum())


def _refuse_unless_proven(values: Tensor, gradients: LotGradients) -> None:
    """Raise `Unclear` for gradients that do not add up.

    Per-example gradients are right if, with any weights, they add up to the gradient of the losses with these weights,
    which torch computes by itself. One backward pass with random weights therefore finds parameters used out of sight,
    examples in another order or that meet in the backward pass, and random numbers drawn again. It needs the graph of
    the losses, `values`. A lot with numbers that are not finite proves nothing.
    """
    norms = gradients.norms()
    if not bool(norms.isfinite().all()):
        return
    refuse_constant(values)
    # Not only signs: what divides by a norm over the lot would not notice them.
    sizes, signs = torch.rand(2, len(norms), generator=torch.Generator().manual_seed(0))
    weights = torch.where(signs < 0.5, -0.5 - 1.5 * sizes, 0.5 + 1.5 * sizes).to(norms)
    weights = torch.where(norms <= _FARTHEST * norms.median(), weights, 0.0)
    wanted: tuple[Tensor | None, ...] = torch.autograd.grad(
        values, list(gradients.parameters.values()), weights.to(values), retain_graph=True, allow_unused=True
    )
    found = gradients.weighted_sum(weights)
    lengths = {name: _measure(each * weights) for name, each in gradients.layer_norms().items()}
    whole = math.hypot(*lengths.values())
    is_rough = values.dtype in _HALF or torch.is_autocast_enabled(values.device.type)
    relative, absolute = (0.1, 0.01) if is_rough else (1e-3, 1e-5)
    for name, expected in zip(gradients.parameters, wanted, strict=True):
        difference = found[name] if expected is None else found[name] - expected
        if not _measure(difference) <= relative * lengths[name] + absolute * whole:
            raise Unclear(f"the recorded uses of {name!r} do not add up to its gradient")


def _measure(values: Tensor) -> float:
    return float(values.detach().double().norm())


def _apply_rules(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    parameters: Tensors,
    layout: Layout,
    *,
    is_proof: bool = False,
) -> LotGradients:
    by_hand = None
    if layout.is_chain:
        by_hand = differentiate_perceptron(model, loss, inputs, targets, parameters, layout.loss)
        if by_hand is not None and not is_proof:
            return by_hand
    size = count_examples(inputs)
    comparison = LogComparison(layout.forward, size)
    # In the order of the examination: whether the other tensors that a parameter met were the same for all examples.
    constants = iter(layout.constants)
    recorder = Recorder(
        parameters, lambda _, number: number in layout.spread, lambda _: next(constants, False), comparison.see
    )
    with run_eagerly(layout.is_compiled), recorder:
        outputs = call_model(model, inputs)
    comparison.finish()
    record = recorder.record
    if len(record.calls) != len(layout.calls) or not all(
        expected.fits(call, size) for call, expected in zip(record.calls, layout.calls, strict=True)
    ):
        raise Unclear("the model did not do the same as in the examination")
    edges = [edge for call in record.calls for edge in call.edges if edge is not None]
    values, found = differentiate_losses(loss, outputs, targets, size, edges, layout.loss, keeps_graph=is_proof)
    # Freed one by one, so that memory never holds all of them and all contributions.
    waiting = [*reversed(found)]
    del found
    uses: dict[str, list[Contribution]] = {}
    with torch.no_grad(), leave_autocast(values.device.type):
        for call, places in zip(record.calls, layout.calls, strict=True):
            grads = [waiting.pop() if edge is not None else None for edge in call.edges]
            if any(grad is not None for grad in grads):
                _collect(record, call, places, grads, uses, size)
    gradients = LotGradients.of(parameters, uses, values.detach())
    if is_proof:
        _refuse_unless_proven(values, gradients)
        if by_hand is not None:
            _refuse_unless_proven(values, by_hand)
    return gradients


def _collect(
    record: Record,
    call: Call,
    layout: CallLayout,
    grads: list[Tensor | None],
    uses: dict[str, list[Contribution]],
    size: int,
) -> None:
    """Put what one call contributes into `uses`."""
    if not call.is_untouched():
        raise Unclear("an input was overwritten in place after it was used")
    rule, place = RULES.get(call.function), layout.outputs[0]
    found: dict[int, Contribution] = {}
    if rule is not None and place is not None and len(grads) == 1 and grads[0] is not None:
        places = layout.arguments if call.function in ANY_ARGUMENT else layout.arguments[:1]
        x = next((each for each in places if each is not None), None)
        if x is not None and (place.axis == x.axis == 0 or call.function in ANY_AXIS):
            found = rule(call, place.front(grads[0]), x.front)
    found = {key: each for key, each in found.items() if key in record.names or key in record.derived}
    dense: list[Tensors] = []
    for key, contribution in found.items():
        if key in record.names:
            uses.setdefault(record.names[key], []).append(contribution)
            continue
        derived, each = record.derived[key], contribution.dense()
        table = pull_to_table(derived, each)
        if table is not None and id(table[0]) in record.names:
            uses.setdefault(record.names[id(table[0])], []).append(table[1])
        else:
            dense.append(_vectorise(call, record.pull_to_parameters, derived.value, each))
    if not found:
        dense.append(_vectorise(call, _pull_each, record, call, layout, grads, size))
    for name, values in ((name, values) for each in dense for name, values in each.items()):
        uses.setdefault(name, []).append(DenseContribution(values.to(widen(values.dtype))))


def _vectorise(call: Call, by_example: Callable[..., Tensors], *rest: Any) -> Tensors:
    # The recurrent cells of oneDNN cannot be vectorised, those of torch can.
    is_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with _ignore_warnings():
            return by_example(*rest)
    except RuntimeError as error:
        raise Unclear(f"{call.function} cannot be vectorised") from error
    finally:
        torch._C._set_mkldnn_enabled(is_enabled)


def _pull_each(record: Record, call: Call, layout: CallLayout, grads: list[Tensor | None], size: int) -> Tensors:
    """Per-example gradients of any operation: its vector-Jacobian product, vectorised over the examples."""
    leaves = record.find_parameters(call.tensors)
    values = {name: leaf.detach() for name, leaf in leaves.items()}
    places = dict(zip((id(t) for t in call.tensors), layout.arguments, strict=True))
    outputs = [(i, grad, layout.outputs[i]) for i, grad in enumerate(grads) if grad is not None]

    def pull(lot: dict[int, Tensor], cotangents: list[Tensor]) -> Tensors:
        def run(given: Tensors) -> tuple[Tensor, ...]:
            swap = {id(leaf): given[name] for name, leaf in leaves.items()} | lot
            result = list(iter_tensors(record.replay(call.function, call.args, call.kwargs, swap)))
            return tuple(result[i] for i, _, _ in outputs)

        gradients: Tensors = torch.func.vjp(run, values)[1](tuple(cotangents))[0]
        return gradients

    def pull_alone(examples: dict[int, Tensor], cotangents: tuple[Tensor, ...]) -> Tensors:
        lot = {key: _as_lot(value, places[key]) for key, value in examples.items()}
        pairs = zip(cotangents, outputs, strict=True)
        return pull(lot, [_as_lot(value, place) for value, (_, _, place) in pairs])

    def pull_masked(example: Tensor) -> Tensors:
        masked = []
        for _, grad, place in outputs:
            if place is None or place.fold > 1:
                raise Unclear("a parameter is spread over the examples in an unusual way")
            shape = [-1 if axis == place.axis else 1 for axis in range(grad.dim())]
            # Not a product: another example's gradient may be NaN.
            masked.append(torch.where(example.view(shape), grad, 0.0))
        return pull({}, masked)

    if all(place is None for place in layout.arguments):
        # A parameter spread over the examples: each example's share of the output gradient is pulled back by itself.
        spread: Tensors = torch.func.vmap(pull_masked)(torch.eye(size, dtype=torch.bool))
        return spread
    if any(place is None for _, _, place in outputs):
        raise Unclear("an output without examples depends on a parameter")
    batched = {id(t): place.front(t.detach()) for t in call.tensors if (place := places[id(t)]) is not None}
    cotangents = tuple(place.front(grad) for _, grad, place in outputs if place is not None)
    gradients: Tensors = torch.func.vmap(pull_alone, randomness="same")(batched, cotangents)
    return gradients


def _as_lot(value: Tensor, place: Rows | None) -> Tensor:
    """One example's part as a lot of one, in the layout that the operation expects."""
    assert place is not None
    if place.fold > 1:
        return value.movedim(0, place.axis) if place.axis else value
    return value.unsqueeze(place.axis)


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
    with _ignore_warnings(), refuse_changes(model, loss), torch.enable_grad():
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
def _ignore_warnings() -> Iterator[None]:
    """torch.func warns where it has to loop; the result is the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield
