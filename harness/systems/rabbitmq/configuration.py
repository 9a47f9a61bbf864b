"""The files of one node of RabbitMQ in a test, and how its virtual machine is started.

Only the programs of the machine's own RabbitMQ are used. Nodes find each other without epmd,
Erlang's port mapper: one daemon for the machine would neither belong to a node nor end with it. So
all have one distribution port, each at an address of its own (``-erl_epmd_port``, of Erlang/OTP).
Names resolve in each node by a file, so that each link leads through the proxy.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.interface import Address, Layout, NodePlan
from harness.systems import shortened
from harness.systems.hosts_file import hosts_file
from harness.systems.rabbitmq import distribution, properties, times
from harness.systems.rabbitmq.distribution import ERLANG, SERVER

PORTS: Final = {"stomp": 61613, "cluster": 25672, "admin": 15672}
USER: Final = "tester"
COOKIE: Final = ".erlang.cookie"

_DEFAULTS: Final[Mapping[str, Any]] = {
    **shortened.settings(times.GROUPS, ""),
    "cluster_partition_handling": "pause_minority",
    properties.SCHEDULERS: 2,
    "raft.wal_max_size_bytes": 64 << 20,
    "disk_free_limit.absolute": "10MB",  # all nodes of a test share the disk of this machine
    "vm_memory_high_watermark.absolute": "512MB",
}
_FIXED: Final[Mapping[str, Any]] = {
    "listeners.tcp": "none",
    "stomp.implicit_connect": "false",
    "management.tcp.max_keepalive": 1_000_000_000,  # clients that ask for roles keep their connection
    "management.tcp.request_timeout": 86_400_000,  # 4.0 closes it after 5 s without a question
    "loopback_users": "none",
    "log.console": "true",
    "log.console.level": "info",
    "log.console.use_colors": "off",
    "log.file": "false",
    "cluster_formation.peer_discovery_backend": "classic_config",
}
_PLUGINS: Final = b"[rabbitmq_management,rabbitmq_stomp].\n"

_ERL: Final = b"""#!/bin/sh
case " $* " in
*" -hidden "*)
    set -- -start_epmd false -erl_epmd_port "$RABBITMQ_DIST_PORT" -dist_listen false "$@" ;;
esac
exec "$BINDIR/erlexec" -os_mon start_cpu_sup false -os_mon start_memsup false "$@"
"""
"""Erlang's ``erl``, which in its distribution knows only the place that it was built for.

Since 4.0 a node that starts asks its peers through a second, hidden node. RabbitMQ does not tell
that node how to do without epmd. Programs that watch the machine are not started: RabbitMQ says so
itself, but only after Erlang has started them.
"""

_NO_EPMD: Final = 1
"""A port on which nothing listens: nodes must not find the machine's epmd."""


def node_name(name: str) -> str:
    """Return a node's name in Erlang: names must differ before the @ and after it."""
    return f"{name}@{name}"


def files(
    assigned: Mapping[str, Mapping[str, Any]],
    node: NodePlan,
    nodes: Sequence[NodePlan],
    layout: Layout,
    listen: Mapping[str, Address],
    hosts: Mapping[str, Address],
    runtime: str,
    *,
    release: tuple[int, ...],
    loading: Sequence[str],
    cookie: str,
    password: str,
) -> dict[str, bytes]:
    """Return the content of each file by name.

    ``runtime`` is the directory of Erlang's programs within its tree. ``loading`` are the words
    before the name of a program on the node's machine.
    """
    settings = properties.effective({**_DEFAULTS, **properties.chosen(assigned, node)}, release)
    machine = {name: settings.pop(name) for name in (properties.SCHEDULERS, properties.TICK)}
    return {
        "rabbitmq.conf": _settings(settings, nodes, listen, password),
        "enabled_plugins": _PLUGINS,
        "hosts": hosts_file(node, listen, hosts),
        "inetrc": f'{{hosts_file, "{layout.etc}/hosts"}}.\n{{lookup, [file]}}.\n'.encode(),
        COOKIE: f"{cookie}\n".encode(),
        "erl": _ERL,
        **{
            name: _program((*loading, f"{layout.homes[ERLANG]}/{runtime}/{name}"))
            for name in distribution.PROGRAMS
        },
        "start": _start(node, layout, listen["cluster"], machine),
    }


