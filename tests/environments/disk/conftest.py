"""Disk tests say by name what they miss, and where they must run (JEPSEN_RUN_REQUIRE_NFS=1: the same machines have FUSE), fail instead."""

import os

import pytest

from environments.nfs import fuse_device


@pytest.fixture(autouse=True)
def fuse():
    """A machine that can mount."""
    reason = fuse_device.missing()
    if reason and os.environ.get("JEPSEN_RUN_REQUIRE_NFS") == "1":
        pytest.fail(f"JEPSEN_RUN_REQUIRE_NFS=1, but {reason}")
    if reason:
        pytest.skip(reason)
