"""Linear estimators on a million rows: in single precision, in a file, sparse; time and memory beyond the table.

    python benchmarks/large_arrays.py

Every fit has a process of its own, which makes the table, notes what it holds, and fits. The same fit on a copy in
double precision is beside it, and scikit-learn's. The table replaces what stands between this script's markers in
RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import THREADS, deliver, environment, show_table

ROWS, COLUMNS, DENSITY = 1_000_000, 100, 0.05
FORMS = ("single precision", "single precision, in a file", "double precision", "sparse (CSR)")
MODELS = ("PrivateLogisticRegression", "PrivateLinearSVC", "LogisticRegression")
PACKAGES = ("tacit", "scikit-learn", "numpy", "scipy")
_PIECE = 10_000


def make_table(form: str, rows: int, folder: Path) -> tuple[Any, Any]:
    """Rows of norm about 1, and the sign of a noisy score of each."""
    import numpy as np
    from scipy import sparse

    rng, theta = np.random.default_rng(0), np.random.default_rng(1).normal(size=COLUMNS)
    labels, parts = np.empty(rows, dtype=np.int64), []
    kind = np.float64 if form == "double precision" else np.float32
    if form.endswith("file"):
        table: Any = np.memmap(folder / "table", dtype=kind, mode="w+", shape=(rows, COLUMNS))
    else:
        table = None if form.startswith("sparse") else np.empty((rows, COLUMNS), dtype=kind)
    for start in range(0, rows, _PIECE):
        some = rng.normal(size=(min(_PIECE, rows - start), COLUMNS)) / COLUMNS**0.5
        if table is None:
            some *= rng.random(some.shape) < DENSITY
            parts.append(sparse.csr_matrix(some.astype(np.float32)))
        else:
            table[start : start + _PIECE] = some
        labels[start : start + _PIECE] = some @ theta + 0.3 * rng.normal(size=len(some)) > 0
    return (sparse.vstack(parts, format="csr") if table is None else table), labels


def read_memory(field: str) -> int:
    """Bytes of this process that no file holds (RssAnon), or the most that it ever held (VmHWM)."""
    return int(re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1]) * 1024


def fit(name: str, form: str, rows: int) -> dict[str, float]:
    """Fit in this process."""
    from sklearn.linear_model import LogisticRegression

    from tacit import estimators

    with tempfile.TemporaryDirectory() as folder:
        table, labels = make_table(form, rows, Path(folder))
        if name == "LogisticRegression":
            model: Any = LogisticRegression(C=1e-3)
        else:
            model = getattr(estimators, name)(epsilon=1.0, data_norm=1.5, classes=[0, 1], random_state=0)
        few = table[:1000]
        (LogisticRegression() if name == "LogisticRegression" else type(model)(**model.get_params())).fit(
            few, labels[:1000]
        )
        if form.endswith("file"):
            table.flush()
        Path("/proc/self/clear_refs").write_text("5")
        before, start = read_memory("VmRSS"), time.process_time()
        model.fit(table, labels)
        seconds, most = time.process_time() - start, read_memory("VmHWM")
        score = model.score(table[: 10 * _PIECE], labels[: 10 * _PIECE])
    return {"seconds": seconds, "more": most - before, "score": score}


def main() -> None:
    """Fit every model on every form of the table, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--fit", nargs=2, metavar=("MODEL", "FORM"), help="one fit, in this process, as JSON")
    parser.add_argument("--print", dest="printed", action="store_true", help="print the section and write no file")
    parser.add_argument("--output", type=Path, help="the file whose section is rewritten (default: RESULTS.md here)")
    chosen = parser.parse_args()
    if chosen.fit:
        print(json.dumps(fit(*chosen.fit, chosen.rows)))
        return
    lines = [["estimator", "table", "processor time", "memory beyond the table", "accuracy"]]
    for name in MODELS:
        for form in FORMS:
            command = [sys.executable, __file__, "--rows", str(chosen.rows), "--fit", name, form]
            told = {**os.environ, **dict.fromkeys(THREADS, "1")}
            found = json.loads(subprocess.run(command, env=told, check=True, capture_output=True, text=True).stdout)
            megabytes = f"{max(found['more'], 0) / 1e6:.0f} MB"
            lines.append([name, form, f"{found['seconds']:.1f} s", megabytes, f"{100 * found['score']:.2f} %"])
            print(lines[-1], flush=True)
    sizes = f"{chosen.rows:,} rows of {COLUMNS} columns: {chosen.rows * COLUMNS * 4 / 1e6:,.0f} MB in single precision"
    about = (
        f"{sizes}; the sparse table has {100 * DENSITY:g} % of the entries. Memory is the largest resident size during "
        "the fit less that before it; of a table in a file, pages that the system keeps count too."
    )
    os.environ.update(dict.fromkeys(THREADS, "1"))
    parts = ["## Estimators on a million rows", environment(PACKAGES), about, show_table(lines)]
    deliver("large arrays", "\n\n".join(parts), chosen.output, chosen.printed)


if __name__ == "__main__":
    main()
