"""A system whose brokers run already: a file describes its dialect and how its brokers are asked.

What cannot be known of such a cluster is left out of the verdict by name, never taken for fine:
roles that no broker reports, stores that no broker shows, logs.
"""

from __future__ import annotations

import asyncio
import copy
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from checkers.verdict import CAUTIOUS, Promises
from environments.attached import hooks
from environments.attached.cluster import PLAIN, AttachedCluster, address_of, checked, passcode
from harness.interface import (
    Address,
    Dialect,
    Event,
    InfrastructureError,
    Layout,
    Nameless,
    NodePlan,
    Patience,
    PolicySummary,
    Secretive,
    Status,
    StoredMessage,
    System,
    TestSpec,
    UsageError,
)
from harness.interface.errors import choose, converted
from harness.systems.stomp_client import StompClient
from workloads import payload
from workloads.registry import queues_of

POLICY: Final = "attached"
LOOK_S: Final = 1.0
"""The time without a delivery after which a queue counts as empty (s)."""

CONNECT_S: Final = 10.0

UNCLEAR: Final = "unclear"
"""The role of a broker whose answer is not a word and matches none of the file's patterns."""

_WORD: Final = re.compile(r"[a-z-]{1,40}")
_SHOWN: Final = 200
"""The characters of an answer that are shown."""


