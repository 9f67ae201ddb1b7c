"""How models of Hugging Face are called: without a cache, and without a look at the values of their masks.

These models keep keys and values for later tokens, which training does not need, and leave a mask out if no example of
the batch is padded, so that one example would decide what is computed for all. Nothing here imports transformers: a
model that uses it has done so.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import nn

# The modules whose models ask, by `is_tracing`, whether they may look at values.
_ASKING = ("transformers.masking_utils", "transformers.modeling_utils")
_CONFIGURATIONS: weakref.WeakKeyDictionary[nn.Module, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def prepare_pass(model: Any) -> AbstractContextManager[None]:
    """For the time of a pass, turn off what models of Hugging Face do with several examples at once."""
    if "transformers" not in sys.modules or not isinstance(model, nn.Module):
        return nullcontext()
    configurations = _list_configurations(model)
    return _without_cache(configurations) if configurations else nullcontext()


def _list_configurations(model: nn.Module) -> tuple[Any, ...]:
    """All configurations that the layers of a model hold; none for models that are not from transformers."""
    known = _CONFIGURATIONS.get(model)
    if known is None:
        kind = sys.modules["transformers"].PreTrainedConfig
        held = (vars(module).get("config") for module in model.modules())
        known = tuple({id(each): each for each in held if isinstance(each, kind)}.values())
        _CONFIGURATIONS[model] = known
    return known


def _is_tracing(*_: Any) -> bool:
    return True


@contextmanager
def _without_cache(configurations: tuple[Any, ...]) -> Iterator[None]:
    changed = [each for each in configurations if getattr(each, "use_cache", False)]
    modules = [module for name in _ASKING if hasattr(module := sys.modules.get(name), "is_tracing")]
    before = [vars(module)["is_tracing"] for module in modules]
    for each in changed:
        each.use_cache = False
    for module in modules:
        vars(module)["is_tracing"] = _is_tracing
    try:
        yield
    finally:
        for each in changed:
            each.use_cache = True
        for module, was in zip(modules, before, strict=True):
            vars(module)["is_tracing"] = was
