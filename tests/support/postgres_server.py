"""A real PostgreSQL server of our own, reached through a socket in a folder of its own, and thrown away afterwards."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path


class NoServer(Exception):  # noqa: N818
    """A server cannot be run here."""


def programs() -> Path:
    """Where the server's programs are: initdb often stands beside the real postgres only."""
    for name in ("pg_ctl", "postgres"):
        found = shutil.which(name)
        if found is not None and Path(found).resolve().with_name("initdb").exists():
            return Path(found).resolve().parent
    raise NoServer("no PostgreSQL server is installed here")


def unprivileged() -> dict[str, object]:
    """As whom the server runs: it refuses to be root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NoServer("PostgreSQL refuses to run as root, and there is no other user")


@contextmanager
def serve() -> Iterator[str]:
    """Run a server; its address."""
    found, user = programs(), unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="tacit-pg-", dir="/tmp"))
    try:
        if user:
            os.chown(folder, user["user"], user["group"])
        data, options = folder / "data", {**user, "cwd": folder, "check": True, "capture_output": True}
        subprocess.run([found / "initdb", "-D", data, "-A", "trust", "-U", "tacit", "--no-sync"], **options)
        settings = f"-k {folder} -c listen_addresses= -c max_connections=30 -c shared_buffers=8MB"
        control = [found / "pg_ctl", "-D", data, "-w"]
        # Its output must not be a pipe: the server would keep it open.
        subprocess.run([*control, "-l", folder / "log", "-o", settings, "start"], **options | {"capture_output": False})
        try:
            yield f"postgresql://tacit@/postgres?host={folder}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def empty_schemas(server: str) -> Iterator[Callable[[], str]]:
    """A function to the address of yet another empty schema: a database without a ledger."""
    from sqlalchemy import create_engine, text

    engine = create_engine(server.replace("postgresql:", "postgresql+psycopg:"))
    numbers = count()

    def address() -> str:
        name = f"team{os.getpid()}_{next(numbers)}"
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        return f"{server}&options=-csearch_path%3D{name}"

    yield address
    engine.dispose()
