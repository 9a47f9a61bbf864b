"""The distribution of Open MQ that the person has unpacked on this machine, and the Java for it.

Jars that the person adds are put where its manual puts them, in ``lib/ext``. Nothing is downloaded
here: if something is missing, ``missing`` says which command fetches it.
"""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path
from typing import Final

from harness.interface import InfrastructureError, Lack
from harness.systems import runtime
from harness.systems.given import given_home
from harness.systems.release import numbers

HOME: Final = "JEPSEN_RUN_OPENMQ_HOME"
"""The environment variable that says where the distribution is unpacked."""

_OLDEST_JAVA: Final = 17
"""The Java that Open MQ 6.5 needs; 6.7 needs 21."""

_COPY: Final = "mvn org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact="
TRIED: Final = ("6.5.1", "6.7.0")
"""The releases that were tried, the newest last; each stands for its series."""

_OLDEST: Final = (6,)
_BROKER: Final = "lib/imqbroker.jar"
_EXTRA: Final = "lib/ext"
_AGENT: Final = "jolokia-agent-jvm"
_DRIVER: Final = "postgresql"
_ARTIFACTS: Final = {
    _AGENT: "org.jolokia:jolokia-agent-jvm:2.1.2:jar:javaagent",
    _DRIVER: "org.postgresql:postgresql:42.7.4",
}
_FETCH: Final = (
    f"{_COPY}org.glassfish.mq:mq-distribution:{TRIED[-1]}:zip -DoutputDirectory=.",
    f"unzip mq-distribution-{TRIED[-1]}.zip",
    f"{_COPY}{_ARTIFACTS[_AGENT]} -DoutputDirectory=mq/{_EXTRA}",
)
_UNPACKED: Final = "mq"
LEFT_OUT: Final = ("javadoc/*", "examples/*", "bin/*.exe", "lib/help/*", "lib/*.war", "lib/*.rar")
"""The files that are not copied to other machines, because no broker here uses them."""


def lack() -> Lack | None:
    """Return what must be installed and how; None if nothing is missing."""
    root = given_home(HOME)
    place = _place(root)
    if not root:
        problem = f"no distribution: give --system-home PATH or set {HOME}=PATH"
    elif not (place / _BROKER).is_file():
        problem = f"{root}: no {_BROKER}, so this is not a distribution of Open MQ"
    elif numbers(release := _release(place)) < _OLDEST:
        problem = f"{root} is Open MQ {release or 'of an unknown release'}: 6.0 or later can be tested"
    else:
        return _lack_of(_AGENT, "Jolokia's agent, which tells the brokers' state")
    return Lack(problem=problem, commands=_FETCH, home=_UNPACKED)


def missing() -> str:
    """Return what must be installed and how, in one line; "" if nothing is missing."""
    return str(lack() or "")


def lack_for_database() -> Lack | None:
    """Return what brokers on a database lack besides that; None if nothing is missing."""
    return _lack_of(_DRIVER, "the driver of their store in PostgreSQL")


def home() -> Path:
    """Return where the distribution is unpacked: the directory with ``lib``.

    Raises InfrastructureError.
    """
    problem = missing()
    if problem:
        raise InfrastructureError(f"openmq: {problem}")
    return _place(given_home(HOME))


def version() -> str:
    """Return the version, as the broker's jar says."""
    return _release(home())


def java() -> int:
    """Return the release of Java that the distribution needs."""
    return runtime.compiled_for(_place(given_home(HOME)) / _BROKER, _OLDEST_JAVA)


def agent(place: str) -> str:
    """Return the path of Jolokia's agent if the distribution is at ``place``."""
    return f"{place}/{_EXTRA}/{_extra(home(), _AGENT)[-1].name}"


def class_path(place: str) -> str:
    """Return the jars that a broker needs; its own jar names all others of the distribution."""
    extra = [jar.name for jar in sorted((home() / _EXTRA).glob("*.jar")) if _AGENT not in jar.name]
    jars = [_BROKER, "lib/imqutil.jar", *(f"{_EXTRA}/{name}" for name in extra)]
    return ":".join(f"{place}/{jar}" for jar in jars)


def _place(root: str) -> Path:
    inside = Path(root) / "mq"
    return (inside if inside.is_dir() else Path(root)).resolve()


def _release(place: Path) -> str:
    try:
        with zipfile.ZipFile(place / _BROKER) as jar:
            manifest = jar.read("META-INF/MANIFEST.MF").decode(errors="replace")
    except (OSError, KeyError, zipfile.BadZipFile):
        return ""
    version_line = re.search(r"^Specification-Version: *(\S+)", manifest, re.MULTILINE)
    return version_line[1] if version_line else ""


def _extra(place: Path, name: str) -> list[Path]:
    return sorted((place / _EXTRA).glob(f"{name}-[0-9]*.jar"))


def _lack_of(name: str, purpose: str) -> Lack | None:
    root = given_home(HOME)
    place = _place(root)
    if _extra(place, name):
        return None
    into = shlex.quote(str(place / _EXTRA))
    return Lack(
        problem=f"{root}: no {name}-*.jar in {_EXTRA}: {purpose}",
        commands=(f"{_COPY}{_ARTIFACTS[name]} -DoutputDirectory={into}",),
    )
