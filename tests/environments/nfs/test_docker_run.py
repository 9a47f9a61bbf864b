"""The command as a stranger types it, with the file server of a shared store broken in three
ways while clients work.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.nfs, pytest.mark.spark]

ROOT = Path(__file__).parents[3]
FAULTS = """{"faults": [
    {"kind": "nfs-stall", "start-s": 1.0, "duration-s": 1.0, "target": "a1"},
    {"kind": "nfs-restart", "start-s": 4.0, "duration-s": 1.0, "target": "a1"},
    {"kind": "nfs-disconnect", "start-s": 9.0, "duration-s": 5.0, "target": "a1"}
]}"""


def test_no_two_lives_acknowledge_whatever_becomes_of_their_store_and_the_report_says_what_it_was(tmp_path):
    """It takes some 40 s: a whole run with three faults, as typed, and its JVM."""
    faults = tmp_path / "faults.json"
    faults.write_text(FAULTS)
    asked = [
        *("--policy", "shared-store", "--environment", "docker", "--pairs", "1", "--rate", "50"),
        *("--time-limit", "15", "--seed", "7", "--schedule", str(faults), "--store", str(tmp_path / "store")),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "harness.commands.cli", *asked, "--json"],
        cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"]["valid"]) == (0, True), done.stderr
    assert [fault["bit"] for fault in document["verdict"]["statistics"]["faults"]] == [True, True, True]
    run = Path(document["store"])
    assert "NFSv4 through FUSE, nfs-ganesha in a container, lease 4 s" in (run / "report.html").read_text()
    assert (run / "logs" / "store-a" / "ganesha.log").stat().st_size > 0
