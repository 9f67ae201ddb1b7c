"""Comparisons and searches on a cluster: the same results as here, also when a worker is killed."""

import json
import os
import signal
import threading
import time

import fsspec
import pytest

import tacit
from tacit.errors import InvalidArgument
from tacit.workflows.cluster import Mirror, map_on_cluster

SHORT = {"epsilon": 1.0, "methods": ["objective_perturbation"], "seeds": 2}


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


def read_cells(cells):
    """What each cell says, but for the seconds that it took."""
    return {name: {key: value for key, value in cell.items() if key != "seconds"} for name, cell in cells.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("one_thread")
def test_a_comparison_on_three_workers_of_which_one_is_killed(tmp_path, monkeypatch):
    from distributed import LocalCluster

    monkeypatch.chdir(tmp_path)
    here = tacit.compare("iris", out=tmp_path / "here", workers=1, **SHORT)
    expected = read_cells({path.name: json.loads(path.read_text()) for path in (here.folder / "cells").glob("*.json")})
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
        assert len(hands - {killed}) >= 2

        def kill_one():
            while not store.glob("/compared/iris/cells/*.json"):
                time.sleep(0.05)
            with cluster.get_client() as client:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        compared = tacit.compare("iris", out=out, cluster=address, **SHORT)
        killer.join()
        names = store.glob("/compared/iris/cells/*.json")
        assert read_cells({name.rpartition("/")[2]: json.loads(store.cat_file(name)) for name in names}) == expected
        assert store.exists("/compared/iris/report.html")
        assert compared.answer.lines(compared.page)[:2] == here.answer.lines(compared.page)[:2]
        # A search makes the same trials as here, and releases the best.
        how = {"epsilon": 3, "trials": 2, "steps": "20", "seed": 4}
        there = tacit.tune("iris", cluster=address, out=tmp_path / "there", **how)
    again = tacit.tune("iris", out=tmp_path / "again", **how)
    assert there.best.settings.learning_rate == again.best.settings.learning_rate
    assert there.best.score.value == again.best.score.value
    # On another machine, without a cluster, the comparison goes on from what the store has.
    store.rm(names[0])
    tacit.compare("iris", out=out, workers=1, **SHORT)
    assert sorted(store.glob("/compared/iris/cells/*.json")) == sorted(names)
