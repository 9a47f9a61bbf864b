"""A test of Artemis on hosts of one's own, whole."""

import json
import os

import pytest

from harness.commands import cli
from harness.systems.artemis import distribution

pytestmark = [pytest.mark.ssh, pytest.mark.cluster, pytest.mark.spark]


@pytest.mark.skipif(
    not os.environ.get(distribution.HOME),
    reason=f"no distribution of Artemis: {distribution.HOME} names none",
)
def test_brokers_are_brought_to_hosts_and_broken_there(ssh_bed, tmp_path, capsys):
    words = [
        "--policy",
        "replication",
        "--pairs",
        "1",
        "--nemesis",
        "kill",
        "--target",
        "live",
        "--rate",
        "50",
    ]
    words += ["--hosts", str(ssh_bed.hosts), "--time-limit", "20", "--store", str(tmp_path)]
    status = cli.run(["--system", "artemis", *words])
    out = capsys.readouterr().out
    assert status in (0, 1), out  # what a broker of others does is not for our tests to judge
    run = json.loads((tmp_path / "latest" / "run.json").read_text())
    assert run["environment"] == "ssh", run
    assert "a2     live" in out
