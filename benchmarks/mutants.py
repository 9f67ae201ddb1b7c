"""Planted bugs: who catches each of them first, and whether `tacit audit` does.

    python benchmarks/mutants.py                 # resumable: what is in the folder of results is not run again
    python benchmarks/mutants.py --only NAME     # one of them, printed
    python benchmarks/mutants.py --write         # only write the table of what is known

tests/support/mutants.toml lists the bugs. Each is planted alone in a copy of the repository. Then the type checker
reads that file, the tests that are named with the bug run until one fails (which must pass without the bug), and a
user trains and audits (tests/support/mutant_trials.py). The first row is the code as it is, which nothing may blame.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from results import environment, show_table, write_section

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = ROOT / "tests" / "support" / "mutants.toml"
PAGE = Path(__file__).with_name("OUTSIDE.md")
COLUMNS = ["planted bug", "what it breaks", "type checker", "tests", "training or `tacit audit`"]
_NOT_RUN = "not run yet"
# With what mypy knows of the code as it is, if it has read it.
_COPIED = (
    ".mypy_cache",
    "src",
    "tests",
    "docs",
    "experiments",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)


@dataclass(frozen=True)
class Mutant:
    """A planted bug, and the tests that should fail."""

    name: str
    breaks: str
    file: str = ""
    old: str = ""
    new: str = ""
    tests: tuple[str, ...] = ()
    trial: str | None = None
    why: str = ""

    def planted(self, text: str) -> str:
        """The file with the bug in it."""
        if text.count(self.old) != 1:
            raise SystemExit(f"{self.name}: its old text occurs {text.count(self.old)} times in {self.file}, not once.")
        return text.replace(self.old, self.new)


def read_mutants() -> list[Mutant]:
    """All planted bugs."""
    rows = tomllib.loads(MUTANTS.read_text())["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def try_mutant(mutant: Mutant, root: Path, part: str) -> Any:
    """Plant the bug in the copy under `root`, and see whether this part notices."""
    target = root / "src" / "tacit" / mutant.file
    original = target.read_text() if mutant.file else ""
    if mutant.file:
        _replace(target, mutant.planted(original))
    try:
        found = PARTS[part](root, mutant)
    finally:
        if mutant.file:
            _replace(target, original)
    if part == "tests" and found and _run_pytest(root, [found]):
        raise SystemExit(f"{mutant.name}: {found} fails without the bug too.")
    return found


def _replace(target: Path, text: str) -> None:
    """Write the source, and forget what was compiled of it: versions of one second could be taken for each other."""
    target.write_text(text)
    Path(cache_from_source(str(target))).unlink(missing_ok=True)


def _check_types(root: Path, mutant: Mutant) -> str | None:
    """As `make lint` does: what mypy knows of the code as it is stands in its cache, so only the file is read again."""
    command = [sys.executable, "-m", "mypy"]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, "MYPYPATH": ""}, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{mutant.name}: mypy did not run.\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = [line for line in done.stdout.splitlines() if " error: " in line]
    return lines[0].partition(" error: ")[2] if lines else None


def _run_tests(root: Path, mutant: Mutant) -> str | None:
    failed = _run_pytest(root, mutant.tests) if mutant.tests else []
    return failed[0] if failed else None


def _run_pytest(root: Path, tests: Sequence[str]) -> list[str]:
    """The tests that fail: one after which the others are not run, or none."""

    def work() -> list[str]:
        import pytest

        sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "src"]
        seen, said = _Failed(), os.open(root / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        code = pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests], plugins=[seen])
        if code and not seen.names:
            raise RuntimeError(f"the tests did not run (code {code})")
        return seen.names

    found = _in_fork(root, work)
    if "error" in found:
        raise SystemExit(f"{found['error']}\n{(root / 'said.txt').read_text()[-2000:]}")
    names: list[str] = found["value"]
    return names


class _Failed:
    """What pytest says of tests that fail, or files that cannot be read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.names.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.names.append(report.nodeid)


