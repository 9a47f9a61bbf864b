"""The management of a RabbitMQ node: its status, its queues, and its stop.

Queues are read without consuming. Over STOMP there is no browsing. The HTTP API's "get" delivers
the message, counts that, and is refused by a queue with a single active consumer. So this module
asks what ``rabbitmq-queues peek`` asks: the leader's Raft machine for the message at a position,
which it reads from its log. Nothing is checked out, counted or moved.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.interface import LIVE, TOPIC, Address, InfrastructureError, Status, StoredMessage, TestSpec
from harness.systems.rabbitmq import distribution, erlang, properties
from harness.systems.rabbitmq.configuration import USER, node_name
from harness.systems.rabbitmq.http_api import HttpApi
from harness.systems.release import numbers
from workloads.registry import grouped, queues_of

GROUP: Final = "JMSXGroupID"
BETWEEN: Final = "::"
"""The separator between topic and subscription in the name of a subscription's queue."""

_QUEUES: Final = "queues/%2F?disable_stats=true&enable_queue_totals=true"
_LOOK_S: Final = 1.0
"""The period in which a node is asked for its queues' members, which it must ask in turn (s)."""

_DECLARE_S: Final = 30.0

_READ: Final = """
Text = fun(T) when is_binary(T) -> T; (_) -> null end,
Message = fun(M) ->
    Content = case M of
        {basic_message, _, _, C, _, _} -> C;
        Container -> mc:protocol_state(mc:prepare(read, mc:convert(mc_amqpl, Container)))
    end,
    Body = iolist_to_binary(lists:reverse(element(6, Content))),
    Headers = case rabbit_basic:extract_headers(Content) of undefined -> []; Table -> Table end,
    Group = case lists:keyfind(<<"GROUP">>, 1, Headers) of {_, _, G} -> Text(G); false -> null end,
    #{body => base64:encode(Body), group => Group}
end,
Peek = fun Next(Leader, Position, Found) ->
    case ra:aux_command(Leader, {peek, Position}) of
        {ok, {_, M}} -> Next(Leader, Position + 1, [Message(M) | Found]);
        {error, no_message_at_pos} -> lists:reverse(Found)
    end
end,
Read = fun(Q) ->
    {_, _, _, Name} = amqqueue:get_name(Q),
    {Machine, _} = amqqueue:get_pid(Q),
    case ra:members([{Machine, N} || N <- [node() | nodes()]]) of
        {ok, _, {_, Node} = Leader} when Node =:= node() ->
            {ok, Held, _} = ra:consistent_query(Leader, {rabbit_fifo, query_messages_checked_out, []}),
            [#{queue => Name, delivered => Held, messages => Peek(Leader, 1, [])}];
        {ok, _, {_, _}} -> [];
        Nobody -> error({no_leader, Name, Nobody})
    end
end,
io:put_chars(rabbit_json:encode(lists:append([Read(Q) || Q <- rabbit_amqqueue:list(<<"/">>)]))),
done.
""".replace("GROUP", GROUP)
"""The expressions that print the queues that the node leads.

Each queue has the messages to be delivered and the number of those in delivery. Any member knows
the leader of a queue: a node's own member may have ended while the node continues. Since 3.13 a
message of the log may be a message container instead of a message of AMQP 0-9-1.
"""

_STOP: Final = "spawn(fun() -> rabbit:stop_and_halt() end), done.\n"


class _Message(msgspec.Struct):
    body: str
    group: str | None


class _Queue(msgspec.Struct):
    queue: str
    delivered: int
    messages: list[_Message]


