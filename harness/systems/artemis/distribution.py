"""The distribution of Artemis that the person has unpacked on this machine, and the Java it needs.

Nothing is downloaded here: if something is missing, ``missing`` says which command fetches it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.interface import InfrastructureError, Lack
from harness.systems import runtime
from harness.systems.given import given_home

HOME: Final = "JEPSEN_RUN_ARTEMIS_HOME"
"""The environment variable that says where the distribution is unpacked."""

_OLDEST_JAVA: Final = 17
"""The Java that Artemis 2.40 needs."""

TRIED: Final = ("2.44.0", "2.56.0")
"""The releases that were tried, the newest last; each stands for its series."""

_COPY: Final = "mvn org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact="
_FETCH: Final = (
    f"{_COPY}org.apache.activemq:apache-artemis:{TRIED[-1]}:tar.gz:bin -DoutputDirectory=.",
    f"tar xzf apache-artemis-{TRIED[-1]}-bin.tar.gz",
)
_UNPACKED: Final = f"apache-artemis-{TRIED[-1]}"
LEFT_OUT: Final = ("web/console.war/*.js", "web/console.war/static/*", "licenses/*", "examples/*")
"""The files that are not copied to other machines: pages of the web console, which is not used."""

_UNUSED: Final = (
    "amqp-protocol",
    "mqtt-protocol",
    "hornetq-protocol",
    "hqclient",
    "openwire",
    "activemq-client-5",
)
"""Parts of the names of unused jars: other protocols, which cost a broker's start a second."""


def lack() -> Lack | None:
    """Return what must be installed and how; None if nothing is missing."""
    root = given_home(HOME)
    if not root:
        return Lack(
            problem=f"no distribution: give --system-home PATH or set {HOME}=PATH",
            commands=_FETCH,
            home=_UNPACKED,
        )
    if not _servers(Path(root)):
        return Lack(
            problem=f"{root}: no lib/artemis-server-*.jar, so this is not a distribution of Artemis",
            commands=_FETCH,
            home=_UNPACKED,
        )
    if not list(Path(root).glob("web/console.war/WEB-INF/lib/jolokia-server-core-*.jar")):
        return Lack(
            problem=f"{root}: no Jolokia in web/console.war, which tells the brokers' state: "
            "use Artemis 2.40 or later"
        )
    return None


def missing() -> str:
    """Return what must be installed and how, in one line; "" if nothing is missing."""
    return str(lack() or "")


def home() -> Path:
    """Return where the distribution is unpacked. Raises InfrastructureError with ``missing``."""
    problem = missing()
    if problem:
        raise InfrastructureError(f"artemis: {problem}")
    return Path(given_home(HOME)).resolve()


def version() -> str:
    """Return the version, as the names of the jars say."""
    return _servers(home())[0].stem.removeprefix("artemis-server-")


def java() -> int:
    """Return the release of Java that the distribution needs."""
    servers = _servers(Path(given_home(HOME)))
    return runtime.compiled_for(servers[0], _OLDEST_JAVA) if servers else _OLDEST_JAVA


def class_path(place: str) -> str:
    """Return all jars that a broker with STOMP needs, and those of Jolokia, by which it is asked.

    The paths are those of a distribution at ``place``.
    """
    unpacked = home()
    jars = [
        jar for jar in sorted(unpacked.glob("lib/*.jar")) if not any(word in jar.name for word in _UNUSED)
    ]
    jars += sorted(unpacked.glob("web/console.war/WEB-INF/lib/jolokia-*.jar"))
    return ":".join(f"{place}/{jar.relative_to(unpacked).as_posix()}" for jar in jars)


def _servers(place: Path) -> list[Path]:
    return sorted(place.glob("lib/artemis-server-[0-9]*.jar"))
