"""The admin port: what a broker says of itself, as JSON lines over TCP, at any time.

Why its own port and so plain: the harness' role monitor and ``brokerctl`` must get an answer while
clients load the broker, while it is a backup and has no acceptor, and outside every partition of
the cluster's network. One request a line, one answer a line, in order:

    {"command": "status"}                          {"ok": true, "name": ..., "role": ..., ...}
    {"command": "stop", "failover": true}          {"ok": true}
    {"command": "nonsense"}                        {"ok": false, "error": "unknown command ..."}

See ``docs/reference/admin-protocol.md``; who may ask, and how much, is ``admin_connection``'s. What
concerns many queues or messages is done in slices of a few milliseconds, with the clients served in
between.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from broker.admin_connection import AdminConnection, Answered, Desk
from broker.admin_destinations import DestinationCommands
from broker.cluster.views import views
from broker.core.addresses import INTERNAL_PREFIX
from broker.core.browsing import BrowsedMessage
from broker.core.changes import (
    DESTINATION,
    SUBSCRIPTION,
    ChangeRefusedError,
    ChangeUnknownError,
    Entity,
    key_of,
)
from broker.core.deletion import QueueFillingError, QueueInUseError, delete, demand_deletable
from broker.core.engine import DemotedError, Engine
from broker.core.filtering import headers_of
from broker.core.two_phase import parse_transaction_id
from broker.policies.policy import BrokerPolicy, Command, RequestRefusedError
from broker.sections import AdminSection
from broker.start_error import StartError
from broker.stomp.headers import FrameRefusedError, queue_name
from broker.storage.blobs import Blob
from broker.storage.errors import JournalError

_log = logging.getLogger(__name__)

QUEUES_PER_SLICE: Final = 200
MESSAGES_PER_SLICE: Final = 100
"""What is told in one turn of the loop: a few milliseconds."""


class RequestError(Exception):
    """The request cannot be done; the text is the answer's ``error``."""


class PartlyDoneError(RequestError):
    """The request was done in part; the text is the answer's ``error``."""


