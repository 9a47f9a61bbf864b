"""The RabbitMQ and the Erlang/OTP that the person has on this machine, installed or only unpacked.

Nothing is downloaded here: where something is missing, ``missing`` says what brings it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from harness.interface import InfrastructureError
from harness.systems.given import given_home

HOME: Final = "JEPSEN_RUN_RABBITMQ_HOME"
"""Environment variable: where it is installed or unpacked."""

SERVER, ERLANG = "rabbitmq", "erlang"
"""Its directories by name, see ``Layout.homes``."""

INSTALLED: Final = "/"
"""Where it is looked for when nothing is given: where packages put it."""

_SERVERS: Final = (
    "sbin/rabbitmq-server",
    "rabbitmq_server-*/sbin/rabbitmq-server",
    "lib/rabbitmq_server-*/sbin/rabbitmq-server",
    "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
)
"""In a home: of the archive of RabbitMQ, of a package's own directory, of a tree of packages."""

_ERLANGS: Final = ("usr/lib/erlang", "lib/erlang", "erlang", "../erlang")
_OLDEST, _NEWEST = (3, 10), (3, 12)
"""From 3.13 on a queue's log has messages of another form, which ``browse`` could not read."""

_FETCH: Final = "apt-get install rabbitmq-server"
_UNPACK: Final = (
    "apt-get install --download-only -y -o Dir::Cache::Archives=$PWD rabbitmq-server && "
    "for deb in *.deb; do dpkg-deb -x $deb rabbitmq; done"
)


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts are: RabbitMQ's own tree, Erlang's, and its programs'."""

    server: Path
    erlang: Path
    runtime: Path
    version: str


def missing() -> str:
    """What must be given and how it is got, in one line; "" where nothing is missing."""
    try:
        found()
    except InfrastructureError as error:
        return str(error).removeprefix("rabbitmq: ")
    return ""


def found() -> Distribution:
    """Raises InfrastructureError saying what is missing."""
    given = given_home(HOME)
    place = Path(given or INSTALLED).resolve()
    servers = sorted(server for pattern in _SERVERS for server in place.glob(pattern))
    if not servers:
        where = f"{given}: no sbin/rabbitmq-server" if given else "not installed"
        raise InfrastructureError(
            f"rabbitmq: {where}; on Debian: {_FETCH}; or give --system-home PATH or {HOME}=PATH of one that "
            f"is only unpacked, as by: {_UNPACK}, then --system-home rabbitmq"
        )
    server = servers[-1].parent.parent
    version = _version(server)
    numbers = tuple(int(number) for number in version.split(".")[:2]) if version else ()
    if not _OLDEST <= numbers <= _NEWEST:
        oldest, newest = (".".join(map(str, which)) for which in (_OLDEST, _NEWEST))
        raise InfrastructureError(
            f"rabbitmq: {server} is RabbitMQ {version or 'of an unknown version'}: "
            f"{oldest} to {newest} are known here, on Debian: {_FETCH}"
        )
    return Distribution(server=server, version=version, **_erlang(place))


def _version(server: Path) -> str:
    """As the directory of the application itself says; newer ones are archives of that name."""
    names = [path.name for path in sorted(server.glob("plugins/rabbit-[0-9]*"))]
    matched = re.match(r"rabbit-([\d.]+\d)", names[-1]) if names else None
    return matched[1] if matched else ""


def _erlang(place: Path) -> dict[str, Path]:
    """That of the home, or else the one on the PATH."""
    on_path = shutil.which("erl")
    roots = [place / part for part in _ERLANGS]
    if on_path is not None:
        roots.append(Path(on_path).resolve().parent.parent)
    for root in roots:
        runtimes = sorted(root.glob("erts-*/bin/erlexec"))
        if runtimes and (root / "bin" / "erl_call").exists():
            return {"erlang": root.resolve(), "runtime": runtimes[-1].parent.resolve()}
    raise InfrastructureError(
        f"rabbitmq: no Erlang/OTP beside it in {place} nor on the PATH; on Debian: {_FETCH}"
    )
