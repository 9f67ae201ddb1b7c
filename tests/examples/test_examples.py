"""Every program in examples/ runs in a folder of its own and leaves what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
LEAVES = {"tensorboard_callback": "logs/events.out.*", "mlflow_callback": "mlruns/*/*/artifacts/guarantee.json"}


@pytest.mark.slow
@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_a_program(program, tmp_path):
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    assert list(tmp_path.glob("runs/*/model.safetensors"))
    assert list(tmp_path.glob(LEAVES[program.stem]))
