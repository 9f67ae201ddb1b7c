"""A user's own model: `net.py:make_model` names a file and the function in it that makes the model."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

from torch import nn

from tacit.errors import InvalidArgument, TacitError

_HOW = (
    "Write net.py with a function make_model(shape, classes) that returns a torch.nn.Module, and give net.py:make_model"
)


def is_own_model(name: str) -> bool:
    """Whether `--model` names a file and a function, and not a model that tacit ships."""
    return ":" in name


def make_own_model(spec: str, shape: tuple[int, ...], classes: int | None) -> nn.Module:
    """Call the user's function with the shape of one input and the number of classes, or without arguments.

    `classes` is None if the target is a number. The function never gets the data.
    """
    make = _load_function(spec)
    try:
        takes_none = not inspect.signature(make).parameters
        model = make() if takes_none else make(shape, classes)
    except TacitError:
        raise
    except Exception as error:
        raise InvalidArgument(f"--model {spec} failed: {type(error).__name__}: {error}. {_HOW}.") from error
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"--model {spec} must return a torch.nn.Module. It returned {model!r}.")
    return model


def _load_function(spec: str) -> Any:
    path, _, name = spec.rpartition(":")
    file = Path(path).expanduser()
    if not file.is_file():
        raise InvalidArgument(f"--model {spec}: there is no file {file}. {_HOW}.")
    module_spec = importlib.util.spec_from_file_location(file.stem, file)
    if module_spec is None or module_spec.loader is None:
        raise InvalidArgument(f"--model {spec}: {file} is not a Python file. {_HOW}.")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidArgument(f"--model {spec}: {file} cannot be run: {type(error).__name__}: {error}.") from error
    made = getattr(module, name, None)
    if not callable(made):
        raise InvalidArgument(f"--model {spec}: {file} has no function {name}. {_HOW}.")
    return made