class _RoleLine(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """An answer in JSON, which a command may give instead of a word."""

    role: str
    node_id: str | None = None
    epoch: int = 0
    replicating: bool = False


def _fields(struct: type[msgspec.Struct], without: Sequence[str]) -> type[msgspec.Struct]:
    """Return a struct with the fields that a file may give, none of them required."""
    return msgspec.defstruct(
        struct.__name__,
        [
            (field.name, field.type | msgspec.UnsetType, msgspec.UNSET)
            for field in msgspec.structs.fields(struct)
            if field.name not in without
        ],
        rename="kebab",
        frozen=True,
        kw_only=True,
    )


_DIALECT: Final = _fields(Dialect, ("feed", "refused", "login", "passcode", "queue"))
_PROMISES: Final = _fields(Promises, ("untold",))


class AttachedSystem:
    """``harness.interface.System`` of a cluster that somebody else deployed.

    ``inner`` is the system of its brokers, None if no module knows them.
    """

    def __init__(self, cluster: AttachedCluster, inner: System | None) -> None:
        if inner is not None and cluster.policy:
            choose("policy", cluster.policy, inner.policies)
        self._cluster = cluster
        self._inner = inner
        self._queue = (inner.dialect if inner is not None else Dialect()).queue
        self.name = PLAIN if inner is None else inner.name
        self.summary = "a cluster that runs already"
        self.policies: Mapping[str, PolicySummary] = {POLICY: PolicySummary(description=self.summary)}
        self.dialect = self._dialect()
        self.patience = inner.patience if inner is not None else Patience(silence_s=2.0)
        if cluster.roles is not None:
            self.patience = msgspec.structs.replace(self.patience, silence_s=cluster.roles.patience_s)
        self.events: Mapping[str, Event] = {}
        self._answered: dict[str, str] = {}

    def promises(self, spec: TestSpec) -> Promises:
        """Return the system's promises with the file's changes, and what cannot be asked for.

        If the file names no policy, only what is promised with every policy is promised.
        """
        promised = CAUTIOUS
        if self._inner is not None:
            promised = self._of_policy(self._inner, spec)
        untold: list[Literal["roles", "stores"]] = []
        if self._cluster.roles is None and not self._managed:
            untold.append("roles")
        if not self._managed:
            untold.append("stores")
        changes = _given_fields("promises", self._cluster.promises, _PROMISES)
        return msgspec.structs.replace(promised, untold=tuple(untold), **changes)

    def _of_policy(self, inner: System, spec: TestSpec) -> Promises:
        if self._cluster.policy:
            return inner.promises(msgspec.structs.replace(spec, policy=self._cluster.policy))
        # Each policy is asked of a copy: a system remembers what it planned last.
        return _weakest(
            [
                copy.copy(inner).promises(msgspec.structs.replace(spec, policy=policy))
                for policy in inner.policies
            ]
        )

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """Return the brokers of the file; the first of a pair is called its master."""
        if spec.properties:
            raise UsageError("--set: the brokers of an attached cluster are configured by their owner")
        groups = [node.group for node in self._cluster.node]
        groups_met: set[str] = set()
        nodes = []
        for node in self._cluster.node:
            configured = "slave" if node.group in groups_met else "master"
            groups_met.add(node.group)
            nodes.append(
                NodePlan(
                    name=node.name,
                    pair=node.group,
                    configured="standalone" if groups.count(node.group) == 1 else configured,
                    ports={"stomp": node.address.port, "admin": 0},
                )
            )
        return tuple(nodes)

    def lacking(self, nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
        """Return the pairs without a live broker, if roles are reported."""
        if self._cluster.roles is None and not self._managed:
            return {}
        served = {node.pair for node in nodes if node.name in statuses and statuses[node.name].serves}
        return {node.name: f"{node.pair} has no live broker" for node in nodes if node.pair not in served}

    def drawn(self, spec: TestSpec, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return nothing to draw: the owner configures the cluster."""
        del spec, nodes
        return {}

    def files(
        self,
        spec: TestSpec,
        node: NodePlan,
        nodes: Sequence[NodePlan],
        layout: Layout,
        listen: Mapping[str, Address],
        hosts: Mapping[str, Address],
    ) -> dict[str, bytes]:
        """Return no files."""
        del spec, node, nodes, layout, listen, hosts
        return {}

    def command(self, layout: Layout) -> list[str]:
        """Return no command: nothing is started."""
        del layout
        return []

    async def status(self, admin: Address) -> Status:
        """Return a broker's status as the file says, else as its system does; else "untold"."""
        node = self._cluster.named(admin.host)
        roles = self._cluster.roles
        if roles is not None:
            ask = self._by_command if roles.command else self._by_url
            return self._read(node.name, await ask(node.name))
        if self._inner is not None and node.admin:
            status = await self._inner.status(address_of(node.admin))
            if status.node_id is None or not isinstance(self._inner, Nameless):
                return status
            return msgspec.structs.replace(status, node_id=node.group)
        return Status(name=node.name, node_id=None, role="untold", epoch=0)

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """Return the test's messages in the stores, read in the system's own way.

        Messages in other queues do not concern the test.
        """
        node = self._cluster.named(admin.host)
        if self._inner is None or not node.admin:
            raise OSError("nobody can be asked for the stores of this attached broker")
        prefix = self._cluster.queue_prefix
        return [
            msgspec.structs.replace(stored, queue=stored.queue.removeprefix(prefix))
            for stored in await self._inner.browse(address_of(node.admin))
            if stored.queue.startswith(prefix) or payload.decode(stored.body) is not None
        ]

    async def stop(self, admin: Address, *, failover: bool | None = None) -> None:
        """Raise OSError: an attached broker is never stopped."""
        del failover
        raise OSError(f"{admin.host} is never stopped by us")

    async def look_first(self, spec: TestSpec, reach: Callable[[str], Address]) -> Sequence[str]:
        """Check that the test's queues are empty at each broker that lets clients in.

        Messages are looked at without being acknowledged. Then one is sent to a queue with two
        subscribers, and both must not get it. If stores are shown, they must not have a message of
        another test. If roles are reported, a broker that lets clients in must report a role that
        can be true. One that lets no client in must not report that it is live.

        Returns lines about old messages of ours that were removed. Raises UsageError for messages
        that are there, for a destination that is not a queue, and for such an answer. Raises
        InfrastructureError if no broker lets clients in, or if one that does reports no role.
        """
        secret = passcode(self._cluster)  # raises UsageError if there is none
        made = self._inner.made_secrets if isinstance(self._inner, Secretive) else ()
        if "passcode" in made and secret is None and self._cluster.dialect.get("passcode") is None:
            raise UsageError(f"brokers of {self.name} refuse clients without a secret: give passcode-env")
        if "admin" in made and any(node.admin for node in self._cluster.node):
            raise UsageError(
                f"admin: brokers of {self.name} answer only the program that deployed them; omit admin, "
                f"and give [roles]"
            )
        removals: list[str] = []
        refusals: dict[str, str] = {}
        tried = False
        for node in self._cluster.node:
            try:
                removals += await self._looked(spec, node.name, reach(node.name))
                if not tried:
                    await self._is_queue(queues_of(spec)[0], node.name, reach(node.name))
                    tried = True
            except (OSError, EOFError) as error:
                refusals[node.name] = str(error) or "no answer"
                continue
            if self._tells_roles:
                await self._has_role(node.name)
        if len(refusals) == len(self._cluster.node):
            why = "; ".join(f"{name}: {words}" for name, words in refusals.items())
            raise InfrastructureError(f"no broker accepts clients: {why}")
        for name, words in refusals.items() if self._tells_roles else ():
            await self._is_not_live(name, words)
        for node in self._cluster.node if self._managed else ():
            await self._without_another_test(node.name)
        return removals

    # ---------------------------------------------------------------------------------------- parts

    @property
    def _tells_roles(self) -> bool:
        return self._cluster.roles is not None or self._managed

    @property
    def _managed(self) -> bool:
        """True if the system's own module can ask every broker."""
        return self._inner is not None and all(node.admin for node in self._cluster.node)

    def _dialect(self) -> Dialect:
        """Return the dialect, without headers by which brokers name each other to clients.

        Those names are not the file's.
        """
        base = Dialect() if self._inner is None else self._inner.dialect
        secret = None
        with suppress(UsageError):  # a report needs no passcode, and years later there may be none
            secret = passcode(self._cluster)
        return msgspec.structs.replace(
            base,
            login=base.login if self._cluster.login is None else self._cluster.login,
            passcode=base.passcode if secret is None else secret,
            queue=self._queue.replace("{}", self._cluster.queue_prefix + "{}"),
            feed=None,
            redirect_header=None,
            store_header=None,
            **_given_fields("dialect", self._cluster.dialect, _DIALECT),
        )

    async def _by_command(self, node: str) -> str:
        roles = self._cluster.roles
        assert roles is not None, "roles are asked for"
        status, words = await hooks.run(self._cluster.filled(roles.command, node), roles.patience_s)
        if status is None:
            raise TimeoutError
        if status != 0:
            raise OSError(f"the command for its role failed ({status}): {words}")
        return words

    async def _by_url(self, node: str) -> str:
        roles = self._cluster.roles
        assert roles is not None, "roles are asked for"
        url, patience_s = self._cluster.filled(roles.url, node), roles.patience_s

        def fetch() -> str:
            try:
                with urllib.request.urlopen(url, timeout=patience_s) as answer:  # noqa: S310 - of the person's own file
                    return str(answer.read().decode(errors="replace")).strip()
            except http.client.HTTPException as error:  # a broker that died while it answered
                raise ConnectionResetError(f"no whole answer: {error!r}") from error

        return await asyncio.to_thread(fetch)

    def _read(self, node: str, words: str) -> Status:
        """Return the status that an answer means: JSON, a word, or what the file's patterns find.

        The brokers of a pair get one node ID: that is what makes them a pair.
        """
        roles = self._cluster.roles
        assert roles is not None, "roles are asked for"
        self._answered[node] = words[:_SHOWN]
        role_line = _RoleLine(role=words if _WORD.fullmatch(words) else UNCLEAR)
        with suppress(msgspec.MsgspecError):
            role_line = msgspec.json.decode(words, type=_RoleLine)
        role = next((to for pattern, to in roles.words.items() if re.search(pattern, words)), role_line.role)
        return Status(
            name=node,
            node_id=role_line.node_id or self._cluster.named(node).group,
            role=role,
            epoch=role_line.epoch,
            replicating=role_line.replicating,
        )

    async def _has_role(self, node: str) -> None:
        """Check that a broker that lets clients in reports its role; its console may start later.

        Raises UsageError if its answer cannot be true, InfrastructureError if there is no answer.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + CONNECT_S
        failed: OSError | None = None
        role = UNCLEAR
        while loop.time() < until_s:
            try:
                failed, role = None, (await self.status(Address(node, 0))).role
            except OSError as error:
                failed = error
            if failed is None and role not in (UNCLEAR, "stopped"):
                return
            await asyncio.sleep(LOOK_S)
        if failed is not None:
            why = str(failed) or f"nothing within {self.patience.silence_s:g} s"
            raise InfrastructureError(
                f"{node} accepts clients, but the request for its role failed: {why}"
            ) from failed
        meant = "is no role, and has none of the patterns of words" if role == UNCLEAR else f"means {role}"
        answered = self._answered.get(node, role)
        raise UsageError(f'[roles]: {node} accepts clients, but its answer {meant}: "{answered}"')

    async def _is_not_live(self, node: str, why: str) -> None:
        """Raise UsageError if a broker that lets no client in reports that it is live.

        Mostly another broker was asked, and both would seem live: a split brain.
        """
        with suppress(OSError):
            if (await self.status(Address(node, 0))).role == "live":
                raise UsageError(
                    f"[roles]: {node} is reported as live, but accepts no client ({why}): does [roles] "
                    f"ask the right broker?"
                )

    async def _open(self, node: str, at: Address) -> StompClient:
        """Return a client that has logged in. Raises OSError."""
        beat_ms = round(self.dialect.heart_beat_s * 1000)
        client = await StompClient.open(at, self.dialect, CONNECT_S, beat_ms, node)
        if client.connected.command != "CONNECTED":
            client.abort()
            raise OSError(client.connected.headers.get("message", client.connected.command))
        return client

    async def _subscribe(self, client: StompClient, number: str, queue: str, node: str) -> None:
        """Subscribe to a queue; raise UsageError if the broker refuses."""
        destination = self.dialect.destination(queue)
        window = self.dialect.subscribe_headers(1)
        answer = await client.ask(
            "SUBSCRIBE", "", window, id=number, destination=destination, ack=self.dialect.ack_mode
        )
        if answer.command != "RECEIPT":
            words = answer.headers.get("message", answer.command)
            raise UsageError(f"{node} refuses {destination}: {words}")

    async def _is_queue(self, queue: str, node: str, at: Address) -> None:
        """Check that only one of two subscribers gets a message that is sent once.

        A topic gives each of them a copy, which would be a finding each. Raises UsageError.
        """
        destination = self.dialect.destination(queue)
        body = payload.encode(payload.Payload(0, queue, None, 0, 0)).decode()
        async with await self._open(node, at) as first, await self._open(node, at) as second:
            for client in (first, second):
                await self._subscribe(client, "0", queue, node)
            await first.ask("SEND", body, self.dialect.send_headers(None), destination=destination)
            loop, got = asyncio.get_running_loop(), 0
            until_s = loop.time() + CONNECT_S
            while not got and loop.time() < until_s:
                for client in (first, second):
                    if (delivery := await client.message(LOOK_S)) is not None:
                        await client.ask("ACK", id=delivery.headers.get("ack", ""))
                        got += 1
            for client in (first, second):
                await client.ask("UNSUBSCRIBE", id="0")
        if got != 1:
            receivers = "both of two subscribers" if got else f"no subscriber within {CONNECT_S:g} s"
            raise UsageError(
                f"{destination} of {node} is no queue: {receivers} got a message that was sent once; put "
                f"the headers that make it a queue into durable and subscribe of [dialect]"
            )

    async def _looked(self, spec: TestSpec, node: str, at: Address) -> list[str]:
        removals = []
        async with await self._open(node, at) as client:
            for number, queue in enumerate(queues_of(spec)):
                removed = await self._emptied(client, str(number), queue, node)
                if removed:
                    removals.append(
                        f"{removed} messages of an earlier test were removed from {queue} of {node}"
                    )
        return removals

    async def _without_another_test(self, node: str) -> None:
        """Raise UsageError for stored messages of another test, dead letters for example.

        Their numbers are those of this test's messages, so that they could not be told apart at the
        end.
        """
        try:
            stored = await self.browse(Address(node, 0))
        except OSError:  # a broker that does not serve has nothing to show
            return
        theirs = [message.queue for message in stored if payload.decode(message.body) is not None]
        if theirs:
            raise UsageError(
                f"{theirs[0]} of {node} has messages of another test ({len(theirs)} in all): at the end "
                f"they would be counted as this test's; empty the queue"
            )

    async def _emptied(self, client: StompClient, number: str, queue: str, node: str) -> int:
        """Return how many old messages of ours were removed from a queue.

        Raises UsageError for messages that must stay.
        """
        await self._subscribe(client, number, queue, node)
        destination = self.dialect.destination(queue)
        removed = 0
        while (old_message := await client.message(LOOK_S)) is not None:
            is_ours = payload.decode(old_message.body) is not None
            if not is_ours or self._cluster.leftovers != "remove":
                whose = "an earlier test, or one that goes on" if is_ours else "somebody else"
                way = ' and leftovers = "remove" takes such messages away' if is_ours else ""
                raise UsageError(
                    f"{destination} of {node} is not empty: it has a message of {whose}, and a test takes "
                    f"only what it has sent; empty it, or give another queue-prefix{way}"
                )
            await client.ask("ACK", id=old_message.headers.get("ack", ""))
            removed += 1
        await client.ask("UNSUBSCRIBE", id=number)
        return removed


def of(described: Mapping[str, Any], get: Callable[[str], System]) -> AttachedSystem:
    """Return the system of a spec's attached cluster. Raises UsageError."""
    cluster = checked("the attached cluster", described)
    return AttachedSystem(cluster, None if cluster.system == PLAIN else get(cluster.system))


def _weakest(alternatives: Sequence[Promises]) -> Promises:
    """Return what all the given promises have in common.

    Raises UsageError if they cannot be compared as weaker and stronger.
    """
    common = {
        name: all(getattr(promised, name) for promised in alternatives)
        for name, value in msgspec.structs.asdict(alternatives[0]).items()
        if isinstance(value, bool)
    }
    weakest = msgspec.structs.replace(alternatives[0], **common)
    if any(msgspec.structs.replace(promised, **common) != weakest for promised in alternatives):
        raise UsageError("the promises of its policies cannot be compared: give one with the key policy")
    return weakest


def _given_fields(where: str, table: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    values = msgspec.structs.asdict(converted(f"[{where}]", table, kind))
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}
