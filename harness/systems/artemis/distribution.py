"""The distribution of Artemis that the person has unpacked on this machine, and the Java it needs.

Nothing is downloaded here: where something is missing, ``missing`` says what brings it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.interface import InfrastructureError
from harness.systems import runtime
from harness.systems.given import given_home

HOME: Final = "JEPSEN_RUN_ARTEMIS_HOME"
"""Environment variable: where it is unpacked."""

JAVA: Final = runtime.java(17)
"""Of Artemis 2.40 and later."""

_TRIED: Final = "2.44.0"
_FETCH: Final = (
    "mvn org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy "
    f"-Dartifact=org.apache.activemq:apache-artemis:{_TRIED}:tar.gz:bin -DoutputDirectory=. && "
    f"tar xzf apache-artemis-{_TRIED}-bin.tar.gz"
)
LEFT_OUT: Final = ("web/console.war/*.js", "web/console.war/static/*", "licenses/*", "examples/*")
"""Of what is put on other machines: pages of the web console, of which brokers here have none."""

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


def class_path(place: str) -> str:
    """All jars that a broker with STOMP needs, and those by which it is asked (Jolokia).

    Where they are when the distribution is at ``place``.
    """
    here = home()
    jars = [jar for jar in sorted(here.glob("lib/*.jar")) if not any(word in jar.name for word in _UNUSED)]
    jars += sorted(here.glob("web/console.war/WEB-INF/lib/jolokia-*.jar"))
    return ":".join(f"{place}/{jar.relative_to(here).as_posix()}" for jar in jars)


def _servers(place: Path) -> list[Path]:
    return sorted(place.glob("lib/artemis-server-[0-9]*.jar"))
