"""The management of an Open MQ broker by its management beans: its role, its stores, its stop.

What a broker says of the cluster comes from its database, which may stand still. So that question
is asked apart from its role, and seldom; meanwhile the last answer is used. Stores are read by the
bean ``MessageManager``, which takes nothing and holds nothing back from consumers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from harness.interface import LIVE, SUSPENDED, TOPIC, Address, Status, StoredMessage, Takeover
from harness.systems.jolokia import Jolokia

_DOMAIN: Final = "com.sun.messaging.jms.server"
_BROKER: Final = f"{_DOMAIN}:type=Broker,subtype=Monitor"
_STEERED: Final = f"{_DOMAIN}:type=Broker,subtype=Config"
_CLUSTER: Final = f"{_DOMAIN}:type=Cluster,subtype=Monitor"
_SERVICE: Final = f"{_DOMAIN}:type=Service,subtype=Monitor,name=jms"
_MESSAGES: Final = f"{_DOMAIN}:type=MessageManager,subtype=Monitor"
_CONSUMERS: Final = f"{_DOMAIN}:type=ConsumerManager,subtype=Monitor"
_DESTINATIONS: Final = f"{_DOMAIN}:type=Destination,subtype=Monitor,desttype={{}},name=*"
_QUEUE, _TOPIC = "q", "t"

_RUNNING, _PAUSED, _QUIESCED = 0, 1, 2
"""The states of the service that clients use; the STOMP bridge is one of its clients."""

STARTING: Final = "starting"

_SENT_TO: Final = re.compile(r"ID:\d+-([\d.]+)\(")
"""The pattern, in a message's id, of the address of the broker whose bridge accepted it."""

_AGAIN_S: Final = 0.4
"""The period of questions about the cluster (s)."""
_MEMBERS_S: Final = 0.2
"""How long the answer is awaited (s)."""

SUBSCRIPTIONS: Final = "subscriptions"
MEMBERS: Final = "members"
LIVE_S: Final = "live-s"
"""The name, in a status' details, of how long the broker is known to be live (s).

``MEMBERS`` names what it says of every broker of its cluster.
"""

_TAKEN: Final = "TAKEOVER_COMPLETE"
_WORDS: Final = {"QUIESCE_STARTED": "QUIESCING"}
_MAIN, _ELSEWHERE = "main", "store-and-forward"
_DEAD_LETTERS: Final = "mq.sys.dmq"


@dataclass(slots=True)
class _Members:
    """The question about the cluster's brokers, and its last answer."""

    answer: Sequence[Mapping[str, Any]] = ()
    request: asyncio.Task[Sequence[Any]] | None = None
    since_s: float = 0.0


