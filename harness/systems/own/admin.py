"""The admin clients with which the harness asks our brokers: JSON lines over kept connections.

Why the connections are kept open: the role monitor asks fourteen times a second, and a refused new
connection must mean that no broker listens, not that ports ran out. A request that is given up
closes its connection, so that its late answer can never be taken for the answer to the next
question.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from broker.admin_client import AdminClient, BrokerRefusedError, Target
from checkers.schema import TOPIC
from harness.interface import LIVE, Address, CommandRefusedError, Mirrored, Status, StoredMessage, Takeover
from harness.systems.own.credentials import Credentials

_SUBSCRIPTION: Final = re.compile(rf"({TOPIC}.+?)::(?:.*(?<!\\)\.)?(.+)")
"""The name of a subscription's queue.

It has the topic, the client if the subscription belongs to one client, and the subscription's name.
"""


class AdminClients:
    """The admin clients of a run: one connection per address, made when first needed.

    ``credentials`` are those of the run: all its brokers get them.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self._connections: dict[Address, AdminClient] = {}

    async def status(self, admin: Address) -> Status:
        """Return the status of a broker; raise OSError if nothing answers."""
        answer = await self._request_on_kept_connection(admin, "status", {"queues": False})
        return Status(
            name=answer["name"],
            node_id=answer.get("node-id"),
            role=answer["role"],
            epoch=answer["epoch"],
            replicating=answer.get("replicating", False),
            life=answer.get("life"),
            takeovers=tuple(
                Takeover(node_id=taken["node-id"], life=taken["life"])
                for taken in answer.get("takeovers", ())
            ),
            details=answer,
        )

    async def record_position(self, admin: Address) -> str | None:
        """Return the latest change of the record that a broker has; None if it has no record."""
        record = (await self.status(admin)).details.get("change-record")
        return None if record is None else f"{record['incarnation']} {record['sequence']}"

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """Return every message in every store, over a new connection, since that may take long."""
        answer = await self.administer(admin, "browse", {})
        return [stored(message) for message in answer["messages"]]

    async def subscriptions(self, admin: Address) -> Collection[tuple[str, str]]:
        """Return topic and name of the subscriptions that outlive connections.

        A subscription that is not durable names no client. Raises OSError for a broker that is not
        live.
        """
        answer = await self._request_on_kept_connection(admin, "status", {})
        if answer["role"] != LIVE:
            raise OSError(f"{answer['name']} is not live, but {answer['role']}")
        matches = (_SUBSCRIPTION.fullmatch(item["name"]) for item in answer["queues"])
        return {(item[1], item[2]) for item in matches if item is not None and "::." not in item[0]}

    async def contents(self, admin: Address) -> Mirrored:
        """Return the contents of a live that waits for its backup, or of that backup."""
        answer = await self._request_on_kept_connection(admin, "contents", {})
        return Mirrored(answer["last"], answer["contents"])

    async def views(self, admin: Address) -> dict[str, dict[str, str]]:
        """Return what it believes about the cluster (``broker.cluster.views``)."""
        answer = await self._request_on_kept_connection(admin, "views", {})
        peers: dict[str, dict[str, str]] = answer["views"]
        return peers

    async def stop(self, admin: Address, *, failover: bool | None = None) -> None:
        """Ask for a clean stop; ``failover`` overrides failover-on-shutdown for this once."""
        await self.administer(admin, "stop", {} if failover is None else {"failover": failover})

    async def administer(self, admin: Address, command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a command, over a connection of its own.

        The command may take long, or stop the broker.
        """
        connection = self._connection(admin)
        try:
            return await self._request(connection, admin, command, arguments)
        finally:
            connection.close()

    async def _request_on_kept_connection(
        self, admin: Address, command: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        if admin not in self._connections:
            self._connections[admin] = self._connection(admin)
        return await self._request(self._connections[admin], admin, command, arguments)

    def _connection(self, admin: Address) -> AdminClient:
        return AdminClient(Target(admin.host, admin.port, self.credentials.admin), self.credentials.nonce)

    async def _request(
        self, connection: AdminClient, admin: Address, command: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        try:
            return await connection.request(command, arguments)
        except BrokerRefusedError as error:
            refusal = f"{admin} refused {command}: {error}"
            raise (CommandRefusedError if error.not_done else BrokerRefusedError)(refusal) from error


def stored(message: Mapping[str, Any]) -> StoredMessage:
    """Return a message as a broker describes it."""
    queue = message.get("origin", message["queue"])
    matched = _SUBSCRIPTION.fullmatch(queue)
    return StoredMessage(
        store=message["store"],
        queue=queue if matched is None else matched[1],
        group=message.get("group"),
        body=base64.b64decode(message["body"]),
        digest=message.get("crc32c"),
        subscription=None if matched is None else matched[2],
        origin="origin" in message,
    )
