"""What a test needs of the machine.

Skipped by name where it is missing, failed where it must be there (JEPSEN_RUN_REQUIRE_<WHAT>=1).
"""

import os

import pytest


def need(what, lack):
    """``what`` is DOCKER, POSTGRESQL, NFS or CLIENTS.

    ``lack`` says what is missing, "" if nothing is.
    """
    if lack and os.environ.get(f"JEPSEN_RUN_REQUIRE_{what}") == "1":
        pytest.fail(f"JEPSEN_RUN_REQUIRE_{what}=1, but {lack}")
    if lack:
        pytest.skip(lack)
