"""Every program in examples/ runs in a folder of its own, prints what it promises and leaves what it promises."""

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
LEAVES = {
    "tensorboard_callback": ("runs/*/model.safetensors", "logs/events.out.*"),
    "mlflow_callback": ("runs/*/model.safetensors", "mlruns/*/*/artifacts/guarantee.json"),
    "team_ledger": ("team.ledger", "runs/anna/model.safetensors", "runs/carl/model.safetensors"),
}
# What is printed, as a pattern. Accuracies must be far above that of the majority class.
PRINTS = {
    "pytorch_cnn": r"test accuracy [89]\d\.\d %\nProven: epsilon 3 at delta 1e-05",
    "pytorch_lstm": r"test accuracy [6-9]\d\.\d %\nProven: epsilon 4 at delta 1e-05",
    "own_dataset": r"(?s)Proven: epsilon 2 at delta 0\.0001.*sampler.*training accuracy [789]\d\.\d % \(private\)",
    "sklearn_pipeline": r"(?s)test accuracy [789]\d\.\d %.*surface=rough.*Proven: epsilon 2 at delta 1e-05",
    "audit_own_training": r"(?s)train\n.*Verdict: claim broken.*train_repaired\n.*Verdict: not contradicted",
    "team_ledger": r"(?s)Carl is refused: .*--epsilon [\d.]+ would fit.*All together: epsilon 2\.\d+ of 3",
    "mlflow_callback": "accuracy",
    "tensorboard_callback": "accuracy",
}


# MLflow asks SQLAlchemy for a way of loading that is to go.
@pytest.mark.filterwarnings("ignore:.*noload:DeprecationWarning")
@pytest.mark.slow
@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_a_program(program, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(program)])
    runpy.run_path(str(program), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(PRINTS[program.stem], printed), printed
    for pattern in LEAVES.get(program.stem, ()):
        assert list(tmp_path.glob(pattern)), pattern


def test_every_example_is_listed_in_the_readme():
    listed = re.findall(r"^\| `(\w+)\.py`", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == [path.stem for path in EXAMPLES]
