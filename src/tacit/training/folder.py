"""The folder of a run: the name of every file in it, what it holds and who may read it; checkpoints; the journal.

A checkpoint is one safetensors file with a JSON header. Nothing in it is ever executed. A tree of dicts, lists, tuples,
numbers, text, tensors and tacit's own frozen values is split into tensors, which go into the file's body, and JSON,
which goes into its header. Writing is atomic: after a crash, or on a full disk, there is either the old checkpoint or
the new one. A hash of both parts shows damage, and the one before the newest is kept.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from tacit._files import open_private, write_atomic
from tacit._old_names import class_now
from tacit.accounting.events import Event
from tacit.accounting.events import from_json as event_from_json
from tacit.errors import CannotResume, InvalidArgument, OutOfOrder, TacitError
from tacit.guarantee import Guarantee
from tacit.randomness import refuse_forked
from tacit.training.plan import Plan

CHECKPOINT, PREVIOUS, JOURNAL = "run.safetensors", "run.previous.safetensors", "journal.jsonl"
_SETTINGS, _MODEL, _GUARANTEE, _METRICS = "settings.json", "model.safetensors", "guarantee.json", "metrics.json"
VERSION = 1
# What a run saves, and needs to go on.
RUN = (
    *("plan", "events", "realised", "lost", "forgiven", "ledger", "micro_batch", "seed", "torch_random"),
    *("bound_state", "post_states", "model", "optimizer", "scheduler"),
)
_HEADER, _HASH = "tacit", "sha256"
# The folder of what each process of a run with fully_shard has saved.
SHARDS = "shards"


class _File:
    """The path of a file of this name in the folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, _: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """The files of one run. Settings, checkpoint and audit are private; model, guarantee and metrics are public."""

    path: Path

    # All settings, with the salt and local paths. Private.
    settings = _File(_SETTINGS)
    # The model that is handed out. Written once training is finished.
    model = _File(_MODEL)
    # What is proven about everything released so far.
    guarantee = _File(_GUARANTEE)
    # Public settings and test scores.
    metrics = _File(_METRICS)
    # What a stopped run by recipe released to prepare its features. Gone once the run is finished.
    prepared = _File("prepared.safetensors")
    # A mark: the one private score was begun, so it is never drawn again.
    score_begun = _File("score.begun")
    # The score of the same model without privacy.
    baseline = _File("baseline.json")
    # The folder of what audits found, and the findings of all audits so far. Private.
    audit, audit_result = _File("audit"), _File("audit/audit.json")

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
    folders = (Path("runs") / f"{name}-{number}" for number in count(1))
    return next(folder for folder in folders if not folder.exists())


class Stateful(Protocol):
    """An optimizer, a learning-rate schedule, or whatever else has a state to be saved."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any: ...


def write_checkpoint(folder: Path, tree: Mapping[str, Any]) -> None:
    """Save a tree into the folder, in place of what was saved there before."""
    tensors: dict[str, Tensor] = {}
    header = json.dumps({"version": VERSION, "tree": _pack(dict(tree), "", tensors)})
    content = save(tensors, metadata={_HEADER: header, _HASH: _hash(header, tensors)})
    write_atomic(folder / CHECKPOINT, content, is_private=True, keep=folder / PREVIOUS)


def forget_shards(folder: Path, name: str) -> None:
    """Remove shards of saves before the last two: the one of this `name`, and the one that can be gone back to."""
    found = sorted((folder / SHARDS).glob("*-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    names = list(dict.fromkeys([name, *(path.name.rpartition("-")[0] for path in found)]))
    for path in found:
        if path.name.rpartition("-")[0] in names[2:]:
            shutil.rmtree(path, ignore_errors=True)


def read_checkpoint(folder: Path, stages: tuple[type, ...] = (), needs: Collection[str] = ()) -> dict[str, Any]:
    """The tree that was saved, with all that it `needs`. `stages` are the user's own classes that may be in it."""
    path = folder / CHECKPOINT
    try:
        header, tensors = _read_file(path)
        if header["version"] != VERSION:
            raise CannotResume(f"{path} has version {header['version']}; this tacit reads version {VERSION}.")
        tree: dict[str, Any] = _unpack(header["tree"], tensors, {_name(stage): stage for stage in stages})
        missing = sorted({*needs} - tree.keys())
        if missing:
            raise CannotResume(f"{path} holds no {', '.join(missing)}: another version of tacit wrote it.")
        if wrong := [name for name in needs if name in _FORMS and not _FORMS[name](tree[name])]:
            raise CannotResume(f"{path} holds no run, as its {', '.join(wrong)} cannot be read.{_hint(folder)}")
    except TacitError:
        raise
    except FileNotFoundError as error:
        raise CannotResume(f"There is no saved run in {folder}: {CHECKPOINT} is missing.{_hint(folder)}") from error
    except OSError as error:
        raise CannotResume(f"{path} cannot be read: {error.strerror or error}.{_hint(folder)}") from error
    except (SafetensorError, LookupError, ValueError, TypeError, AttributeError, ImportError, RecursionError) as error:
        raise CannotResume(f"{path} is not a run that tacit saved: {error}.{_hint(folder)}") from error
    return tree


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def _is_events(value: object) -> bool:
    """Whether these are events with their numbers."""
    return isinstance(value, list) and all(
        isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], Event) and _is_count(row[1]) for row in value
    )


