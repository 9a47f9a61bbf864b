"""What all tests share: container tests say by name why they do not run, and where they must run, fail instead.

A property is about what comes out, never about how long it took: on a loaded machine an example may take any time.
"""

import functools
import os

import pytest
from hypothesis import HealthCheck, settings

from environments.docker.engine import engine_answers

settings.register_profile(
    "any machine", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


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
