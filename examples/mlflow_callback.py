"""Record a private run with MLflow: `python examples/mlflow_callback.py`, then `mlflow ui`.

Needs `pip install "tacit[examples]"`. Parameters, the test score and the guarantee may be recorded; values computed
from a private lot may not.
"""

from __future__ import annotations

import mlflow

import tacit
from tacit.training.fit import Step


def log_epsilon(step: Step) -> None:
    """Record the epsilon spent so far, every ten steps."""
    if step.number % 10 == 0:
        mlflow.log_metric("epsilon_spent", step.run.guarantee().epsilon(delta=1e-5), step=step.number)


def main() -> None:
    """Train on iris, and record options, score and guarantee."""
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    options = {"epsilon": 3, "steps": 40, "lot_size": 32}
    with mlflow.start_run(run_name="iris"):
        mlflow.log_params(options)
        run = tacit.train("iris", out="runs/mlflow", callbacks=[log_epsilon], **options)
        mlflow.log_metric("test_accuracy", run.score.value)
        mlflow.log_text(run.guarantee.to_json(), "guarantee.json")
    print(run.score, run.guarantee.epsilon(delta=1e-5))


if __name__ == "__main__":
    main()