class Management:
    """The part of a system that asks its brokers; ``clustered``: they are one cluster."""

    clustered = False
    one_store = False
    """Whether all brokers of the cluster share one database."""
    ids_from_names = True
    compared_views = (SUBSCRIPTIONS,)

    def __init__(self) -> None:
        self._jolokia = Jolokia("/jolokia/")
        self._members: dict[Address, _Members] = {}
        self._since: dict[Address, tuple[int, float]] = {}  # a life that was seen live, and since when
        self._numbers: dict[tuple[str, str], int] = {}  # the numbers of standing takeovers, by taker and node

    async def status(self, admin: Address) -> Status:
        """Return a broker's status.

        A broker is suspended while it waits for the master broker, or is being taken over.
        The time at which its JVM began is its epoch. Its takeovers are those in the database.
        """
        broker, service, began = await self._jolokia.ask(
            admin,
            {"type": "read", "mbean": _BROKER, "attribute": ["InstanceName"]},
            {"type": "read", "mbean": _SERVICE, "attribute": ["State"]},
            {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": "StartTime"},
        )
        if not broker or not service:
            return Status(name="", node_id=None, role=STARTING, epoch=began)
        name, state = broker["InstanceName"], service["State"]
        members = await self._of_the_cluster(admin) if self.clustered else ()
        serves = state in (_RUNNING, _QUIESCED)
        now = asyncio.get_running_loop().time()
        if serves and self._since.get(admin, (0, 0.0))[0] != began:
            self._since[admin] = began, now
        return Status(
            name=name,
            node_id=name,
            role=LIVE if serves else SUSPENDED if state == _PAUSED else STARTING,
            epoch=began,
            takeovers=self._taken_by(name, members) if serves else (),
            details={MEMBERS: members, LIVE_S: now - self._since[admin][1] if serves else 0.0},
        )

    async def _of_the_cluster(self, admin: Address) -> Sequence[Mapping[str, Any]]:
        """Return what a broker says of each broker; at most one question waits at a time."""
        members = self._members.setdefault(admin, _Members())
        now = asyncio.get_running_loop().time()
        if (members.request is None or members.request.done()) and now - members.since_s > _AGAIN_S:
            question = {"type": "exec", "mbean": _CLUSTER, "operation": "getBrokerInfo()"}
            members.request, members.since_s = asyncio.create_task(self._jolokia.ask(admin, question)), now
            members.request.add_done_callback(_heard)
        if members.request is not None:
            await asyncio.wait((members.request,), timeout=_MEMBERS_S)
            if members.request.done() and members.request.exception() is None:
                members.answer = members.request.result()[0] or ()
        return members.answer

    def _taken_by(self, name: str, members: Sequence[Mapping[str, Any]]) -> tuple[Takeover, ...]:
        """Return the takeovers of a broker, as the database says.

        A takeover's number is the first time that was seen with it: a broker that starts again
        writes another time, and still counts as taken over until it serves.
        """
        taken = {
            (name, member["ID"]): int(member["StatusTimestamp"] or 0)
            for member in members
            if member["TakeoverBrokerID"] == name and member["StateLabel"] == _TAKEN
        }
        other_numbers = {key: time for key, time in self._numbers.items() if key[0] != name}
        self._numbers = {
            **other_numbers,
            **{key: self._numbers.get(key, time) for key, time in taken.items()},
        }
        return tuple(Takeover(node_id=key[1], life=self._numbers[key]) for key in taken)

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """Return the stored messages; raise OSError if a queue did not show all of its messages.

        Brokers also show messages that others sent them for their consumers, even after those are
        gone, and after they were acknowledged. A message is stored where it was sent. In a cluster
        with one database, a message that only other brokers show was taken over by one of them, or
        is gone; they do not say which. So one copy is reported as one that is to be forwarded.
        """
        messages_shown = await self._messages_shown(admin)
        waiting = await self._durable(admin)
        if not self.clustered:
            return [_stored(queue, message, _MAIN) for queue, message in messages_shown] + waiting
        peers = [peer for peer in self._members if peer != admin] if self.one_store else []
        holders = {admin: (await self._host(admin), {message["MessageID"] for _, message in messages_shown})}
        for other in peers:
            with contextlib.suppress(OSError):  # a broker that is gone, or waits to start, shows nothing
                messages = [message["MessageID"] for _, message in await self._messages_shown(other)]
                holders[other] = await self._host(other), {*messages}
        with_keeper = [
            (*message_shown, self._keeper(message_shown[1]["MessageID"], holders))
            for message_shown in messages_shown
        ]
        own_messages = [
            (queue, message, store) for queue, message, (keeper, store) in with_keeper if keeper == admin
        ]
        return [_stored(*message_shown) for message_shown in own_messages] + waiting

    def _keeper(
        self, message: str, holders: Mapping[Address, tuple[str, Container[str]]]
    ) -> tuple[Address | None, str]:
        """Return which of the brokers that show a message stores it, and in which of its stores."""
        sent_to = _SENT_TO.match(message)
        having = [admin for admin, (_, messages) in holders.items() if message in messages]
        home = [admin for admin in having if sent_to is not None and holders[admin][0] == sent_to[1]]
        if home:
            return home[0], _MAIN
        return (min(having) if self.one_store else None), _ELSEWHERE

    async def _host(self, admin: Address) -> str:
        """Return the broker's address in its cluster, which is also in the ids of its messages."""
        (cluster,) = await self._jolokia.ask(
            admin, {"type": "read", "mbean": _CLUSTER, "attribute": ["LocalBrokerInfo"]}
        )
        if cluster is None:
            raise OSError(f"the broker at {admin} is not in its cluster yet")
        host: str = cluster["LocalBrokerInfo"]["Address"].partition(":")[0]
        return host

    async def views(self, admin: Address) -> Mapping[str, Mapping[str, str]]:
        """Return the durable subscriptions of a broker, which those of a cluster must agree on.

        Separate brokers have subscriptions of their own, so they report none.
        """
        if not self.clustered:
            return {}
        (consumers,) = await self._jolokia.ask(
            admin, {"type": "exec", "mbean": _CONSUMERS, "operation": "getConsumerInfo()"}
        )
        if consumers is None:
            raise OSError(f"the broker at {admin} tells no consumers yet")
        return {
            SUBSCRIPTIONS: {
                f"{consumer['ClientID']}:{consumer['DurableName']}": _told_of(consumer)
                for consumer in consumers
                if consumer["Durable"]
            }
        }

    async def _durable(self, admin: Address) -> list[StoredMessage]:
        """Return the messages that wait for durable subscriptions.

        A broker shows the messages of a topic, and how many wait for each subscription, but not
        which. So these are known only if none or all wait. A consumer at another broker is counted
        there, so in a cluster only a topic without any messages is known. Raises OSError in any
        other case.
        """
        messages_shown = await self._messages_shown(admin, _TOPIC)
        if not messages_shown:
            return []
        (consumers,) = await self._jolokia.ask(
            admin, {"type": "exec", "mbean": _CONSUMERS, "operation": "getConsumerInfo()"}
        )
        stored: list[StoredMessage] = []
        for topic in sorted({topic for topic, _ in messages_shown}):
            messages = [message for name, message in messages_shown if name == topic]
            if self.clustered:
                raise OSError(f"topic {topic} at {admin} has {len(messages)} messages, for whom is not told")
            for consumer in consumers or ():
                waiting = (
                    consumer["NumMsgsPending"]
                    if consumer["Durable"] and consumer["DestinationName"] == topic
                    else 0
                )
                if waiting not in (0, len(messages)):
                    name = consumer["DurableName"]
                    raise OSError(f"which {waiting} messages of topic {topic} at {admin} {name} waits for")
                stored += [
                    msgspec.structs.replace(
                        _stored(topic, message, _MAIN),
                        queue=TOPIC + topic,
                        subscription=consumer["DurableName"],
                    )
                    for message in messages[:waiting]
                ]
        return stored

    async def _messages_shown(
        self, admin: Address, kind: str = _QUEUE
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """Return queue and message, or topic and message, of all that a broker shows."""
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _DESTINATIONS.format(kind)})
        messages_shown: list[tuple[str, Mapping[str, Any]]] = []
        for bean in sorted(beans or ()):
            queue = bean.partition('name="')[2].partition('"')[0]
            counted, messages = await self._jolokia.ask(
                admin,
                {"type": "read", "mbean": bean, "attribute": ["NumMsgs"]},
                {
                    "type": "exec",
                    "mbean": _MESSAGES,
                    "operation": "getMessageInfo",
                    "arguments": [kind, queue, None, None, None, True],
                },
            )
            if counted is None or messages is None:
                raise OSError(f"queue {queue} at {admin} is gone")
            if len(messages) < counted["NumMsgs"]:
                raise OSError(
                    f"queue {queue} at {admin} showed {len(messages)} of its {counted['NumMsgs']} messages"
                )
            messages_shown += [(queue, message) for message in messages]
        return messages_shown

    async def stop(self, admin: Address, *, failover: bool | None = None) -> None:
        """Run ``imqcmd shutdown bkr``, with -nofailover if no broker may take over."""
        arguments = [failover is False, 0]
        with contextlib.suppress(ConnectionError):  # its JVM was gone before it could answer
            await self._steer(admin, "shutdown(java.lang.Boolean,java.lang.Long)", *arguments)

    async def administer(
        self, admin: Address, command: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Give a command: "members", "status", "takeover", "quiesce", "unquiesce"."""
        if command == "takeover":
            await self._steer(admin, "takeover", arguments["broker-id"])
        elif command in ("quiesce", "unquiesce"):
            await self._steer(admin, command)
        (members,) = await self._jolokia.ask(
            admin, {"type": "exec", "mbean": _CLUSTER, "operation": "getBrokerInfo()"}
        )
        if command == "members":
            return {
                MEMBERS: [
                    {"broker-id": item["ID"], "state": _WORDS.get(item["StateLabel"], item["StateLabel"])}
                    for item in members or ()
                ]
            }
        (broker,) = await self._jolokia.ask(
            admin, {"type": "read", "mbean": _BROKER, "attribute": ["InstanceName"]}
        )
        taken = self._taken_by(broker["InstanceName"], members or ())
        return {"taken-over": [item.node_id for item in taken]}

    async def _steer(self, admin: Address, operation: str, *arguments: Any) -> None:
        question = {"type": "exec", "mbean": _STEERED, "operation": operation, "arguments": [*arguments]}
        await self._jolokia.ask(admin, question)


def _heard(request: asyncio.Task[Sequence[Any]]) -> None:
    """Retrieve the failure of an answer that no caller awaits any more."""
    if not request.cancelled():
        request.exception()


def _told_of(subscription: Mapping[str, Any]) -> str:
    selector = subscription["Selector"]
    return f"topic {subscription['DestinationName']}{f' where {selector}' if selector else ''}"


def _stored(queue: str, message: Mapping[str, Any], store: str) -> StoredMessage:
    body = message["MessageBody"]
    octets = body.encode() if isinstance(body, str) else bytes(octet % 256 for octet in body or ())
    return StoredMessage(
        store="dead-letter" if queue == _DEAD_LETTERS else store,
        queue=message["DestinationName"],
        group=(message["MessageProperties"] or {}).get("JMSXGroupID"),
        body=octets,
    )
