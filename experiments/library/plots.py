"""Axes of the pictures of all experiments."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator


def name_axes(axes: Axes, title: str, across: str, up: str) -> None:
    """A title, names for both axes, a quiet grid and no frame. Epochs are whole numbers."""
    if across == "epochs":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
