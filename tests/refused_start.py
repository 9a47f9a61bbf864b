"""Brokers that do not start because of their configuration."""

import subprocess
import sys

from broker import config


def refused_start(directory, table):
    """Start a broker with a configuration that it refuses, and return the line that it prints.

    It must end with the status of wrong usage, print one line, and make nothing in its directory.
    """
    (directory / "broker.toml").write_text(config.dumps(table))
    ended = subprocess.run(
        [sys.executable, "-m", "broker.daemon", "--config", str(directory / "broker.toml")],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == config.EXIT_USAGE
    assert [path.name for path in directory.iterdir()] == ["broker.toml"]
    (line,) = ended.stderr.splitlines()
    return line
