"""One Spark session for all tests of the checkers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from checkers import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    started = session.start("local[2]", hurried=True)
    yield started
    session.stop()
