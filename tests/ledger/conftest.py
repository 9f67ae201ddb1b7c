"""A ledger in a file, and one on a real PostgreSQL server, which is thrown away after the tests."""

from itertools import count

import pytest

from support.postgres_server import NoServer, empty_schemas, serve
from tacit.ledger import Ledger

NUMBERS = count()


@pytest.fixture(scope="session")
def server():
    """The address of a server of our own."""
    try:
        with serve() as address:
            yield address
    except NoServer as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def addresses(server):
    """A function to the address of yet another empty schema."""
    with empty_schemas(server) as address:
        yield address


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
