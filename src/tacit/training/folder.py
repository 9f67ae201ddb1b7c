"""The folder of a run: the name of every file in it, what it holds and who may read it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import save
from torch import Tensor

from tacit._files import write_atomic
from tacit.errors import InvalidArgument, TacitError
from tacit.guarantee import Guarantee

CHECKPOINT, PREVIOUS, JOURNAL = "run.safetensors", "run.previous.safetensors", "journal.jsonl"
_SETTINGS, _MODEL, _GUARANTEE, _METRICS = "settings.json", "model.safetensors", "guarantee.json", "metrics.json"
_PREPARED, _SCORE_BEGUN, _BASELINE, _AUDIT = "prepared.safetensors", "score.begun", "baseline.json", "audit"


@dataclass(frozen=True)
class RunFolder:
    """The files of one run. Settings, checkpoint and audit are private; model, guarantee and metrics are public."""

    path: Path

    @property
    def settings(self) -> Path:
        """All settings, with the salt and local paths. Private."""
        return self.path / _SETTINGS

    @property
    def model(self) -> Path:
        """The model that is handed out. Written once training is finished."""
        return self.path / _MODEL

    @property
    def guarantee(self) -> Path:
        """What is proven about everything released so far."""
        return self.path / _GUARANTEE

    @property
    def metrics(self) -> Path:
        """Public settings and test scores."""
        return self.path / _METRICS

    @property
    def prepared(self) -> Path:
        """What a stopped run by recipe released to prepare its features. Gone once the run is finished."""
        return self.path / _PREPARED

    @property
    def score_begun(self) -> Path:
        """A mark: the one private score was begun, so it is never drawn again."""
        return self.path / _SCORE_BEGUN

    @property
    def baseline(self) -> Path:
        """The score of the same model without privacy."""
        return self.path / _BASELINE

    @property
    def audit(self) -> Path:
        """The folder of what audits found. Private."""
        return self.path / _AUDIT

    @property
    def audit_result(self) -> Path:
        """The findings of all audits so far. Private."""
        return self.audit / "audit.json"

    @property
    def is_run(self) -> bool:
        """Whether a run was saved here."""
        return self.settings.is_file() and self.guarantee.is_file()

    def list_files(self) -> list[str]:
        """The names of a run's files that are here."""
        names = (_SETTINGS, CHECKPOINT, JOURNAL, _MODEL, _GUARANTEE, _METRICS)
        return [name for name in names if (self.path / name).exists()]

    def read_guarantee(self) -> Guarantee:
        """The guarantee, as last written."""
        return Guarantee.from_json(self.guarantee.read_text(encoding="utf-8"))

    def read_metrics(self) -> dict[str, Any]:
        """The metrics, as last written."""
        return dict(json.loads(self.metrics.read_text(encoding="utf-8")))

    def write_settings(self, values: Mapping[str, Any]) -> None:
        """Write all settings, for the owner only."""
        self._write(self.settings, json.dumps(values, indent=1), is_private=True)

    def write_guarantee(self, guarantee: Guarantee) -> None:
        """Write the guarantee."""
        self._write(self.guarantee, guarantee.to_json())

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Write settings and scores that may be released."""
        self._write(self.metrics, json.dumps(metrics, indent=1, allow_nan=False))

    def write_model(self, weights: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Write the weights that are handed out."""
        tensors = {name: value.detach().clone().contiguous() for name, value in weights.items()}
        with self.explain_errors():
            write_atomic(self.model, save(tensors, metadata=dict(about)), is_private=False)

    def write_audit(self, values: Mapping[str, Any]) -> None:
        """Write what audits found, for the owner only: it tells how well members are recognised."""
        self._write(self.audit_result, json.dumps(values, indent=1, allow_nan=False), is_private=True)

    def _write(self, path: Path, text: str, *, is_private: bool = False) -> None:
        with self.explain_errors():
            write_atomic(path, text.encode(), is_private=is_private)

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn a failed write into a `TacitError` that says what to do."""
        try:
            yield
        except OSError as error:
            raise TacitError(
                f"The run cannot be written to {self.path}: {error.strerror or error}. Free space or choose another "
                "--out; steps after the last save will be charged when the run is resumed."
            ) from error


def refuse_unless_writable(folder: Path) -> None:
    """Raise `InvalidArgument` if nothing can be written to the folder, which need not exist yet."""
    try:
        place = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
        with TemporaryDirectory(dir=place):
            pass
    except OSError as error:
        raise InvalidArgument(
            f"The run cannot be written to {folder}: {error.strerror or error}. --out must be a folder that exists or "
            "can be made. Choose another."
        ) from error


def refuse_unless_free(folder: Path | None) -> None:
    """Raise `InvalidArgument` if the folder cannot take a new run."""
    refuse_unless_writable(folder or Path("runs"))
    taken = [] if folder is None else RunFolder(folder).list_files()
    if taken:
        raise InvalidArgument(
            f"--out {folder} already holds a run ({', '.join(taken)}). Resume it with --resume {folder}, or choose "
            "another folder."
        )


def find_free_folder(name: str) -> Path:
    """The first of runs/NAME-1, runs/NAME-2, ... that does not exist yet."""
    number = 1
    while (folder := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return folder
