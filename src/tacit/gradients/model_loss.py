"""A model's own loss, for each example alone: what a model of Hugging Face computes when it is given labels.

Given a lot, such a model returns one number, in which an example with many tokens counts more than others. Here the
loss of an example is what the model returns for that example alone: the mean over its own tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.errors import InvalidArgument
from tacit.gradients.models import call_model, restore_buffers
from tacit.gradients.trace import map_tensors

_IGNORED = -100
# How far the loss of a made-up example may be from the model's own, relatively: both are rounded.
_CLOSE = 1e-4
# One loss per example, from a model's outputs and labels.
ModelLoss = Callable[[Any, Any], Tensor]


def find_model_loss(model: nn.Module, inputs: Any, targets: Any) -> ModelLoss:
    """The model's own loss per example, for inputs and labels like these made-up ones.

    Known forms of the loss are compared with what the model returns for one example with labels. `InvalidArgument` if
    the model returns none, or one that no form gives, such as a loss with terms over all examples of a lot.
    """
    if not isinstance(inputs, dict):
        raise InvalidArgument(
            "loss='model' needs examples with named inputs and labels, as a dictionary of tensors, a datasets.Dataset, "
            f"or a DataLoader with a data collator. Got inputs of type {type(inputs).__name__}."
        )
    one, wanted = (map_tensors(tree, lambda tensor: tensor[:1]) for tree in (inputs, targets))
    # A token that may look at no other, as a made-up mask can have it, has no finite output in some models.
    one = {name: torch.ones_like(value) if name.endswith("mask") else value for name, value in one.items()}
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), restore_buffers(model):
            outputs = call_model(model, one)
            trials = _make_trials(outputs, wanted)
            own = [_lose_alone(model, one, labels) for labels in trials]
    except TypeError as error:
        names = (*one, *(wanted if isinstance(wanted, dict) else ("labels",)))
        raise InvalidArgument(
            f"loss='model' calls the model with {', '.join(names)}, which it does not take: {error}. Give a function "
            "of (outputs, targets) as loss, or rename the columns."
        ) from error
    finally:
        model.train(was_training)
    with torch.no_grad():
        for form in _list_forms(outputs, wanted):
            pairs = ((form(outputs, labels), value) for labels, value in zip(trials, own, strict=True))
            if all(
                values.shape == (1,) and math.isclose(float(values[0]), value, rel_tol=_CLOSE, abs_tol=_CLOSE)
                for values, value in pairs
            ):
                return form
    raise InvalidArgument(
        f"The model's own loss of one example ({own[0]:.4g} on a made-up one) is not a cross-entropy or a squared "
        "error of its outputs, so it cannot be computed per example. It may have terms over all examples of a lot. "
        "Give a function of (outputs, targets) as loss, which returns one number per example."
    )


def _make_trials(outputs: Any, targets: Any) -> list[Any]:
    """Made-up labels: any, and, for tokens, only the first one, which a loss of next tokens ignores."""
    scores = _read(outputs, "logits")
    if isinstance(targets, dict) or not isinstance(scores, Tensor) or targets.is_floating_point():
        return [targets]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(scores.shape[-1], targets.shape, generator=generator).to(targets.device)
    if targets.dim() < 2:
        return [drawn]
    first = torch.full_like(drawn, _IGNORED)
    first[:, 0] = drawn[:, 0]
    return [drawn, first]


def _lose_alone(model: nn.Module, inputs: dict[str, Any], labels: Any) -> float:
    """What the model returns as loss; zero for a mean over no token."""
    named = labels if isinstance(labels, dict) else {"labels": labels}
    own = _read(call_model(model, {**inputs, **named}), "loss")
    if not isinstance(own, Tensor) or own.dim():
        raise InvalidArgument(
            "loss='model' needs a model that returns its loss as one number when it is given labels. Give a function "
            "of (outputs, targets) as loss."
        )
    return float(own.nan_to_num(0.0))


def needs_decoder(model: nn.Module) -> bool:
    """Whether a model has an encoder and a decoder, which reads the labels, shifted by one."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def add_decoder_inputs(model: nn.Module, inputs: Any, targets: Any) -> Any:
    """The inputs of such a model, with those of its decoder."""
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None) or getattr(model, "_shift_right", None)
    is_known = not isinstance(inputs, dict) or "decoder_input_ids" in inputs
    if is_known or prepare is None or not isinstance(targets, Tensor) or not len(targets):
        return inputs
    return {**inputs, "decoder_input_ids": prepare(targets)}


def _read(outputs: Any, name: str) -> Any:
    return outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)


def _list_forms(outputs: Any, targets: Any) -> list[ModelLoss]:
    """The forms that fit the shapes of outputs and labels."""
    if isinstance(targets, dict):
        is_span = {"start_positions", "end_positions"} == targets.keys() and _read(outputs, "end_logits") is not None
        return [lose_span] if is_span else []
    scores = _read(outputs, "logits")
    if not isinstance(scores, Tensor):
        return []
    if targets.is_floating_point():
        return [lose_square, lose_binary] if scores.numel() == targets.numel() else []
    if scores.dim() == 2 and targets.dim() == 1:
        return [lose_class]
    if scores.dim() == 3 and targets.dim() == 2:
        return [lose_tokens, lose_next_token] if scores.shape[1] == targets.shape[1] else [lose_next_token]
    return []


def lose_class(outputs: Any, labels: Tensor) -> Tensor:
    """Cross-entropy of one class an example."""
    return F.cross_entropy(outputs.logits, labels, reduction="none")


def lose_tokens(outputs: Any, labels: Tensor) -> Tensor:
    """The mean cross-entropy of an example's own tokens."""
    return _average_tokens(outputs.logits, labels)


def lose_next_token(outputs: Any, labels: Tensor) -> Tensor:
    """The mean cross-entropy of an example's next tokens. Outputs of learned prompts come before those of tokens."""
    ahead = outputs.logits.shape[1] - labels.shape[1]
    scores, following = outputs.logits[:, max(ahead - 1, 0) : -1], labels if ahead else labels[:, 1:]
    return _average_tokens(scores, following)


def lose_span(outputs: Any, positions: dict[str, Tensor]) -> Tensor:
    """The mean cross-entropy of where an answer starts and ends."""
    start = F.cross_entropy(outputs.start_logits, positions["start_positions"], reduction="none")
    return (start + F.cross_entropy(outputs.end_logits, positions["end_positions"], reduction="none")) / 2


def lose_square(outputs: Any, wanted: Tensor) -> Tensor:
    """The mean squared error of an example's numbers."""
    errors: Tensor = outputs.logits.reshape(wanted.shape) - wanted
    return errors.square().reshape(len(wanted), -1).mean(1)


def lose_binary(outputs: Any, wanted: Tensor) -> Tensor:
    """The mean binary cross-entropy of an example's labels."""
    each = F.binary_cross_entropy_with_logits(outputs.logits, wanted, reduction="none")
    return each.reshape(len(wanted), -1).mean(1)


def _average_tokens(scores: Tensor, labels: Tensor) -> Tensor:
    """An example without any token to predict has loss zero."""
    each = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none", ignore_index=_IGNORED)
    return each.sum(1) / (labels != _IGNORED).sum(1).clamp_min(1)
