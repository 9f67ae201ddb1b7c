"""Folders as `tacit train`, `tacit compare` and `tacit report` leave them, small and real; and how to read a page."""

import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_iris

from tacit.cli import main
from tacit.datasets import Data
from tacit.reports.page import write_comparison
from tacit.workflows.cells import run_job
from tacit.workflows.compare import ComparisonPlan
from tacit.workflows.defaults import resolve_settings
from tacit.workflows.settings import TrainOptions, load_data

BOUNDS = """
rows = 150   # what Dr Jones said
example = "flower"
[columns]
"sepal length (cm)" = { low = 4, high = 8 }
"petal length (cm)" = { low = 0.5, high = 8 }
target = [0, 1, 2]
"""
METHODS = ("dpsgd", "noisy_sgd", "directional", "output_perturbation", "input_perturbation")


def run_command(line: str) -> None:
    """Run a command that succeeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["tacit", *shlex.split(line)])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code


def run_in(folder: Path, how: str = "--delta 1e-4 --steps 12") -> Path:
    """A finished run on iris with its report."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    run_command(f"train iris --epsilon 3 {how} --out {folder / 'run'}")
    run_command(f"report {folder / 'run'}")
    torch.set_num_threads(before)
    return folder / "run"


def own_run_in(folder: Path) -> Path:
    """A finished run on a user's own table of flowers, with its report; the table and its bounds lie beside it."""
    path = flowers_in(folder)
    table = f"{path} --target target --bounds {folder / 'bounds.toml'}"
    run_command(f"train {table} --epsilon 8 --steps 60 --out {folder / 'run'}")
    run_command(f"report {folder / 'run'}")
    return folder / "run"


def flowers_in(folder: Path, bounds: str = BOUNDS) -> Path:
    """A user's own table of flowers, with its bounds beside it."""
    load_iris(as_frame=True).frame.to_csv(folder / "flowers.csv", index=False)
    (folder / "bounds.toml").write_text(bounds)
    return folder / "flowers.csv"


def typed(**changes) -> TrainOptions:
    """A few steps, and the changes."""
    return TrainOptions(**{"steps": 6, **changes})


def comparison_of(methods=METHODS, epsilons=(1.0,), seeds=2, name="iris", **changes) -> tuple:
    """The data, iris if no others are named, and a comparison on them."""
    given = typed(**changes)
    data, table = load_data(name, given)
    settings = resolve_settings(data, typed(epsilon=epsilons[0], **changes), table)
    return data, ComparisonPlan(given, settings, tuple(methods), ("rigorous", "paper"), tuple(epsilons), seeds)


def own_comparison_in(folder: Path, bounds: str = BOUNDS) -> Path:
    """A finished comparison of few cells on a user's own table of flowers, with its report."""
    asked = {"target": "target", "bounds": folder / "bounds.toml", "name": str(flowers_in(folder, bounds))}
    data, comparison = comparison_of(methods=("output_perturbation",), seeds=1, **asked)
    return trained(folder / "own", data, replace(comparison, modes=("rigorous",)))


def comparison_in(folder: Path) -> Path:
    """A finished comparison on iris with its report."""
    return trained(folder, *comparison_of())


def trained(folder: Path, data: Data, comparison: ComparisonPlan) -> Path:
    """The comparison with all its cells, trained in this process, and its report."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    comparison.write(data, folder, f"tacit compare {data.name} --mode both --steps 6")
    for job in comparison.list_jobs():
        run_job(job, data, comparison.options, folder)
    torch.set_num_threads(before)
    write_comparison(folder, folder)
    return folder


class Outline(HTMLParser):
    """Tags, the text of the page, and every identifier and reference."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.words, self.ids, self.labels, self.loaded, self._hidden = [], [], [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self._hidden += tag in ("script", "style")
        if "id" in values:
            self.ids.append(values["id"])
        self.labels += (values.get("aria-labelledby") or "").split()
        self.loaded += [values[name] for name in ("src", "srcset", "action", "data") if name in values]
        if tag == "link" or (tag == "a" and "href" in values):
            self.loaded += [values["href"]] if not values["href"].startswith("#") else []

    def handle_endtag(self, tag):
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._hidden:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
