"""What the destinations of one connection's SENDs mean, and its temporary queues.

Temporary queues as in ActiveMQ: ``/temp-queue/NAME`` is a queue of the connection's own, made when
it subscribes to it; in the ``reply-to`` of what it sends the name is replaced by one that is unique
(``/remote-temp-queue/...``), to which whoever knows it may send. So it has a random part, and only
those who get the question know it. It ends with its subscription; what is sent to it later goes
nowhere, since who asked does not wait any more, and who replies cannot know.

The unique name tells the node ID of the broker. Another broker of the cluster forwards what is sent
there. It refuses a name whose node it does not know: nothing could ever leave the store-and-forward
queue of such a node.
"""

from __future__ import annotations

from typing import Final

from broker.core.engine import Engine
from broker.core.subscription import TEMPORARY_PREFIX, TOPIC_PREFIX, node_of_temporary
from broker.core.transient import tagged
from broker.stomp.headers import (
    NOT_DONE,
    OWN_TEMPORARY_PREFIX,
    FrameRefusedError,
    queue_name,
    temporary_name,
    topic_name,
)
from broker.stomp.rights import Rights

KEPT: Final = 1000
"""Destinations of one connection whose meaning is remembered."""


class Destinations:
    """From login to the end of a connection; ``session`` names it. Methods raise RefusedError."""

    __slots__ = ("_count", "_engine", "_names", "_rights", "_session", "known", "temporaries", "user")

    def __init__(self, engine: Engine, rights: Rights, session: str) -> None:
        self._engine = engine
        self._rights = rights
        self._session = session
        self._count = 0
        self.user = ""
        self.known: dict[str | None, str] = {}
        """Destination -> what ``target`` has said of it; None is never in it."""
        self.temporaries: dict[str, str] = {}
        """The connection's temporary queues: NAME -> the queue's name."""
        self._names: dict[str, str] = {}
        """The same from a queue's name to its NAME."""

    def target(self, destination: str | None) -> str:
        """What the engine calls it: a queue's name, or ``/topic/NAME``. The user may send there."""
        if destination is not None and destination.startswith(TEMPORARY_PREFIX):
            return self._others_temporary(destination)
        if destination is not None and destination.startswith(OWN_TEMPORARY_PREFIX):
            return self._own_temporary(destination)
        if destination is not None and destination.startswith(TOPIC_PREFIX):
            self._rights.demand(self.user, "send", topic_name(destination), "topic")
            target = destination
        else:
            target = queue_name(destination)
            self._rights.demand(self.user, "send", target)
            self.may_be_created(target)
        limits = self._engine.limits
        if limits is not None and (objection := limits.enter(target, self._session)):
            raise FrameRefusedError(objection, "", NOT_DONE)
        if len(self.known) < KEPT:
            self.known[destination] = target
        return target

    def may_be_created(self, queue: str) -> None:
        """Raise FrameRefusedError for a queue that is not there and that no client may make."""
        engine = self._engine
        if queue not in engine.queues:
            if not engine.settings.addresses.settings(queue).auto_create_queues:
                raise FrameRefusedError(
                    f"queue {queue!r} does not exist and is not created (auto-create-queues is false)"
                )
            self.demand_room()

    def demand_room(self) -> None:
        """Raise FrameRefusedError where clients have made as many queues as they may."""
        if objection := self.objection(1):
            raise FrameRefusedError(objection)

    def objection(self, more: int) -> str:
        """Return why there may not be so many queues more, "" if there may."""
        count, bound = len(self._engine.queues), self._engine.settings.max_queues
        if count + more <= bound:
            return ""
        return (
            f"the broker has {count} queues and subscriptions, and may have {bound} (broker.max-queues): "
            "delete some first, with brokerctl delete"
        )

    def new_temporary(self, name: str, client: tuple[str, str] = ("", "")) -> str:
        """Make the temporary queue of that NAME, for a login and client-id; its own name."""
        self.demand_room()
        self._count += 1
        engine, node_id = self._engine, self._engine.settings.node_id
        secret = engine.seams.secret()
        if engine.settings.transient_wait_s:
            secret = tagged(secret, client, name)
        queue = f"{TEMPORARY_PREFIX}{node_id}.{self._session}-{self._count}-{secret}"
        self._engine.queue(queue)
        return self._named(name, queue)

    def resumed(self, name: str, client: tuple[str, str]) -> str:
        """Return the own name of the queue that its client has called NAME at a failed broker."""
        transient = self._engine.transient
        queue = transient.take(client, name)
        if queue is None:
            raise FrameRefusedError(
                f"temporary queue {name[:64]!r} of client-id {client[1][:64]!r} is not kept here: its broker "
                f"was not taken over, or longer than {transient.wait_s:g} s ago "
                "(ha-policy.ha-database.transient-wait); leave 'resume' out for a new queue"
            )
        return self._named(name, queue.name)

    def _named(self, name: str, queue: str) -> str:
        self.temporaries[name] = queue
        self._names[queue] = name
        return queue

    def forget(self, queue: str) -> None:
        """Forget a subscription's queue that has ended, if it was a temporary one."""
        name = self._names.pop(queue, None)
        if name is not None:
            del self.temporaries[name]

    def forget_all(self) -> None:
        """Forget all temporary queues, and what it sent to: the connection ends."""
        if self._engine.limits is not None:
            self._engine.limits.leave(self._session)
        self._names.clear()
        self.temporaries.clear()

    def _others_temporary(self, destination: str) -> str:
        own_node, router = self._engine.settings.node_id, self._engine.router
        node_id = node_of_temporary(destination)
        if destination in self._engine.queues:
            return destination
        if node_id != own_node and (router is None or not router.forwards_to(node_id)):
            raise FrameRefusedError(
                f"destination {destination[:128]!r} is no temporary queue of this broker (node-id "
                f"{own_node}) or of one to which it forwards messages: reply at the broker that created it"
            )
        if node_id != own_node and self._engine.settings.stays_home:
            self.demand_room()
        return destination

    def _own_temporary(self, destination: str) -> str:
        queue = self.temporaries.get(temporary_name(destination))
        if queue is None:
            raise FrameRefusedError(
                f"destination {destination[:64]!r} is no temporary queue of this connection: subscribe to it "
                "first"
            )
        return queue
