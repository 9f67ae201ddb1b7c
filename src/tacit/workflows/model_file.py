"""What a model.safetensors says besides its weights: the form of raw rows, and how the network is made again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from tacit.datasets import Data
from tacit.datasets._forms import TextForm, form_of
from tacit.errors import InvalidArgument
from tacit.workflows.settings import Settings

FORM, NETWORK = "form", "network"


def describe_model(data: Data, settings: Settings, *, is_linear: bool = False) -> dict[str, str]:
    """What is stored beside the weights, so that they predict from raw rows. It is public: nothing depends on rows."""
    form = form_of(data)
    if settings.recipe is not None and settings.recipe["kind"] == "text":
        form = replace(form, inputs=TextForm())
    shape = {"shape": list(data.shape), "classes": data.classes, "vocabulary": list(data.vocabulary)}
    return {
        "data": settings.data,
        "model": Path(settings.model).name,
        "method": settings.method,
        FORM: json.dumps(form.to_json()),
        NETWORK: json.dumps({**shape, "is_linear": is_linear}),
    }


@final
class NormalisedLinear(nn.Module):
    """A linear model of rows divided by their norms, in double precision: one output per class, or one number."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight.double()), nn.Parameter(bias.double())

    @staticmethod
    def of_weights(weights: Mapping[str, Tensor]) -> NormalisedLinear:
        """The model with these saved weights; `InvalidArgument` for others."""
        if weights.keys() != {"weight", "bias"}:
            raise InvalidArgument("The saved weights are not those of a linear model.")
        return NormalisedLinear(weights["weight"], weights["bias"])

    def forward(self, inputs: Tensor) -> Tensor:
        """One row of outputs per input."""
        rows = inputs.flatten(1).double()
        norms = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        return nn.functional.linear(rows / norms, self.weight, self.bias)
