"""Trace a command: which files of the package its calls enter, and how often a call goes up a layer.

Importing is not walking: module and class bodies, everything called while a module is imported, and methods that
`dataclasses` generates are left out. So are decorators that pass every valid call on.
"""

import inspect
import json
import os
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

import pytest

import tacit
from tacit.cli import main

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(tacit.__file__).parent
# The file name of the frames that import a module.
_IMPORTS = "<frozen importlib._bootstrap>"
# Holds a decorator that checks the names of arguments and passes the call on.
_DECORATORS = "_other_names.py"


@dataclass
class Walk:
    """The files that were entered, in order, and the pairs (caller, called) in which the called lies higher."""

    files: list[str] = field(default_factory=list)
    turns_back: list[tuple[str, str]] = field(default_factory=list)


def read_layers() -> dict[str, int]:
    """The layer of every part of the package, as the import-linter contract lists them; 0 is the highest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each["type"] == "layers"]
    return {name.strip(): place for place, line in enumerate(layers) for name in line.replace("|", ":").split(":")}


def walk(line: str) -> Walk:
    """Run a command in this process and trace it; its exit code must be 0."""
    with pytest.MonkeyPatch.context() as patch, trace() as found:
        patch.setattr("sys.argv", ["tacit", *shlex.split(line)])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code
    return found


@contextmanager
def trace() -> Iterator[Walk]:
    """Trace all calls inside the block, in every thread."""
    tracer = _Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield tracer.walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


class _Tracer:
    def __init__(self) -> None:
        self.walk, self._layers = Walk(), read_layers()
        self._files: dict[str, str | None] = {}
        self._seen: set[tuple[str | None, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        called = self._name(frame.f_code.co_filename)
        if called is None or _is_body(frame) or _is_importing(frame):
            return
        caller = self._find_caller(frame)
        if (caller, called) in self._seen:
            return
        self._seen.add((caller, called))
        if called not in self.walk.files:
            self.walk.files.append(called)
        if caller is not None and self._layer(called) < self._layer(caller):
            self.walk.turns_back.append((caller, called))

    def _name(self, path: str) -> str | None:
        """The path inside the package; None for other files. Generated methods have the file name <string>."""
        if path not in self._files:
            is_inside = Path(path).is_relative_to(PACKAGE)
            name = Path(path).relative_to(PACKAGE).as_posix() if is_inside else None
            self._files[path] = None if name == _DECORATORS else name
        return self._files[path]

    def _find_caller(self, frame: FrameType) -> str | None:
        """The file of the package that calls, directly or through other libraries."""
        above = frame.f_back
        while above is not None:
            if (name := self._name(above.f_code.co_filename)) is not None:
                return name
            above = above.f_back
        return None

    def _layer(self, file: str) -> int:
        # The lazy names of the package itself belong to no layer, and load what is called.
        return self._layers.get(file.removesuffix(".py").split("/")[0], len(self._layers))


def _is_body(frame: FrameType) -> bool:
    """Whether the frame is the body of a module or class; only functions have optimized locals."""
    return not frame.f_code.co_flags & inspect.CO_OPTIMIZED


def walk_alone(line: str) -> Walk:
    """The same in a process of its own, in which nothing is cached or registered yet."""
    command = [sys.executable, "-m", "support.walk", line]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return Walk(found["files"], [tuple(pair) for pair in found["turns_back"]])


def _is_importing(frame: FrameType) -> bool:
    above = frame.f_back
    while above is not None:
        if above.f_code.co_filename == _IMPORTS:
            return True
        above = above.f_back
    return False


if __name__ == "__main__":
    print(json.dumps(asdict(walk(sys.argv[1]))))
