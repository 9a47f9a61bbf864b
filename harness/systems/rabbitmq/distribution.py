"""The RabbitMQ and the Erlang/OTP that the person has on this machine, installed or only unpacked.

Nothing is downloaded here: if something is missing, ``missing`` says which command fetches it.

A tree of packages may have its own C library, newer than that of this machine; its programs are
then started by its own loader. Other machines and containers get the libraries of these programs
from here, whatever they have themselves.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from harness.interface import InfrastructureError, Lack
from harness.systems import release
from harness.systems.given import given_home

HOME: Final = "JEPSEN_RUN_RABBITMQ_HOME"
"""The environment variable that says where it is installed or unpacked."""

SERVER, ERLANG, LIBRARIES = "rabbitmq", "erlang", "libraries"
"""The names of its directories, see ``Layout.homes``."""

INSTALLED: Final = "/"
"""The directory that is searched if none is given: packages install into it."""

_SERVERS: Final = (
    "sbin/rabbitmq-server",
    "rabbitmq_server-*/sbin/rabbitmq-server",
    "lib/rabbitmq_server-*/sbin/rabbitmq-server",
    "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
)
"""The patterns of the server in a home.

They are those of RabbitMQ's archive, of a package's own directory, and of a tree of packages.
"""

_ERLANGS: Final = ("usr/lib/erlang", "lib/erlang", "erlang", "../erlang")
_LOADERS: Final = ("usr/lib/*/ld-*.so*", "lib/*/ld-*.so*")
PROGRAMS: Final = ("erlexec", "beam.smp", "erl_child_setup", "inet_gethost")
"""Those of Erlang's programs of which a node consists."""

_OLDEST: Final = (3, 10)
TRIED: Final = ("3.10", "3.11", "3.12", "4.0", "4.3")
"""The series of releases that were tried."""


_LIBRARY: Final = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
"""A library, and the loader itself, in what a loader lists."""

_FETCH: Final = "apt-get install rabbitmq-server"


class _LackingError(InfrastructureError):
    def __init__(self, problem: str) -> None:
        self.lack = Lack(problem=problem, commands=(_FETCH,))
        super().__init__(f"rabbitmq: {self.lack}")


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """The places of RabbitMQ's own tree, of Erlang's, and of Erlang's programs.

    ``loader`` is that of the tree, with the C library next to it; None: this machine's.
    """

    server: Path
    erlang: Path
    runtime: Path
    version: str
    loader: Path | None = None

    @property
    def loading(self) -> tuple[str, ...]:
        """The words before the name of a program on this machine."""
        return () if self.loader is None else loading(str(self.loader))

    def program(self, name: str) -> tuple[str, ...]:
        """Return the words that run one of Erlang's programs on this machine."""
        return (*self.loading, str(self.erlang / "bin" / name))

    def libraries(self) -> Mapping[str, str]:
        """Return the files, by name, without which the programs cannot run on other machines.

        The loader is the first of them; there are none if the programs need none. Raises
        InfrastructureError.
        """
        return _libraries(self)


def loading(loader: str) -> tuple[str, ...]:
    """Return the words by which a loader runs a program with the libraries next to it."""
    return (loader, "--library-path", loader.rpartition("/")[0])


def lack() -> Lack | None:
    """Return what must be installed and how; None if nothing is missing."""
    try:
        find_distribution()
    except _LackingError as error:
        return error.lack
    return None


def missing() -> str:
    """Return what must be installed and how, in one line; "" if nothing is missing."""
    return str(lack() or "")


def find_distribution() -> Distribution:
    """Return the distribution. Raises InfrastructureError that says what is missing."""
    root = given_home(HOME)
    place = Path(root or INSTALLED).resolve()
    servers = sorted(server for pattern in _SERVERS for server in place.glob(pattern))
    if not servers:
        where = f"{root}: no sbin/rabbitmq-server" if root else "not installed"
        raise _LackingError(
            f"{where}; install it, or unpack it without root and give --system-home PATH or set {HOME}=PATH"
        )
    server = servers[-1].parent.parent
    version = _version(server)
    numbers = release.numbers(version)[:2]
    if numbers < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise _LackingError(
            f"{server} is RabbitMQ {version or 'of an unknown version'}: "
            f"only {oldest} and later can be tested"
        )
    erlang, runtime = _erlang(place)
    loader = _loader(place) if erlang.is_relative_to(place) else None
    return Distribution(server=server, version=version, erlang=erlang, runtime=runtime, loader=loader)


def _version(server: Path) -> str:
    """Return the version of the application's directory.

    Newer versions are archives of that name.
    """
    names = [path.name for path in sorted(server.glob("plugins/rabbit-[0-9]*"))]
    matched = re.match(r"rabbit-([\d.]+\d)", names[-1]) if names else None
    return matched[1] if matched else ""


def _erlang(place: Path) -> tuple[Path, Path]:
    """Return the Erlang of the home, or else the one on the PATH, and where its programs are."""
    on_path = shutil.which("erl")
    roots = [place / part for part in _ERLANGS]
    if on_path is not None:
        roots.append(Path(on_path).resolve().parent.parent)
    for root in roots:
        runtimes = sorted(root.glob("erts-*/bin/erlexec"))
        if runtimes and (root / "bin" / "erl_call").exists():
            return root.resolve(), runtimes[-1].parent.resolve()
    raise _LackingError(f"no Erlang/OTP, neither in {place} nor on the PATH")


def _loader(place: Path) -> Path | None:
    """Return the loader of a tree of packages that has one; None if the tree is the machine's."""
    if place in (Path(INSTALLED), Path(INSTALLED, "usr")):
        return None
    return next((path for pattern in _LOADERS for path in sorted(place.glob(pattern))), None)


@functools.cache
def _libraries(distribution: Distribution) -> Mapping[str, str]:
    programs = [str(path) for path in _linked(distribution)]
    loader = distribution.loading
    commands = [(*loader, "--list", path) for path in programs] if loader else [("ldd", *programs)]
    try:
        lists = [subprocess.run(command, capture_output=True, text=True, check=False) for command in commands]
    except OSError as error:
        raise InfrastructureError(f"rabbitmq: the libraries of Erlang cannot be listed: {error}") from error
    places = {Path(place).name: place for done in lists for place in _LIBRARY.findall(done.stdout)}
    loaders = [name for name in places if name.startswith("ld-")]
    return {name: places[name] for name in (*loaders[:1], *sorted(places.keys() - {*loaders}))}


def _linked(distribution: Distribution) -> Iterator[Path]:
    """Yield the programs of a node, and the libraries that it loads while it runs."""
    yield from (distribution.runtime / name for name in PROGRAMS)
    yield from sorted(distribution.erlang.glob("lib/**/*.so"))
    yield from sorted(distribution.server.glob("plugins/**/*.so"))
