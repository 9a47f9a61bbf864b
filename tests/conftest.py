"""What all tests share: container tests say by name why they do not run, and where they must run, fail instead.

A property is about what comes out, never about how long it took: on a loaded machine an example may take any time.
"""

import functools

import pytest
from hypothesis import HealthCheck, settings
from needs import need

from environments import ganesha
from environments.docker.engine import engine_answers
from filesystems.fuse import device as fuse_device

settings.register_profile(
    "any machine", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


TOGETHER = (
    ("docker", ("docker",), ()),
    ("files", ("nfs", "fuse"), ()),
    ("spark", ("spark",), ("spark",)),
    ("postgresql", (), ("postgresql_server", "place")),
)
"""What is not run beside its own kind where tests run side by side (``pytest -n 4 --dist loadgroup``): its name, the markers that ask for it, the fixtures that do. Of
several the first counts."""


@pytest.hookimpl(tryfirst=True)  # xdist takes the groups after us
def pytest_collection_modifyitems(items):
    for item in items:
        for name, markers, fixtures in TOGETHER:
            marked = any(item.get_closest_marker(marker) for marker in markers)
            if marked or any(fixture in item.fixturenames for fixture in fixtures):
                item.add_marker(pytest.mark.xdist_group(name))
                break


@functools.cache
def _engine():
    return engine_answers()


def pytest_runtest_setup(item):
    if item.get_closest_marker("docker") is not None:
        answers, reason = _engine()
        need("DOCKER", "" if answers else reason)
    if item.get_closest_marker("fuse") is not None:
        need("NFS", fuse_device.missing())  # the machines that have file servers have FUSE
    if item.get_closest_marker("nfs") is not None:
        need("NFS", ganesha.missing() or fuse_device.missing())
