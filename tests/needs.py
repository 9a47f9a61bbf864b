"""What a test needs of the machine.

Skipped by name where it is missing, failed where it must be there (JEPSEN_RUN_REQUIRE_<WHAT>=1).
"""

import os
import shutil

import pytest


def need(what, lack):
    """``what`` is DOCKER, POSTGRESQL, NFS, SSH or CLIENTS.

    ``lack`` says what is missing, "" if nothing is.
    """
    if lack and os.environ.get(f"JEPSEN_RUN_REQUIRE_{what}") == "1":
        pytest.fail(f"JEPSEN_RUN_REQUIRE_{what}=1, but {lack}")
    if lack:
        pytest.skip(lack)


def ssh_missing():
    """Why there can be no machines with OpenSSH servers in namespaces here; "" if there can."""
    if os.geteuid():
        return "machines with OpenSSH servers in namespaces need root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    tools = ("sshd", "nft", "ip", "unshare", "nsenter", "ssh-keygen")
    lack = [tool for tool in tools if shutil.which(tool, path=path) is None]
    return f"{', '.join(lack)} missing: .ci/install-ssh installs what is needed" if lack else ""
