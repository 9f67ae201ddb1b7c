"""Settings that follow from public facts, and training with them."""

from tacit.recipes.recipe import Recipe, auto

__all__ = ["Recipe", "auto"]