class AdminServer(Desk):
    """Answers from ``start`` to ``stop``; ``stopping`` is set by the command of that name."""

    def __init__(
        self,
        section: AdminSection,
        name: str,
        policy: BrokerPolicy,
        stopping: asyncio.Event,
        secret: str | None,
        nonce: Callable[[], bytes],
    ) -> None:
        super().__init__(secret, nonce)
        self._section = section
        self._name = name
        self._policy = policy
        self._stopping = stopping
        self._listener: asyncio.Server | None = None
        self._commands: Mapping[str, Command] = {
            "browse": self._browse,
            "brokers": self._brokers,
            "commit-transaction": partial(self._end_transaction, commits=True),
            "create": self._create,
            "delete": self._delete,
            "purge": self._purge,
            "roll-back-transaction": partial(self._end_transaction, commits=False),
            "status": self._status,
            "stop": self._stop,
            "transactions": self._transactions,
            "views": self._views,
            **DestinationCommands(self._live_engine).commands,
            **policy.commands,
        }
        self._asking: dict[asyncio.Task[None], None] = {}

    @property
    def port(self) -> int:
        """Where it listens, which matters where the configuration says port 0."""
        assert self._listener is not None, "the admin server has not been started"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen. Raises StartError when the address cannot be had."""
        section = self._section
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                lambda: AdminConnection(self), section.host, section.port
            )
        except OSError as error:
            raise StartError(
                f"admin address {section.host}:{section.port} cannot listen: {error.strerror or error};"
                " is another broker running there? (admin.port)"
            ) from None

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._listener is not None:
            self._listener.close()
        for task in list(self._asking):
            task.cancel()
        for connection in list(self.connections):
            connection.close()

    def answer(self, request: dict[str, Any], reply: Answered) -> None:
        """Answer one request, now, or when it is done."""
        command = request["command"]
        try:
            engine = self._policy.engine
            if command == "status" and (engine is None or len(engine.queues) <= QUEUES_PER_SLICE):
                # Without a task: it is asked many times a second.
                wanted = engine is not None and _flag(request, "queues", default=True)
                told = _queues(engine, engine.queues) if engine is not None and wanted else []
                reply(_answer({**self._standing(), "queues": _array(told)}))
            elif command in self._commands:
                task = asyncio.get_running_loop().create_task(self._take_time(command, request, reply))
                self._asking[task] = None
                task.add_done_callback(self._asking.pop)
            else:
                known = ", ".join(sorted(self._commands))
                reply(_error(f"unknown command {command!r}; known: {known}"))
        except (RequestError, JournalError) as error:
            reply(_error(str(error)))

    async def _take_time(self, command: str, request: dict[str, Any], reply: Answered) -> None:
        try:
            reply(_answer(await self._commands[command](request)))
        except (
            RequestRefusedError, RequestError, ChangeRefusedError, DemotedError, JournalError, OSError
        ) as error:  # fmt: skip
            reply(_error(str(error), not_done=_is_not_done(error)))
        except Exception:  # noqa: BLE001 - whoever asked must not wait for ever
            _log.exception("admin port: internal error in the command %s, please report this", command)
            reply(_error("internal error of the broker, please report it"))

    # ------------------------------------------------------------------------------------- commands

    async def _status(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The status of the broker.

        Of many queues: each as it was at some moment since it was asked for, all else as it is when
        the answer is complete.
        """
        engine = self._policy.engine
        told: list[bytes] = []
        if engine is not None and _flag(request, "queues", default=True):
            names = sorted(engine.queues)
            for start in range(0, len(names), QUEUES_PER_SLICE):
                told += _queues(engine, names[start : start + QUEUES_PER_SLICE])
                await asyncio.sleep(0)
        return {**self._standing(), "queues": _array(told if self._policy.engine is engine else [])}

    def _standing(self) -> dict[str, Any]:
        """What is asked most: who this is, and in which role."""
        policy = self._policy
        role = policy.role
        succession = policy.succession
        return {
            **policy.details(),
            "name": self._name,
            "node-id": policy.node_id,
            "role": role,
            "epoch": policy.epoch,
            "replicating": policy.replicating,
            "life": succession.life,
            "takeovers": [{"node-id": taken.node_id, "life": taken.life} for taken in succession.takeovers],
        }

    async def _brokers(self, _: Mapping[str, Any]) -> dict[str, Any]:
        membership = self._policy.membership
        details = self._policy.details()
        cluster = {
            "name": self._name,
            "address": "" if membership is None else membership.own.connector,
            "cluster-id": details.get("cluster-id", ""),
            "highly-available": details["policy"] not in ("standalone", "conventional"),
        }
        if membership is None:
            own = {"name": self._name, "role": self._policy.role, "node-id": self._policy.node_id}
            return {"cluster": cluster, "brokers": [own]}
        neighbours = membership.neighbours
        linked = {
            member.name for member, _ in neighbours.linked() if neighbours.accepted_by(member.connector)
        }
        members = {**membership.directory.known, membership.own.name: membership.own}
        is_conventional = self._policy.config.ha_policy.conventional is not None
        listed = neighbours.static if is_conventional else ()
        never_met = {*listed} - {member.connector for member in members.values()}
        return {
            "cluster": cluster,
            "brokers": [
                {
                    "name": member.name,
                    "role": member.role,
                    "node-id": member.node_id,
                    "group-name": member.group_name,
                    "connector": member.connector,
                    "stomp-connector": member.stomp_connector,
                    "activation": member.activation,
                    "linked": member.name in linked or member.name == membership.own.name,
                }
                for member in sorted(members.values(), key=lambda member: member.name)
            ]
            + [
                {"name": None, "role": None, "node-id": None, "connector": address, "linked": False}
                for address in sorted(never_met)
            ],
        }

    async def _views(self, _: Mapping[str, Any]) -> dict[str, Any]:
        membership = self._policy.membership
        engine = self._policy.engine
        if engine is None:
            raise RequestError(
                f"{self._name} is not live (role {self._policy.role}): it has no view that other brokers "
                f"must agree with"
            )
        return {"views": {} if membership is None else views(membership, engine.changes)}

    async def _browse(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine = self._live_engine("browse")
        browsing = engine.browse(_text(request, "queue"))
        told: list[bytes] = []
        try:
            async for stored in browsing:
                told.append(msgspec.json.encode(_told(stored)))
                if len(told) % MESSAGES_PER_SLICE == 0:
                    await asyncio.sleep(0)
            return {"messages": _array(told)}
        finally:
            browsing.close()

    async def _stop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        failover = request.get("failover")
        if failover is not None and not isinstance(failover, bool):
            raise RequestError(f"failover must be true or false, not {failover!r}")
        _log.info(
            "an administrator asks this broker to stop%s",
            "" if failover is None else f" (failover: {str(failover).lower()})",
        )
        self._policy.request_stop(failover=failover)
        self._stopping.set()
        return {}

    async def _purge(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine, queue = self._queue("purge", request)
        if queue not in engine.queues:
            raise RequestError(f"no queue {queue!r} here")
        return {"purged": await engine.purge(queue)}

    async def _create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine, queue = self._queue("create", request)
        try:
            name = queue_name(queue)
        except FrameRefusedError as error:
            raise RequestError(str(error)) from None
        if engine.changes is not None and engine.changes.has_master:
            new = await engine.changes.request(DESTINATION, name, "")
        else:
            new = name not in engine.queues
            engine.queue(name)
        await engine.flushed()
        return {"created": new}

    async def _delete(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine, name = self._queue("delete", request)
        flags = {
            "remove_consumers": _flag(request, "remove-consumers"),
            "remove_messages": _flag(request, "remove-messages"),
        }
        try:
            entity = _shared_entity(engine, name)
            if entity is None:
                return {"purged": await delete(engine, name, **flags)}
            purged = len(demand_deletable(engine, name, **flags))
        except QueueFillingError as error:
            raise PartlyDoneError(str(error)) from None
        except QueueInUseError as error:
            raise RequestError(str(error)) from None
        if not flags["remove_messages"]:
            raise RequestError(f"queue {name!r} may have messages at other brokers: give remove-messages")
        assert engine.changes is not None, "an entity of the cluster at a broker without one"
        await engine.changes.request(*entity, None)
        await engine.flushed()
        return {"purged": purged}

    async def _transactions(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return the transactions over several brokers that have not ended here."""
        engine = self._live_engine("transactions")
        linked, now = self._linked_nodes(), engine.now()
        return {
            "prepared": [
                {
                    "id": str(prepared.id),
                    "coordinator": prepared.id.coordinator,
                    "linked": linked.get(prepared.id.coordinator),
                    "age-ms": max(0, now - prepared.since),
                    "messages": prepared.total,
                }
                for prepared in engine.prepared.by_id.values()
            ],
            "decided": [
                {
                    "id": str(decision.id),
                    "participants": decision.homes,
                    "age-ms": max(0, now - decision.since),
                }
                for decision in engine.decided.values()
            ],
        }

    async def _end_transaction(self, request: Mapping[str, Any], *, commits: bool) -> dict[str, Any]:
        """Decide in the place of a coordinator that is gone for good."""
        engine = self._live_engine("transactions")
        text = _text(request, "transaction") or ""
        id_ = parse_transaction_id(text)
        if id_ is None or id_ not in engine.prepared.by_id:
            raise RequestError(f"no transaction {text[:128]!r} is prepared here (brokerctl transactions)")
        coordinator = self._linked_nodes().get(id_.coordinator)
        if coordinator is not None:
            raise RequestError(
                f"transaction {id_}: its coordinator {coordinator} is linked with this broker, and decides"
            )
        outcome = "committed" if commits else "rolled back"
        _log.warning(
            "transaction %s is %s here because an administrator says so; if its coordinator comes back and "
            "has decided otherwise, it is %s everywhere else",
            id_,
            outcome,
            "rolled back" if commits else "committed",
        )
        await (engine.commit_prepared if commits else engine.roll_back_prepared)(id_)
        return {"outcome": outcome}

    def _linked_nodes(self) -> dict[str, str]:
        """Return the names of the brokers that we are linked with, by node ID."""
        membership = self._policy.membership
        linked = () if membership is None else membership.neighbours.linked()
        return {member.node_id: member.name for member, _ in linked if member.node_id}

    def _live_engine(self, command: str) -> Engine:
        engine = self._policy.engine
        if engine is None or engine.abandoned:
            raise RequestError(
                f"{self._name} is not live (role {self._policy.role}): it has no "
                f"{command if command == 'transactions' else f'queues to {command}'}"
            )
        return engine

    def _queue(self, command: str, request: Mapping[str, Any]) -> tuple[Engine, str]:
        """The live engine, and the queue that is meant."""
        queue = _text(request, "queue")
        if queue is None:
            raise RequestError(
                f'{command} needs the name of a queue: {{"command": "{command}", "queue": "orders"}}'
            )
        return self._live_engine(command), queue


def _shared_entity(engine: Engine, name: str) -> Entity | None:
    """Return the entity of the change record that a queue is; None for a queue of this broker.

    A queue that clients made is one, too: this broker may not have heard yet that it was created,
    and other brokers may have messages of that name.
    """
    queue, changes = engine.queues.get(name), engine.changes
    if queue is None or changes is None:
        return None
    if queue.subscription is not None and queue.subscription.durable:
        return SUBSCRIPTION, key_of(queue.subscription.key)
    is_destination = not queue.forwards and not name.startswith(("/", INTERNAL_PREFIX))
    return (DESTINATION, name) if is_destination and changes.has_master else None


def _flag(request: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    wanted = request.get(key, default)
    if not isinstance(wanted, bool):
        raise RequestError(f"{key} must be true or false, not {wanted!r}")
    return wanted


def _queues(engine: Engine, names: Iterable[str]) -> list[bytes]:
    """The counts of these queues, each encoded; those that are gone are left out."""
    return [msgspec.json.encode(queue) for queue in engine.status(names)]


def _array(encoded: Sequence[bytes]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(encoded) + b"]")


def _told(stored: BrowsedMessage) -> dict[str, Any]:
    message = stored.message
    return {
        "store": stored.store,
        "queue": stored.queue,
        "holder": stored.holder,
        "group": message.group,
        "id": message.id,
        "deliveries": message.deliveries,
        "body": base64.b64encode(message.body).decode(),
        **_of_file(message.large),
        **({} if stored.topic is None else {"topic": stored.topic}),
        **_origin(stored),
    }


def _origin(stored: BrowsedMessage) -> dict[str, str]:
    """Which queue, or which subscription, gave up a dead letter or what has expired."""
    if stored.store not in ("dead-letter", "expired"):
        return {}
    origin = headers_of(stored.message).get("_AMQ_ORIG_QUEUE", "")
    return {"origin": origin} if origin else {}


def _of_file(large: Blob | None) -> dict[str, int]:
    """What is told of a large message besides the beginning of its body: bytes and CRC-32C."""
    return {} if large is None else {"size": large.size, "crc32c": large.checksum}


def _text(request: Mapping[str, Any], key: str) -> str | None:
    value = request.get(key)
    if value is not None and not isinstance(value, str):
        raise RequestError(f"{key} must be text, not {value!r}")
    return value


def _answer(fields: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"ok": True, **fields})


def _is_not_done(error: Exception) -> bool:
    """Return whether a command that failed certainly changed nothing."""
    if isinstance(error, PartlyDoneError | ChangeUnknownError):
        return False
    return isinstance(error, RequestError | ChangeRefusedError)


def _error(text: str, *, not_done: bool = False) -> bytes:
    return msgspec.json.encode({"ok": False, "error": text, **({"not-done": True} if not_done else {})})
