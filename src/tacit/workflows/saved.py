"""Read the settings of a saved run, and refuse settings that tacit never writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from tacit import _validate
from tacit.errors import CannotResume, InvalidArgument
from tacit.methods.choices import as_texts, read_choices
from tacit.methods.registry import find_method
from tacit.randomness import is_secret_salt
from tacit.recipes.recipe import Kind, Preparation, Recipe
from tacit.training.folder import RunFolder
from tacit.workflows.settings import SETTINGS_VERSION, Settings, check_share, or_default


def read_settings(folder: Path) -> Settings:
    """Read the settings that `Settings.write` saved."""
    path = RunFolder(folder).settings
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = values.pop("version")
        if version != SETTINGS_VERSION:
            raise CannotResume(f"{path} has version {version}; this tacit reads version {SETTINGS_VERSION}.")
        settings = _check_settings(Settings(**values))
        # A salt that was derived from the seed is dropped: a fingerprint with it would not be secret.
        return settings if is_secret_salt(settings.salt, settings.seed) else replace(settings, salt=None)
    except OSError as error:
        raise CannotResume(
            f"There is no run in {folder}: {path.name} cannot be read ({error.strerror}). "
            "Give the folder of a run, as --out named it."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CannotResume(f"{path} was not written by tacit train: {error}.") from error


def _check_settings(settings: Settings) -> Settings:
    """Raise `InvalidArgument` if the saved settings were edited into something that tacit never writes."""
    for name in ("delta", "lot_size", "clip_norm", "learning_rate"):
        _validate.positive(name, getattr(settings, name))
    for name in ("epsilon", "multiplier"):
        _validate.positive(name, or_default(getattr(settings, name), 1.0))
    for name in ("momentum", "averaging"):
        check_share(name, getattr(settings, name))
    _validate.count("side", or_default(settings.side, 1))
    for name in ("population", "steps", "views"):
        _validate.count(name, getattr(settings, name))
    _validate.open_unit("delta", settings.delta)
    _validate.count("micro_batch", or_default(settings.micro_batch, 1))
    _validate.count("seed", or_default(settings.seed, 0), at_least=0)
    if settings.table is not None and settings.table.keys() != {"path", "target", "bounds", "folder"}:
        raise InvalidArgument("table must hold path, target, bounds and folder")
    texts = [settings.data, settings.method, settings.model, *(settings.table or {}).values()]
    others = (settings.data_path, settings.ledger, settings.salt, settings.dataset)
    texts += [text for text in others if text is not None]
    if not all(isinstance(text, str) for text in texts) or settings.mode not in ("rigorous", "paper"):
        raise InvalidArgument("names, paths and the mode must be text")
    bytes.fromhex(settings.salt or "")
    if read_choices(find_method(settings.method).name, as_texts(settings.choices)) != settings.choices:
        raise InvalidArgument(f"{settings.method} does not have the options in `choices`")
    if settings.recipe is not None:
        recipe = Recipe(**settings.recipe)
        for name in ("steps", "lot_size", "population", "clip_norm", "learning_rate"):
            if getattr(recipe, name) != getattr(settings, name):
                raise InvalidArgument(f"recipe and settings differ in {name}")
        if recipe.kind not in get_args(Kind) or recipe.preparation not in get_args(Preparation):
            raise InvalidArgument("the recipe is of no known kind")
        _validate.open_unit("share", recipe.share)
        _validate.open_unit("momentum", recipe.momentum)
    return settings
