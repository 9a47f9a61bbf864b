"""Tests of brokers of others on hosts of one's own, whole."""

import json

import pytest

from harness.commands import cli

pytestmark = [pytest.mark.ssh, pytest.mark.cluster, pytest.mark.spark, pytest.mark.in_turn]


def of(system, *words):
    return pytest.param(system, words, id=system, marks=pytest.mark.distribution(system))


@pytest.mark.parametrize(
    ("system", "words"),
    [
        of("artemis", "--policy", "replication", "--pairs", "1"),
        of("classic", "--policy", "network", "--pairs", "2"),
        of("openmq", "--policy", "conventional", "--pairs", "2"),
        of("rabbitmq", "--policy", "quorum-queues", "--pairs", "3"),
    ],
)
def test_brokers_are_brought_to_hosts_and_broken_there(ssh_bed, tmp_path, capsys, system, words):
    words = [*words, "--nemesis", "kill", "--target", "live", "--rate", "50"]
    words += ["--hosts", str(ssh_bed.hosts), "--time-limit", "20", "--store", str(tmp_path)]
    status = cli.run(["--system", system, *words])
    out = capsys.readouterr().out
    assert status in (0, 1), out  # what a broker of others does is not for our tests to judge
    run = json.loads((tmp_path / "latest" / "run.json").read_text())
    assert run["environment"] == "ssh", run
    assert "healed kill" in out
    if system == "artemis":
        assert "a2     live" in out
