"""One Spark session for all tests of the checkers."""

from __future__ import annotations

from collections.abc import Iterator

import checker_rows
import pytest
import share
from pyspark.sql import SparkSession

from checkers import session


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Read a share of the histories both ways; all of them if a test was asked for by name."""
    is_named = any("::" in argument for argument in config.args)
    checker_rows.tried = share.ALL if is_named else config.getoption(share.OPTION)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    started = session.start("local[2]", hurried=True)
    yield started
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def _judged_in_the_end() -> Iterator[None]:
    """At the end of the session, judge on columns the histories that still wait for that."""
    yield
    checker_rows.judge_those_that_wait()