def _in_fork(root: Path, work: Callable[[], Any]) -> dict[str, Any]:
    """What it returns in a fork of this process, which has loaded torch but not tacit; or its error."""
    import pytest  # noqa: F401
    import sklearn.linear_model  # noqa: F401 - loaded once for all forks
    import torch

    torch.set_num_threads(1)
    # The first optimizer loads much more of torch.
    torch.optim.Adam([torch.zeros(1)])
    answer = root / "answer.json"
    answer.unlink(missing_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.chdir(root)
        source, support = str(root / "src"), str(root / "tests" / "support")
        sys.path[:0] = [source, support]
        os.environ.update(MPLBACKEND="agg", PYTHONPATH=source, OMP_NUM_THREADS="1")
        try:
            answer.write_text(json.dumps({"value": work()}))
        except BaseException as error:
            answer.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    if not answer.exists():
        return {"error": "the process died"}
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def _try(root: Path, mutant: Mutant) -> dict[str, str | None]:
    """A user trains, and audits the run."""
    if mutant.trial is None and mutant.file:
        return {"by": None, "found": None}

    def work() -> Any:
        import mutant_trials

        return mutant_trials.try_in_folder([mutant.trial] if mutant.trial else [])

    found = _in_fork(root, work)
    trial: dict[str, str | None] = found.get("value") or {"by": "run time", "found": found["error"]}
    return trial


PARTS = {"types": _check_types, "tests": _run_tests, "trial": _try}


def row(mutant: Mutant, found: dict[str, Any]) -> list[str]:
    """The row of the table."""
    test, trial = found.get("tests", _NOT_RUN), found.get("trial", {"by": "", "found": None})
    is_covered = mutant.trial or not mutant.file
    text = f"{trial['by']}: {trial['found'].splitlines()[0]}" if trial["by"] else ""
    text = text or ("nothing found" if is_covered else "not covered") + (f": {mutant.why}" if mutant.why else "")
    text = _NOT_RUN if trial["by"] == "" else text
    short = text if len(text) < 220 else f"{text[:217]}..."
    return [
        mutant.name,
        mutant.breaks,
        found.get("types", _NOT_RUN) or "passes",
        "pass" if test is None else test if test == _NOT_RUN else f"`{test.split('[')[0].removeprefix('tests/')}`",
        short.replace("Releases are not as accounted for, so the proof does not apply: ", ""),
    ]


def note_date(folder: Path, part: str, name: str) -> None:
    """Remember when this was run: results of several days make one table."""
    path = folder / f"{part}-dates.json"
    dates = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**dates, name: date.today().isoformat()}, indent=1))


def describe_dates(folder: Path) -> str:
    """On which days each part was run."""
    days = {}
    for part, label in {"types": "type checker", "tests": "tests", "trial": "`tacit audit`"}.items():
        path = folder / f"{part}-dates.json"
        known = sorted(set(json.loads(path.read_text()).values())) if path.exists() else []
        days[label] = " to ".join(dict.fromkeys((known[0], known[-1]))) if known else "not yet"
    return f"When: {', '.join(f'{label} {when}' for label, when in days.items())}."


def write_table(known: dict[str, Any], mutants: list[Mutant], folder: Path, page: Path) -> None:
    """The table of what is known so far."""
    done = [known[mutant.name] for mutant in mutants if mutant.name in known and mutant.file]
    tested = [one for one in done if "tests" in one]
    tried = [one for one in done if "trial" in one]
    by_tests = sum(bool(one["tests"] or one.get("types")) for one in tested)
    by_audit = sum(one["trial"]["by"] is not None for one in tried)
    lines = [
        "## Planted bugs",
        environment(["tacit", "torch", "numpy"]),
        f"On the user's side, training or `tacit audit` catches {by_audit} of {len(tried)} planted bugs. `tacit audit` "
        "repeats a few steps after the training and looks at lots, their overlaps, the sum of each lot computed again "
        "alone, scale and repetitions of the noise, and charges. So no such check slows the training itself.",
        f"Tests or the type checker catch {by_tests} of the {len(tested)} that they were run on."
        if tested
        else "The type checker and the tests were not run on them yet.",
        describe_dates(folder),
        show_table([COLUMNS, *(row(mutant, known[mutant.name]) for mutant in mutants if mutant.name in known)]),
    ]
    write_section(page, "mutants", "\n\n".join(lines))


def _try_all(mutants: list[Mutant], found: dict[str, Any], part: str, options: argparse.Namespace) -> None:
    """Every planted bug that this part has not seen yet; what is found is kept after each."""
    copy = options.folder / f"copy-{part}"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for name in _COPIED:
        source = ROOT / name
        if not source.exists():
            continue
        shutil.copytree(source, copy / name) if source.is_dir() else shutil.copy(source, copy / name)
    for mutant in mutants:
        if mutant.name == options.only or (not options.only and mutant.name not in found):
            found[mutant.name] = try_mutant(mutant, copy, part)
            (options.folder / f"{part}.json").write_text(json.dumps(found, indent=1))
            note_date(options.folder, part, mutant.name)
            print(part, mutant.name, json.dumps(found[mutant.name]), flush=True)


def main() -> None:
    """Try every planted bug that has no result yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the name of one planted bug")
    parser.add_argument("--write", action="store_true", help="only write the table")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of types, tests and trial (all)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants", help="of copy and results")
    parser.add_argument("--output", type=Path, default=PAGE, help="a page other than OUTSIDE.md")
    options = parser.parse_args()
    mutants = [Mutant("nothing", "nothing: the code as it is"), *read_mutants()]
    known: dict[str, Any] = {}
    for part in PARTS:
        results = options.folder / f"{part}.json"
        found = json.loads(results.read_text()) if results.exists() else {}
        if part in options.parts.split(",") and not options.write:
            _try_all(mutants, found, part, options)
        for name, value in found.items():
            known.setdefault(name, {})[part] = value
    if not options.only:
        write_table(known, mutants, options.folder, options.output)


if __name__ == "__main__":
    main()
