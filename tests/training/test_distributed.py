"""More than one process: real ones, that speak by gloo, start under torchrun, and are killed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from support import ranks, sharded_ranks
from tacit.training.distributed import Peers
from tacit.types import BoundedSum

TESTS = Path(__file__).parents[1]
CASES = [name for name in dir(ranks) if name.startswith("test_")]
# What every process ends with, before it leaves the group.
TOLD = """
import os
from pathlib import Path
Path(os.environ["RANK"]).write_text(f"{model.weight.flatten().tolist()} {run.guarantee()}")
torch.distributed.destroy_process_group()
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}


@pytest.fixture(scope="module")
def done():
    """All cases, in one process that forks the others: torch is imported once."""
    command = [sys.executable, str(TESTS / "support" / "ranks.py")]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_over_several_processes(done, case):
    assert f"{case}: passed" in done.stdout, done.stdout + done.stderr


SHARDED = [name for name in dir(sharded_ranks) if name.startswith("test_")]


@pytest.fixture(scope="module")
def done_in_shards():
    command = [sys.executable, str(TESTS / "support" / "sharded_ranks.py")]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("case", SHARDED)
def test_in_shards(done_in_shards, case):
    assert f"{case}: passed" in done_in_shards.stdout, done_in_shards.stdout + done_in_shards.stderr


def documented_script():
    page = (TESTS.parent / "docs" / "guides" / "distributed.md").read_text(encoding="utf-8")
    return re.search(r"^```py\n(# train\.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]


@pytest.mark.slow
def test_the_script_of_the_documentation_trains_one_model_under_torchrun(tmp_path):
    script = documented_script().replace("torch.distributed.destroy_process_group()\n", TOLD)
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    ended = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    first, second = ((tmp_path / rank).read_text() for rank in "01")
    assert first == second
    assert "40 of 40 planned steps were released" in first
    assert "Each of 2 processes held the same examples in the same order" in " ".join(first.split())
    assert (tmp_path / "runs" / "first").is_dir()


def test_under_torchrun_without_a_group_nobody_trains_alone(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="each would release a run of its own"):
        Peers.find()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_example_has_one_owner(size):
    lot = np.flatnonzero(np.random.default_rng(0).random(1000) < 0.3)
    parts = [Peers(rank, size).part(lot) for rank in range(size)]
    assert sorted(np.concatenate(parts)) == lot.tolist()


def test_parts_of_a_model_in_half_precision_are_added_up_in_single():
    """A part without examples has zeros in half precision, in which the others' sum would be rounded."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        found = Peers(0, 2).total(BoundedSum({"w": torch.zeros(3, dtype=torch.bfloat16)}, 1.0), 0)
        assert found.values["w"].dtype == torch.float32
    finally:
        torch.distributed.destroy_process_group()
