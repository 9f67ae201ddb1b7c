"""Settings that follow from public facts, and what they train."""

from tacit.recipes.recipe import Recipe, auto

__all__ = ["Recipe", "auto"]
