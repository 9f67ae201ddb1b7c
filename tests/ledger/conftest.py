"""A ledger in a file, and one on a real PostgreSQL server, which is thrown away after the tests."""

import os
import pwd
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path

import pytest

from tacit.ledger import Ledger

NUMBERS = count()


def programs() -> Path | None:
    """Where the server's programs are: initdb often stands beside the real postgres only."""
    for name in ("pg_ctl", "postgres"):
        found = shutil.which(name)
        if found is not None and Path(found).resolve().with_name("initdb").exists():
            return Path(found).resolve().parent
    return None


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
    pytest.skip("PostgreSQL refuses to run as root, and there is no other user")


@pytest.fixture(scope="session")
def server():
    """The address of a server of our own, reached through a socket in a folder of its own."""
    found = programs()
    if found is None:
        pytest.skip("no PostgreSQL server is installed here")
    user = unprivileged()
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


@pytest.fixture(scope="session")
def addresses(server):
    """A function to the address of yet another empty schema: a database without a ledger."""
    from sqlalchemy import create_engine, text

    engine = create_engine(server.replace("postgresql:", "postgresql+psycopg:"))

    def address() -> str:
        name = f"team{next(NUMBERS)}"
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        return f"{server}&options=-csearch_path%3D{name}"

    yield address
    engine.dispose()


@pytest.fixture
def address(addresses):
    return addresses()


@pytest.fixture(params=["sqlite", "postgres"])
def places(request, tmp_path):
    """A function to yet another place for a ledger: a file that is not there yet, or an empty schema of a server."""
    if request.param == "postgres":
        return request.getfixturevalue("addresses")
    return lambda: tmp_path / f"{next(NUMBERS)}.ledger"


@pytest.fixture
def place(places):
    return places()


@pytest.fixture
def ledger(place):
    return Ledger(place)


@pytest.fixture
def file(tmp_path):
    """A ledger of which it matters that it is a file."""
    return Ledger(tmp_path / "adult.ledger")
