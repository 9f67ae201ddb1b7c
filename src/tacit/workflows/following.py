"""How a model follows what is released, as typed or by a recipe: momentum, views of images, a mean of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.datasets import TrainingDefaults
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.workflows.settings import Settings, Typed

# Channels, height and width.
_IMAGE = 3
# All views of so many examples go through the model at once.
_VIEWED_AT_ONCE = 256


@dataclass(frozen=True)
class Following:
    """Numbers that cost no privacy, and how many examples are held at once for their sake."""

    momentum: float
    views: int
    averaging: float
    micro_batch: int | None


def settle_following(typed: Typed, defaults: TrainingDefaults, data: Data, method: str) -> Following:
    """What was typed with what the recipe adds; `InvalidArgument` for what means nothing."""
    views = _validate.count("views", defaults.views if typed.views is None else typed.views)
    if views > 1 and len(data.shape) != _IMAGE:
        raise InvalidArgument(f"--views shows images shifted, and {data.name} holds none. Leave it out.")
    micro_batch = None if views == 1 else _VIEWED_AT_ONCE
    if typed.micro_batch is not None:
        micro_batch = _validate.count("micro_batch", typed.micro_batch)
    averaging = share("averaging", defaults.averaging if typed.averaging is None else typed.averaging)
    return Following(_momentum(typed.momentum, defaults, method), views, averaging, micro_batch)


def following_words(settings: Settings) -> str:
    """What is to be said of it after the learning rate; nothing of what goes without saying."""
    said = [
        f"momentum {settings.momentum:g}" if settings.momentum else "",
        f"{settings.views} views of every image" if settings.views > 1 else "",
        f"running mean of the weights with decay {settings.averaging:g}" if settings.averaging else "",
    ]
    return "".join(f", {words}" for words in said if words)


def _momentum(typed: float | None, defaults: TrainingDefaults, method: str) -> float:
    if method != "noisy_adam":
        return share("momentum", defaults.momentum if typed is None else typed)
    if typed is not None:
        raise InvalidArgument(f"Adam has a momentum of its own. Leave out --momentum {typed:g}, or noisy_adam.")
    return 0.0


def share(name: str, value: Any) -> float:
    """A number from 0 on, and below 1."""
    return 0.0 if value == 0 else _validate.open_unit(name, value)
