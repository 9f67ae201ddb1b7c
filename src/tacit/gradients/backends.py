"""Per-example gradients by the first way that can tell examples apart: one backward pass and rules (book-keeping)."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients.checks import CallLayout, Layout, find_layout
from tacit.gradients.checks.labels import Rows
from tacit.gradients.contributions import (
    BackendUsed,
    Contribution,
    DenseContribution,
    LotGradients,
    Tensors,
    leave_autocast,
    widen,
)
from tacit.gradients.losses import Loss, differentiate_losses
from tacit.gradients.models import (
    call_model,
    refuse_constant,
    refuse_inference,
    refuse_inference_tensors,
    refuse_mixing,
    restore_buffers,
    run_eagerly,
    trainable,
)
from tacit.gradients.perceptrons import differentiate_perceptron
from tacit.gradients.rules import ANY_ARGUMENT, ANY_AXIS, RULES
from tacit.gradients.rules.embedding import pull_to_table
from tacit.gradients.singles import ignore_warnings, loop_over_examples, vectorise_model
from tacit.gradients.trace import (
    Call,
    DifferentOperations,
    LogComparison,
    Record,
    Recorder,
    Unclear,
    count_examples,
    iter_tensors,
    map_tensors,
)

# Gradients are checked on 32 examples before a layout is trusted, and up to three different passes are examined.
_ENOUGH, _TRIES = 32, 3
# Examples with norms above this many medians are left out of the check: their rounding errors would hide the others.
_FARTHEST = 100.0
_HALF = (torch.float16, torch.bfloat16)

Backend = Literal["auto", "bookkeeping", "vmap"]

# The number of values kept until all norms are known; the fewest examples worth a part of their own; and the most whose
# sum single precision can hold.
_KEPT, _FEWEST, _MOST = 2**23, 16, 8192


def in_pieces(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: dict[str, Tensor]
) -> tuple[int | None, Layout | None]:
    """How many examples to take at a time so that a step needs about the memory of an ordinary one; and the layout.

    None for all at once: on devices other than a CPU, which want large lots and whose memory their users know.
    """
    first = next(iter(parameters.values()))
    if not first.is_cpu or not count_examples(inputs):
        return None, None
    try:
        layout = find_layout(model, loss, parameters, inputs, targets)
    except Unclear:
        # Every gradient is formed, and each is as large as the model.
        return max(1, _KEPT // sum(parameter.numel() for parameter in parameters.values())), None
    except RuntimeError as error:
        refuse_inference(error)
        raise
    return min(max(_FEWEST, _KEPT // max(layout.weight, 1)), _MOST), layout


def per_example_gradients(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    backend: Backend = "auto",
    *,
    parameters: dict[str, Tensor] | None = None,
    layout: Layout | None = None,
) -> LotGradients:
    """The gradient of every example's own loss with respect to the trainable parameters.

    "bookkeeping" takes one forward and one backward pass and a rule per operation; operations without a rule are
    vectorised on their own. "vmap" vectorises the whole model by torch.func. "auto" takes the first that can tell the
    examples apart, and a pass for each example where neither can. Layers under torch.compile run eagerly. `parameters`
    names the trainable ones and `layout` is what `in_pieces` returned, where these are known.
    Raises `MixesExamples` if examples influence each other. An empty lot gives zeros.
    """
    if backend not in ("auto", "bookkeeping", "vmap"):
        raise InvalidArgument(f"backend must be 'auto', 'bookkeeping' or 'vmap'. Got {backend!r}.")
    parameters = parameters or trainable(model)
    refuse_inference_tensors(())
    try:
        by_hand = None if layout is None else differentiate_small(model, loss, inputs, targets, parameters, layout)
        if by_hand is not None and backend == "auto":
            return by_hand
        return _choose_backend(model, loss, inputs, targets, parameters, backend, layout)
    except RuntimeError as error:
        refuse_inference(error)
        raise


def _choose_backend(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    parameters: dict[str, Tensor],
    backend: Backend,
    layout: Layout | None,
) -> LotGradients:
    if any(parameter._backward_hooks for parameter in parameters.values()):
        return _apply_hooks(model, loss, inputs, targets, parameters, backend)
    try:
        if backend == "vmap":
            refuse_mixing(model)
            found = vectorise_model(model, loss, inputs, targets, parameters)
            found.backend = BackendUsed("vmap", "it was asked for")
            return found
        return keep_books(model, loss, inputs, targets, parameters, layout)
    except Unclear as reason:
        if backend != "auto":
            raise InvalidArgument(f"backend {backend!r} cannot follow this model: {reason}. Use 'auto'.") from reason
        why = str(reason)
    try:
        found = vectorise_model(model, loss, inputs, targets, parameters)
        found.backend = BackendUsed("vmap", why)
        return found
    except InvalidArgument:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError, Unclear):
        # torch.func cannot vectorise every operation; single passes need a model that takes one example.
        pass
    try:
        found = loop_over_examples(model, loss, inputs, targets, parameters)
        found.backend = BackendUsed("loop", why)
        return found
    except InvalidArgument:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise MixesExamples(
            f"The examples of a lot cannot be told apart ({why}), and the model does not run on one example alone: "
            f"{error}"
        ) from error


def _apply_hooks(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: dict[str, Tensor], backend: Backend
) -> LotGradients:
    """Hooks on parameters change a gradient after it is computed: each example's own, so one pass for each."""
    if backend != "auto":
        raise InvalidArgument(f"backend {backend!r} cannot follow hooks on parameters. Use 'auto', or remove them.")
    if count_examples(inputs):
        # Only to refuse models that mix examples, or keep something of them.
        with suppress(Unclear):
            find_layout(model, loss, parameters, inputs, targets)
    found = loop_over_examples(model, loss, inputs, targets, parameters)
    found.backend = BackendUsed("loop", "hooks on parameters change their gradients")
    return found


