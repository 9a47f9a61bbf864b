"""The distribution of Classic that the person has unpacked on this machine, and the Java for it.

It is one of Apache (``lib``, ``lib/optional``, ``lib/web``), or Debian's package ``activemq``,
installed or unpacked. Jars that the person adds are put where Classic's manual puts them, in
``lib/optional``. Nothing is downloaded here: if something is missing, ``missing`` says which
command fetches it.
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

HOME: Final = "JEPSEN_RUN_CLASSIC_HOME"
"""The environment variable that says where the distribution is unpacked."""

_OLDEST_JAVA: Final = 11
"""The Java that Classic 5.17 needs; 6.0 needs 17."""

_COPY: Final = "mvn org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact="
TRIED: Final = ("5.17.6",)
"""The releases that were tried, the newest last; each stands for its series."""

_FETCH: Final = (
    f"{_COPY}org.apache.activemq:apache-activemq:{TRIED[-1]}:tar.gz:bin -DoutputDirectory=.",
    f"tar xzf apache-activemq-{TRIED[-1]}-bin.tar.gz",
)
_FETCHED: Final = f"apache-activemq-{TRIED[-1]}"
_AGENT: Final = "org.jolokia:jolokia-agent-jvm:2.1.2:jar:javaagent"
_DRIVER: Final = "org.postgresql:postgresql:42.7.4"
_UNPACKED: Final = Path("usr/share/activemq")
"""The place of Debian's packages, within the directory they are unpacked into."""

_MACHINE: Final = Path("/usr/share/java")
"""The place of the jars of Debian's installed packages."""

_PARTS: Final = ("", "optional", "web", "extra")
_NEEDED: Final = (
    "activemq-broker",
    "activemq-client",
    "activemq-console",
    "activemq-kahadb-store",
    "activemq-openwire-legacy",
    "activemq-protobuf",
    "activemq-spring",
    "activemq-stomp",
    "hawtbuf",
    "slf4j-api",
)
_WEB: Final = ("jetty-server", "jetty-servlet", "jetty-xml", "jolokia-core")
LEFT_OUT: Final = ("docs/*", "examples/*", "webapps/*", "webapps-demo/*", "bin/*", "activemq-all-*.jar")
"""The files that are not copied to other machines, because no broker here uses them."""

_UNUSED: Final = (
    "activemq-amqp",
    "activemq-http",
    "activemq-mqtt",
    "apache-jsp",
    "camel",
    "ecj",
    "proton",
    "shiro",
    "spring-web",
    "velocity",
    "websocket",
)
"""The prefixes of jars that no test uses and that cost a broker's start time."""

_AGENTS: Final = ("jolokia-agent-jvm",)

_FOR_A_DATABASE: Final = {
    "activemq-jdbc-store": "",
    "commons-dbcp2": "org.apache.commons:commons-dbcp2:2.9.0",
    "postgresql": _DRIVER,
}
"""The jars for a database, each with the artifact to fetch; the first is in each distribution."""


def lack() -> Lack | None:
    """Return what must be installed and how; None if nothing is missing."""
    root = given_home(HOME)
    if not root:
        return Lack(
            problem=f"no distribution: give --system-home PATH or set {HOME}=PATH",
            commands=_FETCH,
            home=_FETCHED,
        )
    jars = _jars(_place(root))
    if "activemq-broker" not in jars:
        return Lack(
            problem=f"{root}: no lib/activemq-broker*.jar, so this is not a distribution of Classic",
            commands=_FETCH,
            home=_FETCHED,
        )
    if lacking := [name for name in _NEEDED if name not in jars]:
        return Lack(
            problem=f"{root}: no {lacking[0]}*.jar in lib or lib/optional: the distribution is incomplete"
        )
    if not web(jars) and "jolokia-agent-jvm" not in jars:
        return Lack(
            problem=f"{root}: no Jolokia, which tells the brokers' state; its agent is enough",
            commands=(_copy_command(_AGENT, root),),
        )
    return None


