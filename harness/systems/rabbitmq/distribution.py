"""The RabbitMQ and the Erlang/OTP that the person has on this machine, installed or only unpacked.

Nothing is downloaded here: if something is missing, ``missing`` says which command fetches it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from harness.interface import InfrastructureError, Lack
from harness.systems.given import given_home

HOME: Final = "JEPSEN_RUN_RABBITMQ_HOME"
"""The environment variable that says where it is installed or unpacked."""

SERVER, ERLANG = "rabbitmq", "erlang"
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
_OLDEST, _NEWEST = (3, 10), (3, 12)
"""The known versions: from 3.13 on a queue's log has a form that ``browse`` cannot read."""

_FETCH: Final = "apt-get install rabbitmq-server"


class _LackingError(InfrastructureError):
    def __init__(self, problem: str) -> None:
        self.lack = Lack(problem=problem, commands=(_FETCH,))
        super().__init__(f"rabbitmq: {self.lack}")


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """The places of RabbitMQ's own tree, of Erlang's, and of Erlang's programs."""

    server: Path
    erlang: Path
    runtime: Path
    version: str


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
    numbers = tuple(int(number) for number in version.split(".")[:2]) if version else ()
    if not _OLDEST <= numbers <= _NEWEST:
        oldest, newest = (".".join(map(str, version_bound)) for version_bound in (_OLDEST, _NEWEST))
        raise _LackingError(
            f"{server} is RabbitMQ {version or 'of an unknown version'}: "
            f"only {oldest} to {newest} can be tested"
        )
    return Distribution(server=server, version=version, **_erlang(place))


def _version(server: Path) -> str:
    """Return the version of the application's directory.

    Newer versions are archives of that name.
    """
    names = [path.name for path in sorted(server.glob("plugins/rabbit-[0-9]*"))]
    matched = re.match(r"rabbit-([\d.]+\d)", names[-1]) if names else None
    return matched[1] if matched else ""


def _erlang(place: Path) -> dict[str, Path]:
    """Return the Erlang of the home, or else the one on the PATH."""
    on_path = shutil.which("erl")
    roots = [place / part for part in _ERLANGS]
    if on_path is not None:
        roots.append(Path(on_path).resolve().parent.parent)
    for root in roots:
        runtimes = sorted(root.glob("erts-*/bin/erlexec"))
        if runtimes and (root / "bin" / "erl_call").exists():
            return {"erlang": root.resolve(), "runtime": runtimes[-1].parent.resolve()}
    raise _LackingError(f"no Erlang/OTP, neither in {place} nor on the PATH")
