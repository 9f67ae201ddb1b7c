"""Differentially private machine learning with guarantees that can be checked.

Names load when they are first used, so a command line or an accountant never waits for what it does not need.
"""

from typing import TYPE_CHECKING

__all__ = ["__version__", "accounting"]

# A module-level __getattr__ would make every misspelt name pass the type checker, so it sees plain imports.
if TYPE_CHECKING:
    import tacit.accounting as accounting

    __version__: str
else:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("tacit")
        if name in __all__:
            from importlib import import_module

            return import_module(f"tacit.{name}")
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
