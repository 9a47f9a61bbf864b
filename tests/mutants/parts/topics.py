"""Bugs of topics: what subscriptions have, and what becomes of them."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import (
    REMADE_SUBSCRIPTIONS,
    SHARED_TOPICS,
    SHARED_TOPICS_HEARD,
    SUBSCRIPTIONS,
    SUBSCRIPTIONS_OF_A_PAIR,
)

_PART: Final = "topics"
_ENGINE: Final = "broker/core/engine.py"

_MADE_ANEW: Final = (
    "            if known.subscription is not None and known.subscription.is_as(subscription):\n"
    "                return known\n"
)

_NEWS: Final = "broker/cluster/interest_news.py"

MUTANTS: Final = (
    Mutant(
        "subscribe-answered-before-the-news-has-arrived",
        _PART,
        "own",
        "a SUBSCRIBE is answered at once, and other brokers are told of the subscription a moment later",
        frozenset({"lost"}),
        SHARED_TOPICS_HEARD,
        (
            Replacement(
                _NEWS,
                "        self._tell_changes()\n        version = self._version\n"
                "        return self._future(lambda: self._all_know(version), version)\n",
                "        return None\n",
            ),
            Replacement(
                _NEWS,
                "asyncio.get_running_loop().call_soon(self._tell_changes)",
                "asyncio.get_running_loop().call_later(0.02, self._tell_changes)",
            ),
        ),
    ),
    Mutant(
        "repeated-message-copied-again",
        _PART,
        "own",
        "a message to a topic that another broker sends again, because it has no answer, is copied again",
        frozenset({"duplicate", "double-delivery", "resurrected"}),
        SHARED_TOPICS,
        (
            Replacement(
                _ENGINE,
                "            known = self._forwarded.sequence(identity)\n",
                '            again = message.target.startswith("/topic/")\n'
                "            known = None if again else self._forwarded.sequence(identity)\n",
            ),
        ),
    ),
    Mutant(
        "subscription-gets-what-was-on-its-way",
        _PART,
        "own",
        "what was sent at another broker before a subscription was made is copied to it when it arrives",
        frozenset({"not-subscribed"}),
        SHARED_TOPICS,
        (
            Replacement(
                "broker/core/topics.py",
                "identity.record > self._known.get(queue, {}).get(identity.origin, identity.record)",
                "queue in self._known",
            ),
        ),
    ),
    Mutant(
        "remade-subscription-keeps-its-selector",
        _PART,
        "own",
        "a durable subscription that is asked for with another selector stays as it is",
        frozenset({"not-subscribed", "lost"}),
        REMADE_SUBSCRIPTIONS,
        (
            Replacement(
                _ENGINE,
                _MADE_ANEW,
                "            if known.subscription is not None:\n                return known\n",
            ),
        ),
    ),
    Mutant(
        "remade-subscription-keeps-its-backlog",
        _PART,
        "own",
        "a durable subscription that is asked for with another selector gets that, and keeps what waited "
        "in it",
        frozenset({"not-subscribed", "lost"}),
        REMADE_SUBSCRIPTIONS,
        (
            Replacement(
                _ENGINE,
                _MADE_ANEW,
                _MADE_ANEW + "            if not known.consumers:\n"
                "                self.topics.remove(known)\n"
                "                known.subscription = subscription\n"
                "                known.wants = subscription.compiled()\n"
                "                self.topics.add(known)\n"
                "                return known\n",
            ),
        ),
    ),
    Mutant(
        "send-to-a-topic-in-several-entries",
        _PART,
        "own",
        "what is sent to a topic is an entry of the journal for each subscription",
        frozenset({"lost"}),
        SUBSCRIPTIONS,
        (
            Replacement(
                _ENGINE,
                "        sequence = self.journal.append(operations) if operations else "
                "self.journal.last_sequence\n"
                "        if places or done is not None:\n",
                "        sequence = self.journal.last_sequence\n"
                "        for operation in operations:\n"
                "            self.journal.append([operation])\n"
                "        if places or done is not None:\n",
            ),
        ),
    ),
    Mutant(
        "start-drops-shared-subscriptions",
        _PART,
        "own",
        "a start or a takeover drops shared subscriptions, as it does those that end with a connection",
        frozenset({"lost"}),
        SUBSCRIPTIONS,
        (
            Replacement(
                "broker/core/recovery.py",
                "    if not subscription.durable or any(",
                "    if not subscription.durable or subscription.shared or any(",
            ),
        ),
    ),
    Mutant(
        "lost-connection-ends-a-shared-subscription",
        _PART,
        "own",
        "a shared subscription ends with the last of its consumers",
        frozenset({"lost"}),
        SUBSCRIPTIONS_OF_A_PAIR,
        (
            Replacement(
                "broker/stomp/session.py",
                "transient=not subscription.durable)\n",
                "transient=not subscription.durable or subscription.shared)\n",
            ),
            Replacement(
                "broker/stomp/subscription.py",
                "        if self.transient and not engine.abandoned",
                "        if self.transient and not queue.consumers and not engine.abandoned",
            ),
        ),
    ),
    Mutant(
        "selector-of-another-subscription",
        _PART,
        "own",
        "what the first subscription with a selector wants decides for all that have one, and for those "
        "behind it without",
        frozenset({"lost", "not-subscribed", "phantom"}),
        SUBSCRIPTIONS,
        (
            Replacement(
                "broker/core/topics.py",
                "            if selected.selector is None or selected.number in tested.wanted\n",
                "            if next(o for o in topic.selected.values() if o.selector).number "
                "in tested.wanted\n",
            ),
        ),
    ),
    Mutant(
        "copies-stored-for-the-oldest-subscription",
        _PART,
        "own",
        "of what is sent to a topic all copies are stored as those of the oldest subscription",
        frozenset({"lost", "duplicate", "double-delivery"}),
        SUBSCRIPTIONS,
        (
            Replacement(
                _ENGINE,
                "            data = readdressed(data, holder.id) if data else encode(message, holder.id)\n",
                "            data = data or encode(message, holder.id)\n",
            ),
        ),
    ),
    Mutant(
        "shared-subscription-delivers-to-two",
        _PART,
        "own",
        "what a consumer of a shared subscription holds goes back to it when another joins",
        frozenset({"double-delivery", "duplicate"}),
        SUBSCRIPTIONS_OF_A_PAIR,
        (
            Replacement(
                _ENGINE,
                "        known.join(consumer)\n",
                "        if known.subscription is not None and known.subscription.shared:\n"
                "            for other in known.consumers:\n"
                "                held = list(other.unacknowledged.values())\n"
                "                other.unacknowledged.clear()\n"
                "                known.returned(held)\n"
                "        known.join(consumer)\n",
            ),
        ),
    ),
    Mutant(
        "new-subscription-gets-what-was-last",
        _PART,
        "own",
        "a new subscription gets what was sent to its topic last before it was made",
        frozenset({"not-subscribed", "phantom"}),
        SUBSCRIPTIONS_OF_A_PAIR,
        (
            Replacement(
                _ENGINE,
                "        operations, places = self._stored(holders, message)\n        sequence",
                "        self._last = message\n"
                "        operations, places = self._stored(holders, message)\n        sequence",
            ),
            Replacement(
                _ENGINE,
                "        return self._add_queue(subscription.queue, queue_id, subscription)\n",
                "        queue = self._add_queue(subscription.queue, queue_id, subscription)\n"
                "        last = getattr(self, '_last', None)\n"
                "        if last is not None and last.target == '/topic/' + subscription.topic:\n"
                "            self._send_to_all((queue,), last.copy(), None)\n"
                "        return queue\n",
            ),
        ),
    ),
    Mutant(
        "consumed-copy-comes-back",
        _PART,
        "own",
        "what a shared subscription's consumers acknowledge is deleted in memory alone",
        frozenset({"duplicate", "double-delivery"}),
        SUBSCRIPTIONS,
        (
            Replacement(
                _ENGINE,
                "        sequence = self._append(self.paging.removals([one.message for one in deliveries]), "
                "done)\n",
                "        ended = [\n"
                "            one.message\n"
                "            for one in deliveries\n"
                "            if (of := one.consumer.queue.subscription) is None or not of.shared\n"
                "        ]\n"
                "        if ended:\n"
                "            sequence = self._append(self.paging.removals(ended), done)\n"
                "        else:\n"
                "            sequence = self.journal.last_sequence\n"
                "            if done is not None:\n"
                "                self.gate.when_durable(sequence, done)\n",
            ),
        ),
    ),
    Mutant(
        "drop-not-durable",
        _PART,
        "own",
        "the drop of a subscription that has messages is not written to the journal",
        frozenset({"resurrected", "phantom", "not-subscribed", "duplicate"}),
        SUBSCRIPTIONS,
        (
            Replacement(
                _ENGINE,
                "        return [*operations, *(Operation(UPDATE, DROPPED, id_) for id_ in "
                "(queue.id, *queue.also))]\n",
                "        return operations\n",
            ),
        ),
    ),
    Mutant(
        "name-made-again-keeps-its-backlog",
        _PART,
        "own",
        "a start does not see that a subscription was dropped that was not empty yet; one that was made "
        "again under its name has the messages of both",
        frozenset({"resurrected", "phantom", "not-subscribed", "duplicate"}),
        SUBSCRIPTIONS,
        (
            Replacement(
                "broker/core/recovery.py",
                "durable or any(update.kind == DROPPED for update in record.updates):\n",
                "durable:\n",
            ),
        ),
    ),
    Mutant(
        "drop-answered-before-it-is-durable",
        _PART,
        "own",
        "an UNSUBSCRIBE that drops a subscription is answered when that is dropped in memory",
        frozenset({"resurrected", "phantom", "not-subscribed"}),
        SUBSCRIPTIONS,
        (
            Replacement(
                "broker/stomp/session.py",
                "            self._busy_until = self.engine.drop(dropped)\n",
                "            self.engine.drop(dropped)\n",
            ),
        ),
    ),
)
