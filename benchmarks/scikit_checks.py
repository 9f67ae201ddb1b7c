"""scikit-learn's own checks over every estimator, at epsilon 1 and with hardly any noise: writes OUTSIDE.md.

    python benchmarks/scikit_checks.py
    python benchmarks/scikit_checks.py --only PrivateLinearSVC   # some of them, printed

The estimators are those of tests/estimators/test_scikit_learn.py, with declared bounds. Every check that fails is named
with its reason; a failure without a reason here is an error.
"""

from __future__ import annotations

import argparse
import os
import runpy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest

import torch
from sklearn.base import clone

from results import environment, show_table, write_section

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("OUTSIDE.md")
COLUMNS = ["estimator", "settings", "ε", "checks passed", "failed", "skipped", "which failed"]
LISTED = ROOT / "tests" / "estimators" / "test_scikit_learn.py"
# What is the same for all, or is the other column.
_COMMON = {"epsilon", "delta", "random_state"}

# Why a check may fail, by its name. At epsilon 1 only:
_NOISE = "With the same settings and hardly any noise it passes, so the noise is what is in the way"
NOISY = {
    "check_classifiers_train": "it wants an accuracy above 0.83 on 300 rows of three classes and on 200 rows of two. "
    + _NOISE,
    "check_regressors_train": "it wants a score above 0.5 on 200 rows of ten columns, of which one says something "
    f"about the target. {_NOISE}",
}
# With any epsilon:
ALWAYS = {
    "check_class_weight_classifiers": "class weights are refused: weights let one example count for many, and balanced "
    "ones count private labels",
}


@dataclass(frozen=True)
class Outcome:
    """What the checks of one estimator came to."""

    passed: int
    skipped: int
    failed: dict[str, str]

    def unexplained(self, *, is_noisy: bool) -> list[str]:
        """Failures that no reason is given for."""
        reasons = ALWAYS | (NOISY if is_noisy else {})
        return [name for name in self.failed if name.partition(" ")[0] not in reasons]


def list_estimators() -> list[Any]:
    """Every estimator, with hardly any noise."""
    return list(runpy.run_path(str(LISTED))["ESTIMATORS"])


def at_one(estimator: Any) -> Any:
    """The same at epsilon 1 and delta 1e-5, so that only noise makes a difference."""
    return clone(estimator).set_params(epsilon=1.0, delta=1e-5)


def run_checks(estimator: Any, *, wanted: Callable[[str], bool] = lambda _: True) -> Outcome:
    """All checks, or those whose names are wanted."""
    from sklearn.utils.estimator_checks import estimator_checks_generator

    # Else it passes over the arrays of other libraries.
    os.environ["SCIPY_ARRAY_API"] = "1"
    passed, skipped, failed = 0, 0, dict[str, str]()

    for each, check in estimator_checks_generator(estimator, legacy=True):
        name = getattr(check, "func", check).__name__
        variant = " ".join(f"{key}={value}" for key, value in getattr(check, "keywords", {}).items())
        if not wanted(name):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(each)
        except SkipTest:
            skipped += 1
        except Exception as error:  # whatever a check raises is its verdict
            failed[f"{name} {variant}".strip()] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        else:
            passed += 1
    return Outcome(passed, skipped, failed)


def describe_settings(estimator: Any) -> str:
    """The settings that are not the default ones."""
    defaults = type(estimator)().get_params()
    mine = estimator.get_params()
    own = [name for name, value in mine.items() if name not in _COMMON and repr(value) != repr(defaults[name])]
    return ", ".join(f"{name}={mine[name]!r}" for name in own)


def list_rows(only: Sequence[str], unexplained: list[str], seen: dict[str, str]) -> Iterator[list[str]]:
    """A row for each estimator and epsilon."""
    for quiet in list_estimators():
        name = type(quiet).__name__
        if only and name not in only:
            continue
        for estimator, is_noisy in ((at_one(quiet), True), (quiet, False)):
            found = run_checks(estimator)
            seen |= found.failed
            unexplained += [f"{name}: {one}: {found.failed[one]}" for one in found.unexplained(is_noisy=is_noisy)]
            row = [
                name, describe_settings(estimator), f"{estimator.epsilon:g}", str(found.passed), str(len(found.failed)),
                str(found.skipped), ", ".join(dict.fromkeys(one.partition(" ")[0] for one in found.failed)),
            ]  # fmt: skip
            print(*row, sep=" | ", flush=True)
            for check, why in found.failed.items():
                print("   ", check, why, flush=True)
            yield row


def describe(rows: Sequence[Sequence[str]], seen: dict[str, str], unexplained: Sequence[str]) -> str:
    """The section of the page."""
    passed, failed = (sum(int(row[column]) for row in rows) for column in (3, 4))
    reasons = {**ALWAYS, **{name: f"at ε = 1 only: {why}" for name, why in NOISY.items()}}
    bases = dict.fromkeys(name.partition(" ")[0] for name in seen)
    lines = [f"- `{name}`: {reasons[name]}." for name in bases if name in reasons]
    return "\n\n".join([
        "## scikit-learn's checks of the estimators",
        environment(["tacit", "scikit-learn", "numpy"]),
        f"{passed:,} checks passed and {failed} failed, of these {len(unexplained)} without a reason.",
        show_table([COLUMNS, *rows]),
        "Why checks fail:",
        "\n".join([*lines, *(f"- **{line}**" for line in unexplained)]) or "- none fails",
    ])  # fmt: skip


def main() -> None:
    """Run all checks, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="names of estimators; printed and not written")
    parser.add_argument("--output", type=Path, default=PAGE, help="a page other than OUTSIDE.md")
    options = parser.parse_args()
    # Small models: several threads would wait for each other.
    torch.set_num_threads(1)
    unexplained, seen = list[str](), dict[str, str]()
    rows = list(list_rows(options.only, unexplained, seen))
    section = describe(rows, seen, unexplained)
    if options.only:
        print(section)
    else:
        write_section(options.output, "scikit-learn", section)
    if unexplained:
        raise SystemExit(f"{len(unexplained)} checks fail without a reason: see the table.")


if __name__ == "__main__":
    main()
