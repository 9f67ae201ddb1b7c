"""Published methods: what each is made of, what its paper claims, what is proven.

Names load when they are first used: the methods for linear models need no torch.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = [
    "GRADIENT_METHODS",
    "adaclip",
    "data_perturbation",
    "directional",
    "dp_lssgd",
    "dpsgd",
    "encoded",
    "gradient_perturbation",
    "influence_perturbation",
    "input_perturbation",
    "noisy_adam",
    "noisy_sgd",
    "objective_perturbation",
    "output_perturbation",
    "pruned",
]

if TYPE_CHECKING:
    from tacit.methods.adaclip import adaclip
    from tacit.methods.data_perturbation import data_perturbation
    from tacit.methods.directional import directional
    from tacit.methods.dp_lssgd import dp_lssgd
    from tacit.methods.dpsgd import dpsgd, noisy_adam, noisy_sgd
    from tacit.methods.encoded import encoded
    from tacit.methods.gradient_perturbation import gradient_perturbation
    from tacit.methods.influence_perturbation import influence_perturbation
    from tacit.methods.input_perturbation import input_perturbation
    from tacit.methods.objective_perturbation import objective_perturbation
    from tacit.methods.output_perturbation import output_perturbation
    from tacit.methods.pruned import pruned
    from tacit.stages.mechanism import Mechanism

    # Every gradient method by its name: each takes clip_norm, multiplier and mode.
    GRADIENT_METHODS: dict[str, Callable[..., Mechanism]]
else:
    _HOMES = {"noisy_adam": "dpsgd", "noisy_sgd": "dpsgd"}
    _GRADIENT = (
        "adaclip",
        "directional",
        "dp_lssgd",
        "dpsgd",
        "encoded",
        "noisy_adam",
        "noisy_sgd",
        "pruned",
    )

    class _Methods(ModuleType):
        """A package in which a name stands for a method even once the file of that name has been imported."""

        def __setattr__(self, name: str, value: object) -> None:
            if name in __all__ and isinstance(value, ModuleType):
                value = getattr(value, name)
            super().__setattr__(name, value)

    sys.modules[__name__].__class__ = _Methods

    def __getattr__(name: str) -> object:
        if name == "GRADIENT_METHODS":
            return {each: getattr(sys.modules[__name__], each) for each in _GRADIENT}
        if name in __all__:
            return getattr(import_module(f"{__name__}.{_HOMES.get(name, name)}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
