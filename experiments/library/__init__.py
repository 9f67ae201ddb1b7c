"""Runs the experiments in the folders beside this one, for `tacit reproduce`.

A target is a folder of `experiments/` in a clone of the repository:

    settings.toml    title, what is run, and what `--quick` and `--reduced` change
    expected.toml    what the paper reports
    experiment.py    cells(order, records), tables(order, records), pictures(order, records): see `Experiment`
    results.jsonl    one run per line, with its date and machine
    README.md        what matches and what does not; `tacit reproduce` writes its tables between markers
    pictures/
"""

from experiments.library.records import Cell, Record, Records, finite
from experiments.library.running import markdown_table, summary_table
from experiments.library.targets import Experiment, Order, Size, Target

__all__ = [
    "Cell",
    "Experiment",
    "Order",
    "Record",
    "Records",
    "Size",
    "Target",
    "finite",
    "markdown_table",
    "summary_table",
]
