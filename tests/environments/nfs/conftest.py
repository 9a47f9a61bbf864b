"""NFS tests say by name what they miss, and where they must run (JEPSEN_RUN_REQUIRE_NFS=1), fail instead."""

import os

import pytest

from environments.nfs import fuse_device, ganesha


def pytest_runtest_setup(item):
    if item.get_closest_marker("nfs") is None:
        return
    reason = ganesha.missing() or fuse_device.missing()
    if reason:
        if os.environ.get("JEPSEN_RUN_REQUIRE_NFS") == "1":
            pytest.fail(f"JEPSEN_RUN_REQUIRE_NFS=1, but {reason}")
        pytest.skip(reason)
