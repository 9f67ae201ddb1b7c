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
from tacit.workflows.cluster import Mirror, map_on_cluster
from tacit.workflows.train import take_options

METHODS = ("objective_perturbation", "output_perturbation")
SHORT = {"epsilon": 1.0, "methods": METHODS, "seeds": 1}


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


def _train_slowly(shared, item):
    time.sleep(0.4)
    return shared * item, os.getpid()


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
        address = cluster.scheduler_address
        with cluster.get_client() as client:
            workers = set(client.run(os.getpid).values())
        # Tasks of a worker that is killed are made on another one.
        results, killed, hands = [], None, set()
        for value, process in map_on_cluster(address, _train_slowly, 10, range(9)):
            results.append(value)
            hands.add(process)
            if killed is None:
                killed = next(iter(workers - {process}))
                os.kill(killed, signal.SIGKILL)
        assert sorted(results) == [10 * item for item in range(9)]
        assert hands - {killed}

        def kill_one():
            while not store.glob("/compared/iris/cells/*.json"):
                time.sleep(0.05)
            with cluster.get_client() as client:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        tacit.compare("iris", out=out, cluster=address, **SHORT)
        killer.join()
        assert len(store.glob("/compared/iris/cells/*.json")) == 3
        assert store.exists("/compared/iris/report.html")
        # A search makes the same trials as here, and releases the best.
        how = {"epsilon": 3, "trials": 2, "steps": "20", "seed": 4}
        there = tacit.tune("iris", cluster=address, out=tmp_path / "there", **how)
    again = tacit.tune("iris", out=tmp_path / "again", **how)
    assert there.best.settings.learning_rate == again.best.settings.learning_rate
    assert there.best.score.value == again.best.score.value
    for job in (Job(method, "rigorous", 1.0, (0,)) for method in METHODS):
        there = json.loads(store.cat_file(f"/compared/iris/cells/{job.file(0)}"))
        [here] = map(json.loads, train_cells(job, load("iris"), take_options({})))
        assert without_seconds(here) == without_seconds(there)
