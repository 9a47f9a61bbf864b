"""Brokers' cluster sides in one process: real loopback sockets, short times, no engines."""

import asyncio
import contextlib
import random

import msgspec

from broker import config
from broker.cluster.membership import Membership
from broker.seams import Seams


async def until(condition, what, timeout_s=60.0):
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.005)


class Hub:
    """Starts memberships that find each other by name; an async context."""

    def __init__(self, **properties):
        self.properties = properties
        self.hosts = {}
        self.members = {}
        self._started = 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for member in self.members.values():
            with contextlib.suppress(Exception):
                await member.stop()

    async def add(
        self, name, /, *static, role="live", node_id=None, volume=None, conventional=None, **properties
    ):
        """A broker that knows the connectors of ``static``.

        ``conventional`` is its section of that policy, whose list has those brokers, too.
        """
        table = config.apply(
            {
                "broker": {"name": name},
                "cluster": {
                    "cluster-password": "cluster-secret",
                    "host": "127.0.0.1",
                    "port": 0,
                    "connector": f"{name}:61616",
                    "stomp-connector": f"{name}:61613",
                    "static-connectors": [f"{other}:61616" for other in static],
                    "connection-ttl": 5000,
                    "call-timeout": 10_000,
                    "retry-interval": 20,
                    "max-retry-interval": 50,
                },
            },
            {
                f"cluster.{key.replace('_', '-')}": value
                for key, value in {**self.properties, **properties}.items()
            },
        )
        if conventional is not None:
            del table["cluster"]["static-connectors"]
            table["ha-policy"] = {"conventional": {"allow-loopback": True, **conventional}}
        settings = config.validate(table)
        section = settings.cluster
        if conventional is not None:
            section = msgspec.structs.replace(
                section,
                static_connectors=tuple(f"{other}:61616" for other in static),
                allow_direct_connections_only=True,
            )
        self._started += 1
        seams = Seams(
            random=random.Random(name),
            wall_clock=lambda start=self._started: 1000.0 + start,
            hosts=self.hosts,
        )
        member = self.members[name] = Membership(settings, section, seams)
        await member.start(volume)
        self.hosts[f"{name}:61616"] = ("127.0.0.1", member.neighbours.port)
        member.announce(role=role, node_id=node_id or f"node-{name}")
        return member


def linked(member):
    return {other.name for other, _ in member.neighbours.linked()}