def missing() -> str:
    """Return what must be installed and how, in one line; "" if nothing is missing."""
    return str(lack() or "")


def lack_for_database() -> Lack | None:
    """Return what brokers on a database lack besides that; None if nothing is missing."""
    root = given_home(HOME)
    jars = _jars(_place(root))
    for name, artifact in _FOR_A_DATABASE.items():
        if name not in jars:
            return Lack(
                problem=f"{root}: no {name}*.jar in lib/optional",
                commands=(_copy_command(artifact, root),) if artifact else (),
            )
    return None


def _copy_command(artifact: str, root: str) -> str:
    return f"{_COPY}{artifact} -DoutputDirectory={shlex.quote(str(_optional(root)))}"


def jars() -> dict[str, Path]:
    """Return jars by their names without versions. Raises InfrastructureError with ``missing``."""
    problem = missing()
    if problem:
        raise InfrastructureError(f"classic: {problem}")
    return _jars(_place(given_home(HOME)))


def version() -> str:
    """Return the version, as the broker's jar says."""
    jar = jars()["activemq-broker"]
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.endswith("activemq-broker/pom.properties"):
                version_line = re.search(r"^version=(.+)$", archive.read(name).decode(), re.MULTILINE)
                if version_line:
                    return version_line[1].strip()
    return _version(jar.resolve())


def java() -> int:
    """Return the release of Java that the distribution needs."""
    jar = _jars(_place(given_home(HOME))).get("activemq-broker", Path())
    return runtime.compiled_for(jar, _OLDEST_JAVA)


def web(jars: dict[str, Path]) -> bool:
    """Return whether it has the parts of Apache's web console that answer for a JVM."""
    return all(name in jars for name in _WEB)


def home() -> Path:
    """Return where the distribution is unpacked: the directory with ``lib``."""
    return _place(given_home(HOME))


def elsewhere() -> str:
    """Return a jar that is needed and not in the distribution; "" if all are."""
    place = home()
    return next((str(jar) for jar in jars().values() if not jar.is_relative_to(place)), "")


def path_at(jar: Path, place: str) -> str:
    """Return where a jar is if the distribution is at ``place``."""
    unpacked = home()
    return f"{place}/{jar.relative_to(unpacked).as_posix()}" if jar.is_relative_to(unpacked) else str(jar)


def class_path(jars: dict[str, Path], place: str) -> str:
    """Return the jars that a broker with STOMP needs, and those by which it is asked.

    The paths are as ``path_at`` gives them.
    """
    used = (jar for name, jar in jars.items() if name not in _AGENTS and not name.startswith(_UNUSED))
    return ":".join(path_at(jar, place) for jar in used)


def _place(root: str) -> Path:
    unpacked = Path(root) / _UNPACKED
    return (unpacked if unpacked.is_dir() else Path(root)).resolve()


def _optional(root: str) -> Path:
    return _place(root) / "lib" / "optional"


def _jars(place: Path) -> dict[str, Path]:
    """Return the jars of a distribution by name.

    Debian's are links to where packages have them, or else the machine; some lead nowhere.
    """
    jars_by_name: dict[str, Path] = {}
    debian = place.parent / "java"
    for part in _PARTS:
        for jar in sorted((place / "lib" / part).glob("*.jar")):
            real = jar if jar.exists() else _MACHINE / jar.name
            if real.exists():
                jars_by_name.setdefault(_name(jar), real)
    for name in (*_NEEDED, *_FOR_A_DATABASE):
        for directory in (debian, _MACHINE):
            if name not in jars_by_name and (jar := directory / f"{name}.jar").exists():
                jars_by_name[name] = jar
    return jars_by_name


def _name(jar: Path) -> str:
    return re.sub(r"-\d[\w.]*(-javaagent)?$", "", jar.stem)


def _version(jar: Path) -> str:
    number = re.search(r"-(\d[\w.]*)$", jar.stem)
    return number[1] if number else "unknown"
