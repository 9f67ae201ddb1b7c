"""Comparisons and searches on a cluster: the same results as here, also when a worker is killed."""

import json
import os
import signal
import threading
import time

import fsspec
import pytest

import tacit
from tacit.datasets import load
from tacit.errors import InvalidArgument
from tacit.workflows.cells import Job, train_cells
from tacit.workflows.cluster import Mirror
from tacit.workflows.train import take_options

METHODS = ("objective_perturbation", "output_perturbation")
SHORT = {"epsilon": 1.0, "methods": METHODS, "seeds": 2}


def test_a_mirror_fetches_and_sends_what_changed(tmp_path):
    store = fsspec.filesystem("memory")
    first, second = (Mirror("memory://mirror/one/", tmp_path / name) for name in ("a", "b"))
    (first.local / "cells").mkdir(parents=True)
    (first.local / "cells/x.json").write_text("1")
    (first.local / "plan.json").write_text("{}")
    first.push()
    second.pull()
    assert (second.local / "cells/x.json").read_text() == "1"
    (second.local / "cells/x.json").write_text("2")
    store.pipe_file("/mirror/one/plan.json", b"changed meanwhile")
    second.push()
    # Only the file that was changed here was sent.
    assert store.cat_file("/mirror/one/cells/x.json") == b"2"
    assert store.cat_file("/mirror/one/plan.json") == b"changed meanwhile"


def test_an_address_that_is_none_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="fsspec"):
        Mirror("nowhere://x/y", tmp_path)


def without_seconds(cell):
    return {key: value for key, value in cell.items() if key != "seconds"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("one_thread")
def test_a_comparison_on_three_workers_of_which_one_is_killed(tmp_path, monkeypatch):
    from distributed import LocalCluster

    monkeypatch.chdir(tmp_path)
    out, store = "memory://compared/iris", fsspec.filesystem("memory")
    with LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        address, killed = cluster.scheduler_address, []

        def kill_one() -> None:
            """Once something is trained, and somebody is still at work."""
            with cluster.get_client() as client:
                processes = client.run(os.getpid)
                while not killed:
                    busy = [worker for worker, keys in client.processing().items() if keys]
                    if busy and store.glob("/compared/iris/cells/*.json"):
                        os.kill(processes[busy[0]], signal.SIGKILL)
                        killed.append(busy[0])
                    time.sleep(0.01)

        killer = threading.Thread(target=kill_one, daemon=True)
        killer.start()
        tacit.compare("iris", out=out, cluster=address, **SHORT)
        assert killed
        assert len(store.glob("/compared/iris/cells/*.json")) == 6
        assert store.exists("/compared/iris/report.html")
        # A search makes the same trials as here, and releases the best.
        how = {"epsilon": 3, "trials": 2, "steps": "20", "seed": 4}
        there = tacit.tune("iris", cluster=address, out=tmp_path / "there", **how)
    again = tacit.tune("iris", out=tmp_path / "again", **how)
    assert there.best.settings.learning_rate == again.best.settings.learning_rate
    assert there.best.score.value == again.best.score.value
    for job in (Job(method, "rigorous", 1.0, (1,)) for method in METHODS):
        there = json.loads(store.cat_file(f"/compared/iris/cells/{job.file(1)}"))
        [here] = map(json.loads, train_cells(job, load("iris"), take_options({})))
        assert without_seconds(here) == without_seconds(there)