def differentiate_small(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors, layout: Layout
) -> LotGradients | None:
    """What `keep_books` gives for a small perceptron once its layout is proven; None for anything else.

    The arithmetic of such a model takes less time than the calls that choose a backend.
    """
    if not layout.is_chain or layout.proofs < _ENOUGH or layout.doubt or layout.writes_inputs:
        return None
    try:
        return differentiate_perceptron(model, loss, inputs, targets, parameters, layout.loss, layout.views)
    except DifferentOperations:
        # Examined again by keep_books.
        return None


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
        by_hand = differentiate_perceptron(model, loss, inputs, targets, parameters, layout.loss, layout.views)
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
        x = layout.arguments[0] if layout.arguments else None
        if x is None and call.function in ANY_ARGUMENT:
            x = next((each for each in layout.arguments if each is not None), None)
        if x is not None and (place.axis == x.axis == 0 or call.function in ANY_AXIS):
            found = rule(call, place.front(grads[0]), x.front)
    dense: list[Tensors] = []
    is_found = False
    for key, contribution in found.items():
        name = record.names.get(key)
        if name is not None:
            uses.setdefault(name, []).append(contribution)
        elif key in record.derived:
            derived, each = record.derived[key], contribution.dense()
            table = pull_to_table(derived, each)
            if table is not None and id(table[0]) in record.names:
                uses.setdefault(record.names[id(table[0])], []).append(table[1])
            else:
                dense.append(_vectorise(call, record.pull_to_parameters, derived.value, each))
        else:
            continue
        is_found = True
    if not is_found:
        dense.append(_vectorise(call, _pull_each, record, call, layout, grads, size))
    for by_name in dense:
        for name, values in by_name.items():
            uses.setdefault(name, []).append(DenseContribution(values.to(widen(values.dtype))))


def _vectorise(call: Call, by_example: Callable[..., Tensors], *rest: Any) -> Tensors:
    # The recurrent cells of oneDNN cannot be vectorised, those of torch can.
    is_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with ignore_warnings():
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
