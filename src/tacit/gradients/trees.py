"""Tensors in nested tuples, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """All tensors of nested tuples, lists and dictionaries, depth first."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from tensors_in(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors_in(item)


def replaced(tree: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same nesting with every tensor put through `change`."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, (tuple, list)):
        items = [replaced(item, change) for item in tree]
        return tuple(items) if isinstance(tree, tuple) else items
    if isinstance(tree, dict):
        return {key: replaced(item, change) for key, item in tree.items()}
    return tree
