"""A second system under test: all that one must have, and nothing that only some have."""

import asyncio
import base64
import json
import re
import string
from pathlib import Path

from checkers.verdict import Promises
from harness.interface import (
    LIVE,
    Dialect,
    Event,
    NodePlan,
    Patience,
    PolicySummary,
    Status,
    StoredMessage,
)
from harness.systems import readiness

SCRIPT = Path(__file__).with_name("second_broker.py")
ROLES = {"active": LIVE}
"""Its own words."""


class SecondSystem:
    name = "echo"
    summary = "a broker of the tests, with queues in memory"
    dialect = Dialect(queue="/echo/{}", group_header="group", window_header=None, name_header="broker")
    patience = Patience(start_s=90.0, silence_s=2.0)
    policies = {"alone": PolicySummary(description="separate brokers without a cluster")}
    events = {"broker/listening": Event("a broker began to listen", re.compile("^listening "))}
    lacking = staticmethod(readiness.lacking)

    def promises(self, spec):
        return Promises(nack="consume", keeps_dead_letters=False)

    def plan(self, spec):
        return tuple(
            NodePlan(
                name=f"{pair}1", pair=pair, configured="standalone", ports={"stomp": 61613, "admin": 8161}
            )
            for pair in string.ascii_lowercase[: spec.pairs]
        )

    def drawn(self, spec, nodes):
        return {}

    def files(self, spec, node, nodes, layout, listen, hosts):
        where = {port: [address.host, address.port] for port, address in listen.items()}
        return {"second.json": json.dumps({"name": node.name, "listen": where}).encode()}

    def command(self, layout):
        return ["python", str(SCRIPT), layout.etc]

    async def status(self, admin):
        state = (await self._ask(admin, "status"))["state"]
        return Status(name="", node_id=str(admin), role=ROLES.get(state, state), epoch=1)

    async def browse(self, admin):
        return [
            StoredMessage(
                store="main",
                queue=destination.removeprefix("/echo/"),
                group=group,
                body=base64.b64decode(body),
            )
            for destination, group, body in await self._ask(admin, "browse")
        ]

    async def stop(self, admin, *, failover=None):
        raise OSError("it cannot be stopped so")

    async def _ask(self, admin, question):
        reader, writer = await asyncio.open_connection(admin.host, admin.port, limit=1 << 26)
        try:
            writer.write(question.encode() + b"\n")
            line = await reader.readline()
        finally:
            writer.close()
        if not line:
            raise ConnectionResetError("no answer")
        return json.loads(line)


class MissingSystem(SecondSystem):
    """Its brokers are not on this machine."""

    name = "absent"

    def missing(self):
        return "no distribution: set ECHO_HOME"

    def version(self):
        return "1.2"

    def unplaced(self, environment):
        return "it has no image" if environment == "docker" else ""


class UntriedSystem(SecondSystem):
    """Its release is newer than those that were tried."""

    def warnings(self, spec):
        return [f"echo 1.2 with {spec.pairs} brokers is untried"]
