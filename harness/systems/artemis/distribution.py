"""The distribution of Artemis that the person has unpacked on this machine, and the Java for it.

Nothing is downloaded here: where something is missing, ``missing`` says what brings it.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from harness.interface import InfrastructureError
from harness.systems.given import given_home

HOME: Final = "JEPSEN_RUN_ARTEMIS_HOME"
"""Environment variable: where it is unpacked."""

JAVA_LEAST: Final = 17
"""Of Artemis 2.40 and later."""

_TRIED: Final = "2.44.0"
_FETCH: Final = (
    "mvn org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy "
    f"-Dartifact=org.apache.activemq:apache-artemis:{_TRIED}:tar.gz:bin -DoutputDirectory=. && "
    f"tar xzf apache-artemis-{_TRIED}-bin.tar.gz"
)
_UNUSED: Final = (
    "amqp-protocol",
    "mqtt-protocol",
    "hornetq-protocol",
    "hqclient",
    "openwire",
    "activemq-client-5",
)
"""In names of jars: other protocols, which cost a broker's start a second."""


def missing() -> str:
    """What must be given and how it is got, in one line; "" where nothing is missing."""
    given = given_home(HOME)
    if not given:
        return f"no distribution: give --system-home PATH or {HOME}=PATH; one is got by: {_FETCH}"
    if not _servers(Path(given)):
        return f"{given}: no lib/artemis-server-*.jar, so no distribution; one is got by: {_FETCH}"
    if not list(Path(given).glob("web/console.war/WEB-INF/lib/jolokia-server-core-*.jar")):
        return (
            f"{given}: no Jolokia in web/console.war, by which brokers are asked: Artemis 2.40 and later have"
        )
    java = shutil.which("java")
    if java is None:
        return f"no java; Artemis needs {JAVA_LEAST}, on Debian: apt-get install openjdk-17-jre-headless"
    release = _release(java)
    if release < JAVA_LEAST:
        return f"{java} is Java {release or 'of an unknown release'}: Artemis needs {JAVA_LEAST} or later"
    return ""


def home() -> Path:
    """Where it is unpacked. Raises InfrastructureError with ``missing``."""
    problem = missing()
    if problem:
        raise InfrastructureError(f"artemis: {problem}")
    return Path(given_home(HOME)).resolve()


def version() -> str:
    """As the names of its jars say."""
    return _servers(home())[0].stem.removeprefix("artemis-server-")


def class_path(place: Path) -> str:
    """All jars that a broker with STOMP needs, and those by which it is asked (Jolokia)."""
    jars = [jar for jar in sorted(place.glob("lib/*.jar")) if not any(word in jar.name for word in _UNUSED)]
    jars += sorted(place.glob("web/console.war/WEB-INF/lib/jolokia-*.jar"))
    return ":".join(map(str, jars))


def _servers(place: Path) -> list[Path]:
    return sorted(place.glob("lib/artemis-server-[0-9]*.jar"))


@functools.cache
def _release(java: str) -> int:
    """17 of "17.0.15", 8 of "1.8.0"; 0 where it does not say."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0
