"""What all tests share: container tests say by name why they do not run, and where they must run, fail instead."""

import functools
import os

import pytest

from environments.docker.engine import engine_answers


@functools.cache
def _engine():
    return engine_answers()


def pytest_runtest_setup(item):
    if item.get_closest_marker("docker") is None:
        return
    answers, reason = _engine()
    if not answers:
        if os.environ.get("JEPSEN_RUN_REQUIRE_DOCKER") == "1":
            pytest.fail(f"JEPSEN_RUN_REQUIRE_DOCKER=1, but {reason}")
        pytest.skip(reason)
