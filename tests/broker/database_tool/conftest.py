"""The PostgreSQL server of tests, as for the drivers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "database"))

from database_places import PostgresqlPlace, start_postgresql


@pytest.fixture(scope="session")
def postgresql_server():
    server = start_postgresql()
    yield server
    server.stop()


@pytest.fixture
def postgresql(postgresql_server):
    return PostgresqlPlace(postgresql_server)
