"""The places as fixtures; tests that ask for ``place`` run on each of them."""

import pytest
from database_places import PostgresqlPlace, SimulatedPlace, SqlitePlace, start_postgresql


@pytest.fixture(scope="session")
def postgresql_server():
    server = start_postgresql()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql", "simulated"])
def place(request, tmp_path):
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    if request.param == "postgresql":
        return PostgresqlPlace(request.getfixturevalue("postgresql_server"))
    return SimulatedPlace()


@pytest.fixture
def postgresql(postgresql_server):
    return PostgresqlPlace(postgresql_server)
