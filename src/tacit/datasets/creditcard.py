"""Credit-card fraud: is a transaction fraudulent?"""

from __future__ import annotations

import numpy as np

from tacit.datasets import Remote, Source, TrainingDefaults
from tacit.datasets._columns import Array, Number
from tacit.datasets._tables import PublishedTable, parse_with_header


def _to_columns(text: bytes) -> dict[str, Array]:
    """OpenML puts the class in single quotes."""
    columns = parse_with_header(text)
    return {name: np.array([str(value).strip("'") for value in values]) for name, values in columns.items()}


_TABLE = PublishedTable(
    "creditcard",
    files=("creditcard.csv",),
    archives=("creditcardfraud.zip",),
    rows=284_807,
    # V1 to V28 are principal components; nothing else is published about them.
    book={
        "Amount": Number(0, 25_000, logarithmic=True),
        **{f"V{number}": Number(-10, 10) for number in range(1, 29)},
    },
    target="Class",
    labels={"0": 0, "1": 1},
    to_columns=_to_columns,
    example="transaction",
    classes=("genuine", "fraud"),
)
_REMOTE = Remote(
    "https://www.openml.org/data/get_csv/1673544/phpKo8OWT",
    "creditcard.csv",
    "a57f43b36bd695c8e984f481d9309c08a635e726068007f8d1751933e6866d86",
)
DATASET = _TABLE.dataset(
    Source("https://www.openml.org/d/1597", (_REMOTE,)),
    TrainingDefaults("linear", lot_size=2_048, epochs=10, learning_rate=1.0, adam_rate=0.02),
)
