"""Published methods: what each is made of, what its paper claims, what is proven.

`tacit.methods.NAME` is the function of the method NAME, and loads its file on first use: the methods for linear models
need no torch. `tacit.methods.registry` finds the files and says how to add one.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from tacit.methods.registry import Entry as Entry
from tacit.methods.registry import register as register

if TYPE_CHECKING:
    # For type checkers only: a method works without a line here.
    from tacit.methods.adaclip import adaclip as adaclip
    from tacit.methods.data_perturbation import data_perturbation as data_perturbation
    from tacit.methods.directional import directional as directional
    from tacit.methods.dp_lssgd import dp_lssgd as dp_lssgd
    from tacit.methods.dpsgd import dpsgd as dpsgd
    from tacit.methods.encoded import encoded as encoded
    from tacit.methods.gradient_perturbation import gradient_perturbation as gradient_perturbation
    from tacit.methods.influence_perturbation import influence_perturbation as influence_perturbation
    from tacit.methods.input_perturbation import input_perturbation as input_perturbation
    from tacit.methods.noisy_adam import noisy_adam as noisy_adam
    from tacit.methods.noisy_sgd import noisy_sgd as noisy_sgd
    from tacit.methods.objective_perturbation import objective_perturbation as objective_perturbation
    from tacit.methods.output_perturbation import output_perturbation as output_perturbation
    from tacit.methods.pruned import pruned as pruned
    from tacit.stages.mechanism import Mechanism

    # Every gradient method by its name: each takes clip_norm, multiplier and mode.
    GRADIENT_METHODS: dict[str, Callable[..., Mechanism]]
else:
    from difflib import get_close_matches

    from tacit.methods.registry import list_methods

    class _Methods(ModuleType):
        """A package in which a name stands for the method even after the file of that name was imported."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, getattr(value, name, value) if isinstance(value, ModuleType) else value)

    sys.modules[__name__].__class__ = _Methods

    def __getattr__(name: str) -> object:
        # Python asks for names such as __path__ too, often and in vain.
        if not name.startswith("_"):
            known = {one.name: one for one in list_methods()}
            if name == "GRADIENT_METHODS":
                return {each: one.load() for each, one in known.items() if one.kind == "gradient"}
            if name in known:
                return known[name].load()
            close = get_close_matches(name, known, 1)
            if close:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}. Did you mean {close[0]}?")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), "GRADIENT_METHODS", *(one.name for one in list_methods())})
