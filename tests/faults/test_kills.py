"""Runs that are killed at random moments lose nothing; and the script that kills them notices when they do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "kill_many.py"


@pytest.mark.slow
def test_three_kills_lose_nothing():
    command = [sys.executable, str(SCRIPT), "--kills", "3", "--seed", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("the ledger was whole and right after every kill", "was noticed", "none was lost"):
        assert words in done.stdout
