"""Rules: how an operation turns its inputs and the gradients of its output into contributions of its parameters.

Each file of this folder holds the rules of one kind of layer and registers them beside their code. A rule for another
layer is one file anywhere that is imported before training:

    @rule(torch.nn.functional.bilinear)
    def bilinear(call, grads, front): ...

A rule is given the recorded call, the output gradients with examples first, and `front`, which moves the examples of an
argument to the front. It returns contributions by the identity of the parameter, or nothing where it does not apply:
then the operation is vectorised by torch.func. The first lots check every rule against autograd (`backends.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

if TYPE_CHECKING:
    from tacit.gradients.contributions import Contribution
    from tacit.gradients.trace import Call, Recorder

Front = Callable[[Tensor], Tensor]
Rule = Callable[["Call", Tensor, Front], "dict[int, Contribution]"]
# Does what the function would do by simpler operations that it notes in the recorder; None for rarer forms.
Decomposition = Callable[[tuple[Any, ...], dict[str, Any], "Recorder"], Any]
AnyRule = TypeVar("AnyRule", bound=Rule)
AnyDecomposition = TypeVar("AnyDecomposition", bound=Decomposition)

RULES: dict[Callable[..., Any], Rule] = {}
DECOMPOSITIONS: dict[Callable[..., Any], Decomposition] = {}
# Operations on the last dimension or on single tokens: their examples may lie along any other axis.
ANY_AXIS: set[Callable[..., Any]] = set()
# Operations whose examples need not be in the first tensor among the arguments.
ANY_ARGUMENT: set[Callable[..., Any]] = set()


def rule(
    *functions: Callable[..., Any], any_axis: bool = False, any_argument: bool = False
) -> Callable[[AnyRule], AnyRule]:
    """Register a rule for these functions.

    `any_axis`: their examples need not lie along the first axis; `any_argument`: nor in the first tensor.
    """

    def register(found: AnyRule) -> AnyRule:
        RULES.update(dict.fromkeys(functions, found))
        ANY_AXIS.update(functions if any_axis else ())
        ANY_ARGUMENT.update(functions if any_argument else ())
        return found

    return register


def decompose(*functions: Callable[..., Any]) -> Callable[[AnyDecomposition], AnyDecomposition]:
    """Register a function that runs these functions as simpler operations, each of which has a rule."""

    def register(found: AnyDecomposition) -> AnyDecomposition:
        DECOMPOSITIONS.update(dict.fromkeys(functions, found))
        return found

    return register


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
