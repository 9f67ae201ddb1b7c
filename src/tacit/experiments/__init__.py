"""Experiments that anyone can repeat: a folder says what to run, what was published, and how to show both.

A target of `tacit reproduce` is a folder of `experiments/` in a clone of the repository:

    settings.toml    title, what is run, and what `--quick` and `--reduced` change
    expected.toml    what the paper reports
    experiment.py    cells(order, records), tables(order, records), pictures(order, records): see `Experiment`
    results.jsonl    one run a line, with its date and machine
    README.md        what matches and what does not; its tables stand between markers and are written by the command
    pictures/
"""

from tacit.experiments.order import Order, Size
from tacit.experiments.pages import markdown_table
from tacit.experiments.records import Cell, Record, Records, finite
from tacit.experiments.targets import Experiment, Target

__all__ = ["Cell", "Experiment", "Order", "Record", "Records", "Size", "Target", "finite", "markdown_table"]
