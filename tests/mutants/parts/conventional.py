"""Bugs of conventional clusters: of messages at their homes, and of the master's change record."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import (
    EXPIRING_AT_HOMES,
    HELD_OF_HOMES,
    HOMES,
    RECORDED_SUBSCRIPTIONS,
    TRANSACTIONS_OVER_HOMES,
)

_PART: Final = "conventional"
_HOST: Final = "broker/cluster/homes.py"
_HOME: Final = "broker/cluster/home_service.py"
_COORDINATOR: Final = "broker/cluster/coordinator.py"
_MASTER: Final = "broker/cluster/change_master.py"
_MEMBER: Final = "broker/cluster/change_member.py"

_TAKES_BACK: Final = (
    "        for remote in host.consumers.values():\n"
    "            self._end(remote)\n"
    "            _return(remote.taken)\n"
)

MUTANTS: Final = (
    Mutant(
        "message-shown-after-its-acknowledgement-failed",
        _PART,
        "openmq 122",
        "a message whose acknowledgement has failed, because the link with its home was lost, waits at the "
        "broker of the consumer for the next consumer",
        frozenset({"double-delivery", "duplicate", "zombie", "resurrected"}),
        HOMES,
        (
            Replacement(
                _HOST,
                "        if answer.cancelled() or answer.exception() is not None:\n            return  # the",
                "        if answer.cancelled() or answer.exception() is not None:\n"
                "            self._show_again(acknowledged)\n            return  # the",
            ),
            Replacement(
                _HOST,
                "        answer.add_done_callback("
                "partial(self._settled, done, concerned, self._loop.time()))\n",
                "        request_time, named_here = self._loop.time(), list(part.acknowledged)\n"
                "        answer.add_done_callback(\n"
                "            lambda one: self._settled(done, concerned, request_time, named_here, one)\n"
                "        )\n",
            ),
            Replacement(
                _HOST,
                "        request_time: float,\n        answer: asyncio.Future[m.Reply],\n",
                "        request_time: float,\n        acknowledged: list[Delivery],\n"
                "        answer: asyncio.Future[m.Reply],\n",
            ),
            Replacement(
                _HOST,
                "        if not home.is_certain():\n            home.give_up()\n",
                "        if part in home.parts.values() and not home.is_certain():\n"
                "            home.give_up()\n",
            ),
            Replacement(
                _HOST,
                "    def take(self, delivery: Delivery) -> None:\n",
                "    def _show_again(self, acknowledged: list[Delivery]) -> None:\n"
                "        for delivery in acknowledged:\n"
                "            for other in delivery.consumer.queue.consumers:\n"
                "                if isinstance(other.remote, ConsumerParts):\n"
                "                    shown = HomePart(self, other.remote)\n"
                "                    tag = _remote(delivery).home_tag\n"
                "                    shown.waiting.append(_Waiting(tag, delivery.message, math.inf))\n"
                "                    other.remote.by_home[shown] = shown\n"
                "                    other.remote.arrived(shown)\n"
                "                    break\n\n"
                "    def take(self, delivery: Delivery) -> None:\n",
            ),
        ),
    ),
    Mutant(
        "messages-of-a-lost-home-still-given-out",
        _PART,
        "openmq 221",
        "the broker of the consumers goes on with what waits there of a home, and with the clients that hold "
        "messages of it, when the link with the home is lost",
        frozenset({"double-delivery", "duplicate"}),
        HELD_OF_HOMES,
        (
            Replacement(
                _HOST,
                "            part.parts.leave(part)\n"
                "            is_held = bool(part.held or part.unanswered)\n"
                "            part.forget()\n",
                "            is_held = bool(part.unanswered)\n",
            ),
            Replacement(
                _HOST,
                "        if not home.is_certain():\n            home.give_up()\n            return\n",
                "",
            ),
        ),
    ),
    Mutant(
        "failed-prepare-leaves-an-orphan",
        _PART,
        "openmq 205",
        "if one broker cannot prepare its part of a transaction, nobody tells those that have, and they are "
        "answered that it is not decided yet",
        frozenset({"stuck", "lost"}),
        TRANSACTIONS_OVER_HOMES,
        (
            Replacement(
                _COORDINATOR,
                "            participant.give_back()\n"
                "            self._start("
                "partial(self._tell_once, participant.node_id, commit.id), commit.id)\n",
                "            participant.give_back()\n",
            ),
            Replacement(
                _COORDINATOR,
                'in self._engine.decided else "rolled back"\n',
                'in self._engine.decided else "open"\n',
            ),
        ),
    ),
    Mutant(
        "give-back-lost-with-the-link",
        _PART,
        "openmq 206",
        "what a broker held for its consumers when its link ended stays with it at the home",
        frozenset({"stuck"}),
        HOMES,
        (
            Replacement(
                _HOME,
                _TAKES_BACK,
                "        for remote in host.consumers.values():\n"
                "            if remote.consumer is not None and host.link.closed:\n"
                "                remote.consumer.unacknowledged.clear()\n"
                "            self._end(remote)\n"
                "            _return(remote.taken)\n",
            ),
        ),
    ),
    Mutant(
        "expired-at-the-consumers-broker-without-a-dead-letter",
        _PART,
        "openmq 218",
        "a message that expires while it waits at the broker of the consumer is removed at its home, and "
        "becomes no dead letter",
        frozenset({"lost"}),
        EXPIRING_AT_HOMES,
        (
            Replacement(
                _HOST,
                "            home.link.send(m.RemoteGiveBack(self.number, (expired.tag,), seen=False, "
                "pauses=False))\n",
                "            named = {self.number: (expired.tag,)}\n"
                "            request = m.SettleRequest(home.link.number(), named, {}, {})\n"
                "            home.link.ask(request).add_done_callback(_heard)\n",
            ),
        ),
    ),
    Mutant(
        "expired-at-the-consumers-broker-is-delivered",
        _PART,
        "openmq 218",
        "a message that expires while it waits at the broker of the consumer is delivered",
        frozenset({"expired-delivery"}),
        EXPIRING_AT_HOMES,
        (
            Replacement(
                _HOST,
                "        while part.waiting and part.waiting[0].expires <= now:\n",
                "        while part.waiting and part.waiting[0].expires <= now - 3600:\n",
            ),
        ),
    ),
    Mutant(
        "messages-of-a-lost-link-given-to-others-at-once",
        _PART,
        "openmq 232",
        "there is no lease: a home gives what another broker held to others as soon as its end of the link "
        "has closed, and that broker goes on with it until its own end has",
        frozenset({"double-delivery"}),
        HELD_OF_HOMES,
        (
            Replacement(
                _HOME,
                "        host.timer = loop.call_later(LEASE_MARGIN * host.lease_s, self._lease_over, host)\n",
                "        host.timer = loop.call_later(0, self._lease_over, host)\n",
            ),
            Replacement(
                _HOST,
                "        return self.link.is_open and "
                "self._loop.time() < self.link.confirmed + self._lease_s\n",
                "        return self.link.is_open\n",
            ),
            Replacement(
                _HOST,
                "        if self.is_certain():\n            self._arm()\n        else:\n",
                "        if not self.is_certain():\n",
            ),
        ),
    ),
    Mutant(
        "interest-of-a-dead-broker-kept",
        _PART,
        "own",
        "a home goes on giving messages to the consumers of a broker whose link has ended",
        frozenset({"stuck"}),
        HOMES,
        (
            Replacement(
                _HOME,
                "        host.sender.stop()\n"
                "        self._lost[host] = None\n"
                "        for remote in host.consumers.values():\n"
                "            if remote.consumer is not None:\n"
                "                remote.consumer.pause()\n"
                "        if host.has_left:\n"
                "            self._end_host(host)\n"
                "        else:\n"
                "            loop = asyncio.get_running_loop()\n"
                "            host.timer = loop.call_later("
                "LEASE_MARGIN * host.lease_s, self._lease_over, host)\n",
                "        host.sender.stop()\n",
            ),
        ),
    ),
    Mutant(
        "masters-own-changes-not-recorded",
        _PART,
        "own",
        "the master broker makes and drops the durable subscriptions of its own clients without the record",
        frozenset({"diverged", "lost", "resurrected", "not-subscribed"}),
        RECORDED_SUBSCRIPTIONS,
        (
            Replacement(
                _MASTER,
                "        self._ordinal += 1\n        answered",
                "        if kind == SUBSCRIPTION:\n"
                "            import asyncio as own\n\n"
                "            if value is not None:\n"
                "                self._engine.bind(_decoded(value), 'the master broker')\n"
                "            else:\n"
                "                from broker.core.subscription import SubscriptionKey\n\n"
                "                of = SubscriptionKey(*msgspec.json.decode(key))\n"
                "                queue = self._engine.topics.named(of)\n"
                "                if queue is not None:\n"
                "                    self._engine.drop(queue)\n"
                "            await self._engine.flushed()\n"
                "            return True\n"
                "        self._ordinal += 1\n        answered",
            ),
        ),
    ),
    Mutant(
        "changes-told-out-of-order",
        _PART,
        "own",
        "changes are told to members in another order than the record's, and members apply each as it comes",
        frozenset({"diverged", "lost", "not-subscribed", "resurrected"}),
        RECORDED_SUBSCRIPTIONS,
        (
            Replacement(
                _MASTER,
                "    def _tell(self, change: Change) -> None:\n        for link in self._feeds:\n"
                "            link.send(m.ChangesMade(change))\n",
                "    def _tell(self, change: Change) -> None:\n"
                "        loop, late_s = asyncio.get_running_loop(), 0.02 * (change.sequence % 2)\n"
                "        for link in self._feeds:\n"
                "            loop.call_later(late_s, link.send, m.ChangesMade(change))\n",
            ),
            Replacement(
                _MEMBER,
                " or change.sequence > head.sequence + 1:\n            self._want(link)\n"
                "        elif change.sequence > head.sequence:\n",
                ":\n            self._want(link)\n        else:\n",
            ),
        ),
    ),
    Mutant(
        "applied-before-the-master-has-stored",
        _PART,
        "own",
        "members are told of a change, and apply it, before it is durable at the master",
        frozenset({"diverged", "lost", "not-recovered", "resurrected"}),
        RECORDED_SUBSCRIPTIONS,
        (
            Replacement(
                _MASTER,
                "            self._engine.gate.when_durable(record.written, partial(self._tell, change))\n",
                "            self._tell(change)\n",
            ),
        ),
    ),
)
