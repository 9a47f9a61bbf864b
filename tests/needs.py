"""What a test needs of the machine.

Skipped by name where it is missing, failed where it must be there (JEPSEN_RUN_REQUIRE_<WHAT>=1).

``JEPSEN_RUN_MACHINE`` names a file that is there as soon as the machine has all that it will have,
and says then why it has not ("" where it has). Until then tests that need something of it wait, and
others are begun before them (``side_by_side``); without that name nothing is waited for.
"""

import importlib
import os
import shutil
import time
from pathlib import Path

import pytest

OF_THE_MACHINE = frozenset({"docker", "fuse", "nfs", "ssh", "postgresql", "database_server", "distribution"})
"""Markers of tests that need something of it; some others find that out when they begin."""

_AGAIN_S = 0.2


def machine_is_ready():
    """Whether nothing is to be waited for."""
    word = os.environ.get("JEPSEN_RUN_MACHINE")
    return not word or Path(word).exists()


def _wait_for_the_machine():
    while not machine_is_ready():
        time.sleep(_AGAIN_S)
    word = os.environ.get("JEPSEN_RUN_MACHINE")
    if word and (trouble := Path(word).read_text().strip()):
        pytest.fail(f"the machine is not as it should be: {trouble}")


def need(what, lacking):
    """``what`` is DOCKER, POSTGRESQL, NFS, SSH, CLIENTS, or a system whose distribution is needed.

    ``lacking()`` says what is missing, "" if nothing is.
    """
    _wait_for_the_machine()
    lack = lacking()
    if lack and os.environ.get(f"JEPSEN_RUN_REQUIRE_{what}") == "1":
        pytest.fail(f"JEPSEN_RUN_REQUIRE_{what}=1, but {lack}")
    if lack:
        pytest.skip(lack)


def need_distribution(system, series=""):
    """Of that system under test; nothing fetches one but ``.ci/install-brokers``, where it can.

    Of the newest series without a name, else of that older one; its home is returned.
    """
    variable = importlib.import_module(f"harness.systems.{system}.distribution").HOME
    if series:
        variable = variable.replace("_HOME", f"_{series}_HOME")
    home = os.environ.get(variable, "")

    def lacking():
        if home and Path(home).is_dir():
            return ""
        where = f"is {home}, which is not there" if home else "names none"
        return f"no distribution of {system}: {variable} {where}"

    need(system.upper(), lacking)
    return home


def ssh_missing():
    """Why there can be no machines with OpenSSH servers in namespaces here; "" if there can."""
    if os.geteuid():
        return "machines with OpenSSH servers in namespaces need root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    tools = ("sshd", "nft", "ip", "unshare", "nsenter", "ssh-keygen")
    lack = [tool for tool in tools if shutil.which(tool, path=path) is None]
    return f"{', '.join(lack)} missing: .ci/install-ssh installs what is needed" if lack else ""