def _is_place(value: object) -> bool:
    """Whether this says where a ledger is, and which of its rows charges the run."""
    return value is None or (
        isinstance(value, dict)
        and value.keys() >= {"entry", "seal"}
        and all(isinstance(value.get(name), str) for name in ("path", "identity", "dataset", "run"))
        and (value["entry"] is None or _is_count(value["entry"]))
    )


# What the parts of a run must look like. The hash of a save shows damage, and not that someone else wrote it.
_FORMS: dict[str, Callable[[Any], bool]] = {
    "plan": lambda value: isinstance(value, Plan),
    "events": _is_events,
    "realised": lambda value: isinstance(value, list) and all(isinstance(each, Event) for each in value),
    "lost": lambda value: isinstance(value, dict) and all(map(_is_count, (*value, *value.values()))),
    "forgiven": _is_count,
    "ledger": _is_place,
    "micro_batch": lambda value: value is None or _is_count(value),
    "seed": lambda value: value is None or isinstance(value, int),
    "torch_random": lambda value: value is None or (isinstance(value, Tensor) and value.dtype == torch.uint8),
    "bound_state": _is_table,
    "post_states": lambda value: isinstance(value, list) and all(map(_is_table, value)),
    "model": _is_table,
}


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        text, written = metadata[_HEADER], metadata[_HASH]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if _hash(text, tensors) != written:
        raise CannotResume(f"{path} is damaged: it is not as it was written.{_hint(path.parent)}")
    header: dict[str, Any] = json.loads(text)
    return header, tensors


def _hash(header: str, tensors: Mapping[str, Tensor]) -> str:
    """A hash of all that a checkpoint says."""
    digest = hashlib.sha256(header.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _hint(folder: Path) -> str:
    previous = folder / PREVIOUS
    if not previous.exists():
        return ""
    return (
        f" The previous save still exists. To resume from it, rename {previous} to {CHECKPOINT}: steps drawn since "
        "then are charged again, unless the run has a seed."
    )


def pack(value: Any) -> Any:
    """What JSON can hold of a value without tensors, as a checkpoint's header has it."""
    return _pack(value, "", {})


def _pack(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Tensor):
        # A copy of its own, for tied tensors share their memory and safetensors does not.
        tensors[place] = value.detach().cpu().clone().contiguous()
        return {"$": "tensor", "at": place}
    if isinstance(value, Enum):
        return {"$": "enum", "class": _name(type(value)), "value": value.value}
    if isinstance(value, Event):
        return {"$": "event", "json": value.to_json()}
    if is_dataclass(value):
        settings = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return {"$": "stage", "class": _name(type(value)), "settings": _pack(settings, place, tensors)}
    if isinstance(value, (list, tuple)):
        items = [_pack(item, f"{place}/{i}", tensors) for i, item in enumerate(value)]
        return {"$": "tuple", "items": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        pairs = [[key, _pack(item, f"{place}/{key}", tensors)] for key, item in value.items()]
        return {"$": "dict", "pairs": pairs}
    raise InvalidArgument(
        f"A {type(value).__name__} at {place!r} cannot be saved: only numbers, text, tensors, lists, tuples, dicts and "
        "frozen dataclasses can."
    )


def _unpack(value: Any, tensors: dict[str, Tensor], stages: dict[str, type]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors, stages) for item in value]
    if not isinstance(value, dict):
        return value
    match value["$"]:
        case "tensor":
            return tensors[value["at"]]
        case "enum":
            return _class(value["class"], stages)(value["value"])
        case "event":
            return event_from_json(value["json"])
        case "stage":
            return _class(value["class"], stages)(**_unpack(value["settings"], tensors, stages))
        case "tuple":
            return tuple(_unpack(item, tensors, stages) for item in value["items"])
        case "dict":
            return {key: _unpack(item, tensors, stages) for key, item in value["pairs"]}
    raise CannotResume(f"A saved run holds no {value['$']!r}.")


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str, stages: dict[str, type]) -> Any:
    """A class by its name: one of tacit's own values, or one that the user vouches for. Nothing else is loaded."""
    if name in stages:
        return stages[name]
    module, _, member = class_now(name).partition(":")
    # A module such as tacit.__main__ does something when it is imported; none that holds values does.
    is_ours = module.startswith("tacit.") and "__" not in module
    found = getattr(importlib.import_module(module), member, None) if is_ours else None
    if isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum)) and found.__module__ == module:
        return found
    raise CannotResume(
        f"The saved run uses {name}, which is not part of tacit. Pass the class: "
        f"PrivateRun.resume(..., stages=({member or name},))."
    )


