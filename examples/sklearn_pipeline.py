"""A private model of a table with numbers and categories, in scikit-learn: `python examples/sklearn_pipeline.py`.

`scale="bounds"` scales and encodes the columns from what is declared, so that no scaler is fitted on private rows.
"""

from __future__ import annotations

import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tacit.estimators import PrivateLogisticRegression

BOUNDS = {"mean radius": (0, 40), "mean texture": (0, 50), "mean area": {"low": 0, "high": 3000, "log": True}}


def choose_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep three columns and add a category; each row by itself."""
    kept = frame[["mean radius", "mean texture", "mean area"]]
    return kept.assign(surface=frame["mean smoothness"].gt(0.1).map({True: "rough", False: "smooth"}))


def main() -> None:
    """Fit, score on rows that are treated as public, and print what is proven."""
    data = load_breast_cancer(as_frame=True)
    train, test, labels, test_labels = train_test_split(data.data, data.target, test_size=150, random_state=0)
    model = make_pipeline(
        FunctionTransformer(choose_columns),
        PrivateLogisticRegression(
            epsilon=2.0,
            delta=1e-5,
            classes=[0, 1],
            scale="bounds",
            bounds={**BOUNDS, "surface": ["rough", "smooth"]},
            method="objective",  # has one weight per column; the default, a recipe, has features of its own
        ),
    )
    model.fit(train, labels)
    print(f"test accuracy {100 * model.score(test, test_labels):.1f} %")
    for name, weight in zip(model[-1].encoded_names_, model[-1].coef_[0], strict=True):
        print(f"{name:>16} {weight:+.2f}")
    print(model[-1].guarantee_)


if __name__ == "__main__":
    main()
