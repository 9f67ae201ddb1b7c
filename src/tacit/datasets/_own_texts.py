"""A user's own texts: a table with one column of texts and one of classes. All else about it is as for other tables."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np

from tacit.datasets._bounds import Bounds
from tacit.datasets._columns import MISSING, Array, Category, count_rows, refuse_problems, suggest
from tacit.datasets._data import Data, Form, TextForm, choose_held_out, encode_targets, hash_rows
from tacit.datasets._files import explain_errors
from tacit.datasets._read import name_source, read_table
from tacit.errors import InvalidArgument

# Words are numbered by a public hash from 2 on; 0 stands after the end of a text.
_PLACES, _LENGTH = 2**16, 256
_WORD = re.compile(r"[a-z0-9']+")


def load_texts(table: Any, declared: Bounds, target: str, population: int) -> Data:
    """The texts of a table, as words, with their classes. A hash of each text, or of its id, holds it out."""
    column = declared.columns.get(target)
    if not isinstance(column, Category) or len(column.values) < 2:
        raise InvalidArgument(
            f"Texts are sorted into classes, so the target {target!r} must be declared as a list of all its values."
        )
    if others := [name for name in declared.columns if name != target]:
        raise InvalidArgument(
            f"Beside the text {declared.text_column!r} only the target can be used. Declare {', '.join(others)} as "
            "{ ignore = true }."
        )
    words, labels, ids, digests = _read(table, declared, target)
    if declared.test_file is not None:
        test_words, test_labels, _, _ = _read(declared.test_file, declared, target)
        kept, out = np.ones(len(words), dtype=bool), np.zeros(len(words), dtype=bool)
    else:
        units: list[Any] = words if ids is None else ids.tolist()
        out = choose_held_out((repr(each).encode() for each in units), declared.held_out)
        kept = ~out
        test_words, test_labels = [words[row] for row in np.flatnonzero(out)], labels[out]
    train_words = [words[row] for row in np.flatnonzero(kept)]
    file = name_source(table)
    return Data(
        "texts" if isinstance(file, str) else file.name.split(".")[0],
        (_number(train_words), labels[kept]),
        (_number(test_words), test_labels),
        len(column.values),
        population=population,
        scaling="words are numbered by a public hash",
        vocabulary=(_PLACES + 2,),
        example=declared.example,
        source="your own texts",
        is_test_private=declared.test_file is None,
        is_tested=declared.test_file is not None or declared.held_out > 0,
        is_text=True,
        form=Form(TextForm(), target, column.values),
        digests=digests,
        owners=None if ids is None else (ids[kept], ids[out]),
        rows_per_unit=declared.rows_per_unit,
        words=(train_words, test_words),
    )


def _read(source: Any, declared: Bounds, target: str) -> tuple[list[list[str]], Array, Array | None, tuple[str, ...]]:
    """The words of every text, the class numbers, whose each text is, and a hash of each row."""
    wanted = [name for name in (declared.text_column, target, declared.unit) if name is not None]
    with explain_errors(name_source(source), "a table that fits its bounds", "Save it again."):
        table = read_table(source, wanted)
        absent = [name for name in wanted if name not in table.columns]
        refuse_problems(
            [f"There is no column {name!r}, which is declared.{suggest(name, table.names)}" for name in absent]
        )
        texts = [str(value) for value in table.columns[str(declared.text_column)].tolist()]
        if missing := sum(text in MISSING for text in texts):
            raise InvalidArgument(f"Column {declared.text_column!r}: {count_rows(missing)} no text. Leave them out.")
        labels = encode_targets(target, table.columns[target], declared.columns[target])
        ids = None if declared.unit is None else np.array([str(one) for one in table.columns[declared.unit].tolist()])
    return [_WORD.findall(text.lower()) for text in texts], labels, ids, hash_rows(table.columns)


def _number(texts: list[list[str]]) -> Array:
    """[texts, 256]: the first words of each, by their hash."""
    found = np.zeros((len(texts), _LENGTH), dtype=np.int64)
    for row, words in zip(found, texts, strict=True):
        row[: len(words)] = [zlib.crc32(word.encode()) % _PLACES + 2 for word in words[:_LENGTH]]
    return found
