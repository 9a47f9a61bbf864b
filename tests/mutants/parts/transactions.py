"""Bugs of transactions: what belongs together happens by halves, too early, too late, or not."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant
from mutants.parts.arenas import BANK, TRANSACTIONS

_PART: Final = "transactions"
_ENGINE: Final = "broker/core/engine.py"
_SESSION: Final = "broker/stomp/session.py"
_OPEN: Final = "broker/stomp/transactions.py"
_REMOVALS: Final = (
    "        operations += self.paging.removals([one.message for one in transaction.acknowledged])\n"
)
_REMOVED: Final = _REMOVALS.replace("operations +=", "removals =")

POISON: Final = Arena(
    TRANSACTIONS.kinds,
    {**TRANSACTIONS.fields, "properties": {"*": {"address-settings.#.max-delivery-attempts": 1}}},
)
"""What a transaction that is rolled back had acknowledged is a dead letter at once."""

MUTANTS: Final = (
    Mutant(
        "commit-in-two-entries",
        _PART,
        "own",
        "a commit is an entry of the journal with what it sends, and a later one with what it acknowledges",
        frozenset({"torn-transaction", "wrong-total", "duplicate", "double-delivery"}),
        BANK,
        (
            Replacement(
                _ENGINE,
                _REMOVALS,
                _REMOVED + "        if removals:\n"
                "            asyncio.get_running_loop().call_later(\n"
                "                0.003, lambda: self.abandoned or self.journal.append(removals)\n"
                "            )\n",
            ),
        ),
    ),
    Mutant(
        "acks-before-the-sends-of-their-transaction",
        _PART,
        "own",
        "a commit is an entry of the journal with what it acknowledges, and a later one with what it sends",
        frozenset({"torn-transaction", "lost"}),
        TRANSACTIONS,
        (
            Replacement(
                _ENGINE,
                _REMOVALS,
                _REMOVED + "        if removals:\n            self.journal.append(removals)\n",
            ),
            Replacement(
                _ENGINE,
                "        sequence = self._refuse(transaction.refused, operations, arrivals, done, "
                "transaction.given_up)\n",
                "        late = partial(\n"
                "            self._refuse, transaction.refused, operations, arrivals, done, "
                "transaction.given_up\n"
                "        )\n"
                "        asyncio.get_running_loop().call_later(0.003, lambda: self.abandoned or late())\n"
                "        sequence = self.journal.last_sequence\n",
            ),
        ),
    ),
    Mutant(
        "transaction-sends-at-once",
        _PART,
        "own",
        "what a transaction sends is stored and delivered when the SEND comes",
        frozenset({"read-uncommitted", "aborted-delivery", "torn-transaction"}),
        TRANSACTIONS,
        (
            Replacement(
                _SESSION,
                "            self._transactions.send(self._transactions.open(name), queue, message)\n",
                "            self._transactions.open(name)\n            self.engine.send(queue, message)\n",
            ),
        ),
    ),
    Mutant(
        "lost-connection-commits",
        _PART,
        "own",
        "a transaction whose client is gone is committed",
        frozenset({"read-uncommitted", "aborted-delivery", "torn-transaction", "lost", "wrong-total"}),
        TRANSACTIONS,
        (
            Replacement(
                _OPEN,
                "            self._engine.roll_back(transaction, refused=False)\n",
                "            self._engine.commit(transaction)\n",
            ),
        ),
    ),
    Mutant(
        "abort-acknowledges",
        _PART,
        "own",
        "an aborted transaction undoes its sends, and what it acknowledged stays acknowledged",
        frozenset({"lost", "torn-transaction", "stuck"}),
        TRANSACTIONS,
        (
            Replacement(
                _ENGINE,
                "            self._check()\n            return self._refuse(deliveries, [], [], done)\n"
                "        give_back",
                "            self._check()\n"
                "            for delivery in transaction.acknowledged:\n"
                "                self._settle(delivery)\n"
                "            removals = self.paging.removals([one.message for one in "
                "transaction.acknowledged])\n"
                "            return self._refuse(transaction.refused, removals, [], done)\n"
                "        give_back",
            ),
        ),
    ),
    Mutant(
        "undone-transaction-keeps-its-messages",
        _PART,
        "rabbitmq-server 15473",
        "what the transaction of a lost connection had acknowledged does not come back",
        frozenset({"stuck", "lost"}),
        TRANSACTIONS,
        (
            Replacement(
                _ENGINE,
                "        give_back(deliveries, refused=False)\n",
                "        give_back(transaction.refused, refused=False)\n",
            ),
        ),
    ),
    Mutant(
        "commit-answered-before-it-is-durable",
        _PART,
        "own",
        "a commit is answered when it is carried out in memory",
        frozenset({"lost", "torn-transaction", "wrong-total", "duplicate"}),
        TRANSACTIONS,
        (
            Replacement(
                _SESSION,
                "        self._busy_until = self.engine.commit(transaction, self._later(receipt)) or "
                "self._busy_until\n",
                "        self.engine.commit(transaction)\n"
                "        if receipt is not None:\n"
                "            self._open_receipts += 1\n"
                "            self._receipt(receipt)\n",
            ),
        ),
    ),
    Mutant(
        "dead-letter-removed-before-it-is-added",
        _PART,
        "own",
        "a message that dies is deleted from its queue in one entry and added to the dead letters in a "
        "later one",
        frozenset({"lost", "died-early"}),
        POISON,
        (
            Replacement(
                _ENGINE,
                "                    operations += added\n"
                "                    operations += self.paging.counts(letter for _, letter in places)\n",
                "                    late = [*added, *self.paging.counts(letter for _, letter in places)]\n"
                "                    asyncio.get_running_loop().call_later(\n"
                "                        0.002,\n"
                "                        lambda late=late: self.abandoned or self.journal.append(late),\n"
                "                    )\n",
            ),
        ),
    ),
    Mutant(
        "transaction-of-a-dead-connection-goes-on",
        _PART,
        "own",
        "the transaction of a lost connection stays open, and whoever begins one of its name has it, and "
        "commits what the other sent and acknowledged",
        frozenset({"read-uncommitted", "aborted-delivery", "torn-transaction"}),
        TRANSACTIONS,
        (
            Replacement(
                _OPEN,
                "        undone = [one for one in self._named.values() if one is not None]\n",
                "        for name, one in self._named.items():\n"
                "            if one is not None:\n"
                "                self.end(one)\n"
                "                vars(self._engine).setdefault('_kept', {})[name] = one\n"
                "        undone = []\n",
            ),
            Replacement(
                _OPEN,
                "        transaction = Transaction()\n        transaction.size = OVERHEAD + len(name)\n",
                "        transaction = vars(self._engine).get('_kept', {}).pop(name, None) or Transaction()\n"
                "        transaction.size = transaction.size or OVERHEAD + len(name)\n",
            ),
        ),
    ),
)