def _program(words: Sequence[str]) -> bytes:
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'.encode()


def _settings(
    settings: Mapping[str, Any], nodes: Sequence[NodePlan], listen: Mapping[str, Address], password: str
) -> bytes:
    lines = {
        **_FIXED,
        "stomp.listeners.tcp.1": listen["stomp"],
        "management.tcp.ip": listen["admin"].host,
        "management.tcp.port": listen["admin"].port,
        "default_user": USER,
        "default_pass": password,
        **{
            f"cluster_formation.classic_config.nodes.{number}": node_name(peer.name)
            for number, peer in enumerate(nodes, 1)
        },
        **{name: value for name, value in settings.items() if not name.startswith(properties.QUEUE)},
    }
    return "".join(f"{name} = {value}\n" for name, value in lines.items()).encode()


def _start(node: NodePlan, layout: Layout, cluster: Address, machine: Mapping[str, Any]) -> bytes:
    """Return a script that becomes the distribution's own, and then the virtual machine.

    So there is one process.
    """
    name = node_name(node.name)
    server, erlang = (layout.homes[home] for home in (SERVER, ERLANG))
    flags = {
        "-sname": name,
        "-start_epmd": "false",
        "-erl_epmd_port": str(cluster.port),
        "-kernel inet_dist_listen_min": str(cluster.port),
        "-kernel inet_dist_listen_max": str(cluster.port),
        "-kernel inet_dist_use_interface": "{" + cluster.host.replace(".", ",") + "}",
        f"-kernel {properties.TICK}": machine[properties.TICK],  # too late in rabbitmq.conf: see -sname
        "+S": "{0}:{0}".format(machine[properties.SCHEDULERS]),
    }
    variables = {
        "HOME": layout.etc,  # the cookie is here
        "ROOTDIR": erlang,
        "BINDIR": layout.etc,  # our erl is here, and what starts the other programs
        "EMU": "beam",
        "PROGNAME": "erl",
        "ERL_INETRC": f"{layout.etc}/inetrc",
        "ERL_EPMD_PORT": _NO_EPMD,
        "ERL_CRASH_DUMP": f"{layout.logs}/erl_crash.dump",
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_DIST_PORT": cluster.port,
        "RABBITMQ_CONF_ENV_FILE": f"{layout.etc}/none",
        "RABBITMQ_CONFIG_FILE": f"{layout.etc}/rabbitmq",
        "RABBITMQ_GENERATED_CONFIG_DIR": f"{layout.etc}/generated",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{layout.etc}/enabled_plugins",
        "RABBITMQ_FEATURE_FLAGS_FILE": f"{layout.data}/feature_flags",
        "RABBITMQ_MNESIA_BASE": layout.data,
        "RABBITMQ_LOG_BASE": layout.logs,
        "RABBITMQ_PID_FILE": f"{layout.data}/pid",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(f"{flag} {value}" for flag, value in flags.items()),
        "RUNNING_UNDER_SYSTEMD": "true",  # the script keeps no shell beside the virtual machine
    }
    lines = [
        f"chmod 400 {shlex.quote(layout.etc)}/{COOKIE}",
        *(f"chmod 700 {shlex.quote(layout.etc)}/{name}" for name in ("erl", *distribution.PROGRAMS)),
        *(f"export {key}={shlex.quote(str(value))}" for key, value in variables.items()),
        f"export PATH={shlex.quote(layout.etc)}:{shlex.quote(erlang)}/bin:$PATH",
        f"exec sh {shlex.quote(server)}/sbin/rabbitmq-server",
    ]
    return ("set -e\n" + "".join(f"{line}\n" for line in lines)).encode()
