"""Work on other machines through joblib: `map_on_cluster` for Dask or Ray, and `Mirror` for results in an object store.

A task depends on nothing but what a worker is sent, so if its worker dies it is made again on another one. Workers
return results and write nothing; the process that asked writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import joblib
import torch

from tacit.errors import InvalidArgument, TacitError

_RAY = "ray://"


def map_on_cluster(
    address: str, function: Callable[[Any, Any], Any], shared: Any, items: Iterable[Any], *, in_order: bool = False
) -> Generator[Any, None, None]:
    """`function(shared, item)` of every item, on the workers of a cluster; as they are done, unless `in_order`.

    `address` is that of a Dask scheduler, such as tcp://10.0.0.1:8786, or of Ray, such as ray://10.0.0.1:10001.
    `shared` is sent to every worker once.
    """
    how = "generator" if in_order else "generator_unordered"
    with _connect(address, shared), joblib.parallel_config(n_jobs=-1):
        tasks = (joblib.delayed(_call)(function, shared, item) for item in items)
        # Closed without all results, it cancels the other tasks.
        with closing(joblib.Parallel(return_as=how, batch_size=1, pre_dispatch="all")(tasks)) as results:
            yield from results


def _call(function: Callable[[Any, Any], Any], shared: Any, item: Any) -> Any:
    """What a worker does: one thread, as in local processes, so that the results are the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return function(shared, item)
    finally:
        torch.set_num_threads(before)


@contextmanager
def _connect(address: str, shared: Any) -> Iterator[None]:
    """Use this cluster in `joblib.Parallel`."""
    if address.startswith(_RAY):
        with _connect_ray(address):
            yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise InvalidArgument("--cluster needs Dask. Run: pip install 'tacit[dask]'.") from error
    try:
        client = Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"There is no Dask scheduler at {address}: {error}. Give its address, such as tcp://10.0.0.1:8786; that of "
            f"Ray begins with {_RAY}."
        ) from error
    # A copy on every worker: data on a single one would be lost with it.
    with client, joblib.parallel_config("dask", client=client, scatter=[shared]):
        yield


@contextmanager
def _connect_ray(address: str) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise InvalidArgument("A cluster of Ray needs its package. Run: pip install ray.") from error
    try:
        ray.init(address)
    except ConnectionError as error:
        raise InvalidArgument(f"There is no Ray cluster at {address}: {error}.") from error
    try:
        register_ray()
        with joblib.parallel_config("ray"):
            yield
    finally:
        ray.shutdown()


def is_remote(place: str | Path | None) -> bool:
    """Whether this is the address of an object store, such as s3://bucket/comparison, and not a path."""
    return isinstance(place, str) and "://" in place


class Mirror:
    """A local copy of a folder in an object store, by fsspec. `push` sends what is new; nothing remote is deleted."""

    def __init__(self, address: str, local: Path) -> None:
        self.address = address.rstrip("/")
        self.local = local / hashlib.sha256(self.address.encode()).hexdigest()[:12]
        self._sent: dict[str, bytes] = {}
        try:
            import fsspec

            self._files, self._root = fsspec.core.url_to_fs(self.address)
        except ImportError as error:
            raise InvalidArgument(
                f"{address} needs fsspec, and the package of its store ({error}). Run: pip install fsspec, and s3fs or "
                "gcsfs."
            ) from error
        except ValueError as error:
            raise InvalidArgument(f"{address} is no address that fsspec knows: {error}.") from error

    def pull(self) -> None:
        """Fetch every file that is in the store."""
        with self._explain("read"):
            found = self._files.find(self._root) if self._files.exists(self._root) else []
            for path in found:
                name = str(path)[len(str(self._root)) :].lstrip("/")
                content = bytes(self._files.cat_file(path))
                target = self.local / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                self._sent[name] = _hash(content)

    def push(self) -> None:
        """Send every file that is new or was changed."""
        for path in sorted(self.local.rglob("*")):
            name = path.relative_to(self.local).as_posix()
            if path.is_file() and not name.endswith(".unfinished"):
                content = path.read_bytes()
                if self._sent.get(name) != _hash(content):
                    with self._explain("write"):
                        self._files.makedirs(f"{self._root}/{name}".rpartition("/")[0], exist_ok=True)
                        self._files.pipe_file(f"{self._root}/{name}", content)
                    self._sent[name] = _hash(content)

    @contextmanager
    def _explain(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TacitError(
                f"{self.address} cannot be {what}: {error}. What is finished is kept in {self.local}, and the same "
                "command continues."
            ) from error


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
