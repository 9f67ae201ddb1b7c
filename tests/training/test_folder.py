"""The folder of a run: what is in it, who may read it, and that a failed write loses nothing."""

import os
import stat

import pytest
import torch
from safetensors.torch import load_file

from tacit._files import write_atomic
from tacit.errors import InvalidArgument, TacitError
from tacit.training.folder import (
    SHARDS,
    RunFolder,
    find_free_folder,
    forget_shards,
    refuse_unless_free,
    refuse_unless_writable,
)


def test_a_failed_write_leaves_the_old_content_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, b"old", is_private=False)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new", is_private=False)
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_the_previous_content_can_be_kept(tmp_path):
    for content in (b"first", b"second", b"third"):
        write_atomic(tmp_path / "file", content, is_private=True, keep=tmp_path / "previous")
    assert ((tmp_path / "file").read_bytes(), (tmp_path / "previous").read_bytes()) == (b"third", b"second")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_settings_and_audits_are_private_and_the_rest_is_not(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_settings({"salt": "secret"})
    folder.write_audit({"area": 0.5})
    folder.write_metrics({"test": []})
    folder.write_model({"weight": torch.ones(2)}, {"data": "iris"})
    private = {path: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (folder.settings, folder.audit_result)}
    assert set(private.values()) == {0}
    assert stat.S_IMODE(folder.metrics.stat().st_mode) & 0o044
    assert torch.equal(load_file(folder.model)["weight"], torch.ones(2))
    assert folder.list_files() == ["settings.json", "model.safetensors", "metrics.json"]


def test_what_the_disk_refuses_is_an_error_that_says_where(tmp_path):
    (tmp_path / "run").write_text("a file where a folder should be")
    with pytest.raises(TacitError, match=r"cannot be written to .*run"):
        RunFolder(tmp_path / "run").write_metrics({})
    with pytest.raises(InvalidArgument, match="--out"):
        refuse_unless_writable(tmp_path / "run")


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuse_unless_free(tmp_path / "new")
    RunFolder(tmp_path / "runs/iris-1").write_metrics({})
    with pytest.raises(InvalidArgument, match=r"metrics\.json"):
        refuse_unless_free(tmp_path / "runs/iris-1")
    assert str(find_free_folder("iris")) == "runs/iris-2"


def test_shards_of_all_but_the_last_two_saves_are_removed(tmp_path):
    for age, name in enumerate(("third", "second", "first")):
        for rank in range(2):
            path = tmp_path / SHARDS / f"{name}-{rank}"
            path.mkdir(parents=True)
            os.utime(path, (1000 - age, 1000 - age))
    forget_shards(tmp_path, "third")
    assert sorted(one.name for one in (tmp_path / SHARDS).iterdir()) == ["second-0", "second-1", "third-0", "third-1"]
    # The save of this name is kept even if it has no shard yet.
    forget_shards(tmp_path, "fourth")
    assert sorted(one.name for one in (tmp_path / SHARDS).iterdir()) == ["third-0", "third-1"]
