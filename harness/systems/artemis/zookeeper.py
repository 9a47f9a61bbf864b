"""The ZooKeeper server in which brokers of policy ``lock-manager`` hold their locks.

Artemis brings ZooKeeper's client but no server: jars that a server needs are missing. Spark, whose
JVM judges our histories, has a complete one, so Spark's is used.
"""

from __future__ import annotations

import fnmatch
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.interface import Address, Layout

HOME: Final = "zookeeper"
"""Its name among ``Provision.directories``."""

NAME: Final = "zk1"
PORT: Final = 2181
TICK_MS: Final = 500
"""The tick: sessions end at multiples of it, and last at least two."""

_HEAP: Final = "64m"
_JARS: Final = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "netty-buffer-*.jar",
    "netty-common-*.jar",
    "netty-handler-[0-9]*.jar",
    "netty-transport-[0-9]*.jar",
)
_CONFIGURATION: Final = """tickTime={tick_ms}
maxSessionTimeout=60000
dataDir={data}
clientPortAddress={host}
clientPort={port}
admin.enableServer=false
"""


def home() -> Path:
    """Return where Spark's jars are on this machine."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return Path(spark.origin).parent / "jars"


def left_out() -> Iterator[str]:
    """Return the names of the jars that ZooKeeper does not need."""
    needed = {*_jars()}
    return (path.name for path in home().iterdir() if path.name not in needed)


def files(layout: Layout, listen: Mapping[str, Address], log: bytes, hosts: bytes) -> dict[str, bytes]:
    """Return the content of each file by name.

    ``log`` is the configuration of its log, ``hosts`` the names that it resolves.
    """
    at = listen["cluster"]
    text = _CONFIGURATION.format(tick_ms=TICK_MS, data=layout.data, host=at.host, port=at.port)
    words = (
        f"-Xms{_HEAP}",
        f"-Xmx{_HEAP}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        f"-Djdk.net.hosts.file={layout.etc}/hosts",
        f"-Dlog4j2.configurationFile={layout.etc}/log4j2.properties",
        "-cp",
        ":".join(f"{layout.homes[HOME]}/{jar}" for jar in _jars()),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        f"{layout.etc}/zoo.cfg",
    )
    return {
        "zoo.cfg": text.encode(),
        "hosts": hosts,
        "log4j2.properties": log,
        "java.args": "".join(f'"{word}"\n' for word in words).encode(),
    }


def _jars() -> list[str]:
    names = sorted(path.name for path in home().iterdir())
    return [name for name in names if any(fnmatch.fnmatchcase(name, jar) for jar in _JARS)]
