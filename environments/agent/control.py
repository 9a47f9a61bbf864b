"""The protocol of agents: a connection carries a token, a request as a JSON line, and its answer.

Why a connection for each request: containers are killed and started all the time, and a new
connection cannot be stale. And waiting for a broker's exit takes as long as the broker lives. The
harness comes from the network's gateway address, which no firewall rule of ours ever names, so a
partition does not reach this channel. Each connection begins with a line that is the deployment's
token. Other processes on the host can reach the port, too; from a client without the token, the
agent reads nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Final

CONTROL_PORT: Final = 61990
PROBE_PORT: Final = 61991
"""The port of the agent's TCP echo and of its datagrams.

Unlike the control port, it obeys the same rules as the broker's own traffic.
"""

ROOT_VARIABLE: Final = "JEPSEN_RUN_ROOT"
ROOT: Final = os.environ.get(ROOT_VARIABLE, "/jepsen-run")
"""The directory of everything that a node has; in its agent's process the environment names it."""

ETC: Final = f"{ROOT}/etc"
DATA: Final = f"{ROOT}/data"
LOGS: Final = f"{ROOT}/logs"
STORE: Final = f"{ROOT}/store"
"""The place where a shared directory is mounted, on the machines of brokers that have one."""

RULES: Final = f"{ROOT}/device"
"""The file with the device whose rules are the node's; written once its agent has the machine."""

CLOCK: Final = f"{ROOT}/clock"
"""The file that says by how many milliseconds the machine's clock is wrong on purpose."""

DISK: Final = f"{ROOT}/disk"
"""The place where a disk that can break is mounted, in front of DATA."""

TOKEN_VARIABLE: Final = "JEPSEN_RUN_TOKEN"  # noqa: S105 - the variable's name, not a token
CONTROL_HOST_VARIABLE: Final = "JEPSEN_RUN_CONTROL_HOST"
"""The environment variable with the address on which the agent listens for the harness.

Without it, the agent listens on all addresses.
"""

DEVICE_VARIABLE: Final = "JEPSEN_RUN_DEVICE"
"""The environment variable with the device by which other machines are reached; eth0 without it."""

ORPHAN_VARIABLE: Final = "JEPSEN_RUN_ORPHAN_S"
"""The environment variable with the seconds after which an agent without requests ends itself.

The agent ends its broker, too. Without the variable it never ends by itself: a container is removed
by the harness that made it, with everything in it.
"""

LINE_BYTES_MAX: Final = 16 << 20

ENDED: Final = "lease-ended"
"""The kind of error which says that the lease had been healed already."""

REFUSED: Final = "refused"
"""The kind of error which says that the request does not fit this state: the caller is at fault."""


class AgentError(Exception):
    """The agent understood a request and could not do it.

    ``kind`` is ENDED, REFUSED, or the name of an unexpected exception. ``errno`` is the number of
    an error of the agent's operating system.
    """

    def __init__(self, text: str, kind: str = "", errno: int | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.errno = errno


async def call(
    host: str, port: int, token: str, operation: str, *, timeout_s: float | None, **arguments: Any
) -> Any:
    """Ask an agent and return its answer.

    ``timeout_s`` bounds the whole exchange; None waits as long as the container lives. Raises
    AgentError for what the agent refused, OSError (ConnectionError included) if the agent is not
    there or dies meanwhile, TimeoutError if it stays silent.
    """
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port, limit=LINE_BYTES_MAX)
        try:
            request = json.dumps({"operation": operation, "arguments": arguments})
            if writer.is_closing():  # uvloop's transports then refuse to be written to
                raise ConnectionResetError(f"the agent at {host}:{port} went away before {operation!r}")
            writer.write(f"{token}\n{request}\n".encode())
            await writer.drain()
            line = await reader.readline()
        finally:
            writer.close()
    if not line.endswith(b"\n"):
        raise ConnectionResetError(f"the agent at {host}:{port} went away during {operation!r}")
    answer = json.loads(line)
    if "error" in answer:
        raise AgentError(answer["error"], answer.get("kind", ""), answer.get("errno"))
    return answer["result"]