def load_model(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Give the model its saved weights."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise CannotResume(f"The saved weights do not fit this model. {error}") from error


def load_part(name: str, part: Stateful | None, state: dict[str, Any] | None) -> None:
    """Give an optimizer or a schedule its saved state, if there is one."""
    if (part is None) != (state is None):
        raise CannotResume(
            f"The run was saved {'without' if state is None else 'with'} the state of its {name}, and resume was "
            f"called {'without' if part is None else 'with'} one. Treat both alike."
        )
    if part is not None and state is not None:
        part.load_state_dict(state)


@final
class Journal:
    """The notes of one process on the steps of a saved run, so that none is forgotten in a crash.

    A step that was drawn, lost and drawn again has been released twice, unless nothing of it left the process. So the
    process notes on the disk which steps it may begin, before it begins them. Steps are noted in blocks of a thousandth
    of the run, and a crash is charged for the rest of its block too, which errs on the safe side. A save replaces all
    notes by one: the steps up to it were begun. That counts if an older save is resumed. Notes by someone
    else show that two processes continue one run, and neither would count what the other releases: the one that
    notices stops.
    """

    def __init__(self, folder: Path, steps: int, after: str | None = None) -> None:
        """`after` is what the notes were when the run was resumed; None for a run that starts a journal of its own."""
        self.folder = folder
        self._steps, self._notes = steps, after
        self._block = max(1, steps // 1000)
        self._attempt = secrets.token_hex(8)
        self._reserved, self._process = 0, os.getpid()

    def begin(self, step: int) -> None:
        """Note that `step` is about to be released; returns once the note is safe."""
        refuse_forked(self._process)
        if step >= self._reserved:
            self._reserve(step, min(step + self._block, self._steps))

    def leave(self, step: int) -> None:
        """The run is saved elsewhere from now on: a run resumed from this folder pays for all of its steps."""
        if step < self._steps:
            self._reserve(step, self._steps)

    def settle(self, saved: int, lost: Counter[int]) -> None:
        """Replace the notes after a save with `saved` steps, which stores which steps were lost before it."""
        self.refuse_unless_alone()
        note = f"{json.dumps({'saved': saved, 'lost': sorted(lost.items())})}\n" if saved or lost else ""
        write_atomic(self.folder / JOURNAL, note.encode(), is_private=True)
        self._notes, self._reserved = note, 0

    def refuse_unless_alone(self) -> None:
        """Raise `OutOfOrder` if another process continues the run, or this one is a copy of the one that began it."""
        refuse_forked(self._process)
        if self._notes is not None and notes_in(self.folder) != self._notes:
            raise OutOfOrder(
                f"{self.folder / JOURNAL} is not as this process left it: another process resumed the run, and "
                "neither would count what the other releases. Stop one of the two, and resume the run with the other."
            )

    def _reserve(self, start: int, stop: int) -> None:
        self.refuse_unless_alone()
        # The break before it keeps a note that an earlier process did not finish from spoiling this one.
        note = f"\n{json.dumps({'attempt': self._attempt, 'start': start, 'stop': stop})}\n"
        try:
            with open(self.folder / JOURNAL, "a", opener=open_private) as file:
                file.write(note)
                file.flush()
                os.fsync(file.fileno())
        finally:
            # On a full disk, half a note.
            self._notes = notes_in(self.folder)
        self._reserved = stop


def notes_in(folder: Path) -> str:
    """All notes, as they were written."""
    path = folder / JOURNAL
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def lost_steps(folder: Path, saved: int, known: Counter[int] | None = None) -> Counter[int]:
    """How often each step was drawn and lost, for a save that holds `saved` steps and counts `known` lost ones.

    Steps from `saved` on were begun by processes that died before saving them, or whose later save was replaced by
    this one.
    """
    path = folder / JOURNAL
    begun: set[tuple[str, int]] = set()
    lost: Counter[int] = Counter()
    for line in notes_in(folder).splitlines():
        match _parse_note(path, line):
            case {"attempt": str(attempt), "start": int(start), "stop": int(stop)}:
                begun.update((attempt, step) for step in range(max(start, saved), stop))
            case {"saved": int(stop), "lost": list(steps)}:
                begun.update(("saved", step) for step in range(saved, stop))
                lost.update({int(step): int(times) for step, times in steps})
            case None:
                pass
            case _:
                raise _explain_damage(path, line)
    return Counter(step for _, step in begun) + (lost - (known or Counter()))


def _parse_note(path: Path, line: str) -> object:
    """The content of a line; None for an unfinished one, whose steps were never begun."""
    try:
        return json.loads(line)
    except ValueError:
        if line.endswith("}"):
            raise _explain_damage(path, line) from None
        return None


def _explain_damage(path: Path, line: str) -> CannotResume:
    return CannotResume(
        f"{path} is damaged: it says {line[:80]!r}, so it is not known which steps were drawn since the save. If you "
        "remove the file, make sure that nothing drawn since then is used or seen."
    )