class Management:
    """The part of a system that asks its nodes; its secrets belong to one run."""

    def __init__(self) -> None:
        self.release = ""
        self.password = secrets.token_hex(16)
        self.cookie = secrets.token_hex(16).upper()
        self._roles = HttpApi(USER, self.password)
        self._api = HttpApi(USER, self.password)
        self._names: dict[Address, str] = {}
        self._queues: dict[Address, Sequence[Mapping[str, Any]]] = {}
        self._looking: dict[Address, asyncio.Task[None]] = {}

    async def status(self, admin: Address) -> Status:
        """Return a node's status: a node that answers serves; a paused one closes its ports.

        Members of its queues are in ``details`` as they were a moment ago. A node asks the members
        for that, and a silent one must not hide what the node itself is.
        """
        await self._roles.ask(admin, "whoami")
        if admin not in self._names:
            overview = await self._roles.ask(admin, "overview?columns=node")
            self._names[admin] = overview["node"]
        if admin not in self._looking or self._looking[admin].done():
            self._looking[admin] = asyncio.create_task(self._look(admin))
        return Status(
            name=self._names[admin].partition("@")[0],
            node_id=self._names[admin],
            role=LIVE,
            epoch=self._roles.connections[admin],
            replicating=True,  # a majority has what a quorum queue acknowledges
            details={"queues": self._queues.get(admin, ())},
        )

    async def prepare(self, spec: TestSpec, admins: Mapping[str, Address]) -> None:
        """Declare the queues, each with a member on every node that runs."""
        first = next(iter(admins.values()))
        members = {node_name(name) for name in admins}
        for queue in queues_of(spec):
            await self._declare(first, queue, members, arguments(spec, len(members), numbers(self.release)))

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """Return the stored messages; each queue is read from the node that leads it."""
        program = distribution.find_distribution().program("erl_call")
        printed = await erlang.evaluate(program, await self._port(admin), self.cookie, _READ)
        stored = []
        for queue in msgspec.json.decode(printed, type=list[_Queue]):
            if queue.delivered:
                raise OSError(f"{queue.queue}: {queue.delivered} messages are with consumers")
            for message in queue.messages:
                body = base64.b64decode(message.body)
                topic, between, subscription = queue.queue.partition(BETWEEN)
                stored.append(
                    StoredMessage(
                        store="main",
                        queue=TOPIC + topic if between else queue.queue,
                        group=message.group,
                        body=body,
                        subscription=subscription or None,
                    )
                )
        return stored

    async def stop(self, admin: Address, *, failover: bool | None = None) -> None:
        """Stop a node as ``rabbitmqctl stop`` does; other nodes then lead what it led."""
        if failover is False:
            raise OSError("what a node of RabbitMQ leads others lead when it is stopped")
        program = distribution.find_distribution().program("erl_call")
        await erlang.evaluate(program, await self._port(admin), self.cookie, _STOP)

    async def _declare(
        self, admin: Address, queue: str, members: set[str], arguments: Mapping[str, Any]
    ) -> None:
        """Declare a queue until it has all members.

        A node may answer a moment before it has joined the cluster.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DECLARE_S
        members_there: set[str] = set()
        trouble = ""
        while loop.time() < deadline:
            try:
                await self._api.ask(
                    admin, f"queues/%2F/{queue}", "PUT", {"durable": True, "arguments": arguments}
                )
                description = await self._api.ask(admin, f"queues/%2F/{queue}?disable_stats=true")
                members_there = set(description["members"])
                if members_there == members:
                    return
                await self._api.ask(admin, f"queues/%2F/{queue}", "DELETE")
            except OSError as error:
                trouble = f": {error}"
            await asyncio.sleep(_LOOK_S)
        raise InfrastructureError(
            f"queue {queue} could not be declared with members on {', '.join(sorted(members))}; "
            f"it has {', '.join(sorted(members_there)) or 'none'}{trouble}"
        )

    async def _look(self, admin: Address) -> None:
        try:
            self._queues[admin] = await self._api.ask(admin, _QUEUES)
        except OSError:
            self._queues.pop(admin, None)
        await asyncio.sleep(_LOOK_S)

    async def _port(self, admin: Address) -> Address:
        """Return where other nodes, and so ``erl_call``, reach the node that answers there."""
        overview = await self._api.ask(admin, "overview?columns=node,listeners")
        for listener in overview["listeners"]:
            if listener["protocol"] == "clustering" and listener["node"] == overview["node"]:
                host = listener["ip_address"]
                return Address(admin.host if host in ("::", "0.0.0.0") else host, listener["port"])
        raise OSError(f"{admin}: {overview['node']} has no distribution port")


def arguments(spec: TestSpec, members: int, release: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return the arguments of a queue's declaration.

    Groups are kept together by one active consumer of the queue.
    """
    return {
        "x-queue-type": "quorum",
        "x-quorum-initial-group-size": members,
        "x-single-active-consumer": grouped(spec.workload),
        **properties.queue_arguments(spec.properties, release),
    }
