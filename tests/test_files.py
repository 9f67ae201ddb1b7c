"""What tells about private examples is for its owner's eyes alone."""

import json
import stat

import pytest

from support.report_folders import run_command
from tacit._files import open_private
from tacit.training.folder import RunFolder


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--steps 3", "--recipe auto"])
def test_what_must_stay_private_can_be_read_by_its_owner_only(tmp_path, how):
    run_command(f"train iris --epsilon 3 {how} --out {tmp_path / 'run'}")
    private = {"settings.json", "run.safetensors", "run.previous.safetensors", "journal.jsonl"}
    there = {path.name: mode(path) for path in (tmp_path / "run").iterdir()}
    assert {"settings.json", "run.safetensors"} <= there.keys()
    assert {name: each for name, each in there.items() if name in private and each != 0o600} == {}
    assert there["guarantee.json"] & 0o400


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path):
    path = tmp_path / "open"
    path.write_text("old")
    path.chmod(0o644)
    with open(path, "w", opener=open_private) as file:
        file.write("new")
    assert (mode(path), path.read_text()) == (0o600, "new")


def test_what_an_audit_saw_of_members_is_closed_to_others(tmp_path):
    RunFolder(tmp_path).write_audit({"area": 0.5})
    assert mode(tmp_path / "audit/audit.json") == 0o600
    assert json.loads((tmp_path / "audit/audit.json").read_text()) == {"area": 0.5}
