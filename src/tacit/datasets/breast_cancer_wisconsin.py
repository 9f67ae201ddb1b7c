"""Breast cancer (Wisconsin, original): malignant or benign, by nine grades from 1 to 10."""

from __future__ import annotations

from tacit.datasets import Source, TrainingDefaults
from tacit.datasets._columns import Array, Number, to_columns
from tacit.datasets._files import parse_rows
from tacit.datasets._tables import PublishedTable

_NAMES = (
    "clump-thickness size-uniformity shape-uniformity adhesion epithelial-size bare-nuclei bland-chromatin nucleoli "
    "mitoses"
)
_GRADES = _NAMES.split()


def _to_columns(text: bytes) -> dict[str, Array]:
    """The original has no header; some copies have one."""
    rows = parse_rows(text)
    return to_columns(rows if rows and rows[0][0].isdigit() else rows[1:], ("id", *_GRADES, "class"))


_TABLE = PublishedTable(
    "breast-cancer-wisconsin",
    files=("breast-cancer-wisconsin.data", "breast-cancer-wisconsin.csv"),
    archives=("breast+cancer+wisconsin+original.zip",),
    rows=699,
    book={name: Number(1, 10) for name in _GRADES},
    target="class",
    labels={"2": 0, "4": 1},
    to_columns=_to_columns,
    example="sample",
    classes=("benign", "malignant"),
)
DATASET = _TABLE.dataset(
    Source.of_files(
        "https://archive.ics.uci.edu/dataset/15/breast+cancer+wisconsin+original",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/breast-cancer-wisconsin",
        {"breast-cancer-wisconsin.data": "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64"},
    ),
    TrainingDefaults("linear", lot_size=64, epochs=30, learning_rate=1.0, adam_rate=0.05),
    folders=("breast+cancer+wisconsin+original",),
)
