"""The open transactions of one connection, by the names that its client gave them."""

from __future__ import annotations

import weakref
from typing import Final

from broker.core.engine import Engine
from broker.core.message import OVERHEAD, Message
from broker.core.settings import HomesCommit
from broker.core.transactions import Transaction
from broker.sections import AcceptorSection
from broker.stomp.headers import FrameRefusedError

NAME_MAX: Final = 255
"""Characters of a transaction's name: names are remembered, so they are no place for a message."""


class ClientTransactions:
    """From BEGIN to COMMIT, ABORT, the time-out, or the end of the connection.

    A transaction that timed out leaves its name here, so that the next frame which names it can be
    told so. Methods raise RefusedError.
    """

    def __init__(self, session: object, engine: Engine, acceptor: AcceptorSection) -> None:
        self._session = weakref.ref(session)
        self._acceptor = acceptor
        self._engine = engine
        self._named: dict[str, Transaction | None] = {}
        self._size = 0
        self.committing: list[Transaction] = []
        """Committed by the client, but behind sends that wait for room, or for other brokers."""
        self.preparing: dict[Transaction, HomesCommit] = {}
        """Those of them that wait for other brokers to prepare their parts."""

    def __str__(self) -> str:
        return str(self._session() or "a session that has ended")

    @property
    def acknowledge(self) -> bool:
        """Is a message of a consumer in one of them?"""
        return any(one is not None and (one.acknowledged or one.refused) for one in self._named.values())

    def begin(self, name: str) -> None:
        """Open one."""
        if name in self._named:
            self.open(name)  # perhaps it timed out
            raise FrameRefusedError(f"transaction {name!r} is open already")
        if len(name) > NAME_MAX:
            raise FrameRefusedError(
                f"the name of a transaction has {len(name)} characters: at most {NAME_MAX} are allowed"
            )
        if len(self._named) >= self._acceptor.max_transactions:
            raise FrameRefusedError(
                f"{len(self._named)} transactions are open on this connection "
                "(acceptor.max-transactions): end one first"
            )
        transaction = Transaction()
        transaction.size = OVERHEAD + len(name)
        self._allow(transaction.size, begins=True)
        self._named[name] = transaction
        self._size += transaction.size
        self._engine.transactions.begin(self, name, transaction)

    def open(self, name: str) -> Transaction:
        """The one of that name."""
        transaction = self._named.get(name)
        if transaction is None:
            if name in self._named:
                raise FrameRefusedError(
                    f"transaction {name!r} was undone: it was open for more than"
                    f" {self._engine.transactions.bounds.timeout_s:g} s (broker.transaction-timeout)"
                )
            raise FrameRefusedError(f"transaction {name!r} is not open")
        return transaction

    def send(self, transaction: Transaction, queue: str, message: Message) -> None:
        """Send on commit."""
        self._allow(message.size)
        transaction.send(queue, message)
        self._size += message.size
        self._engine.transactions.grown(message.size)

    def close(self, name: str) -> Transaction:
        """The client commits or aborts it: take it out. ``end`` it when that is done."""
        transaction = self.open(name)
        del self._named[name]
        self._engine.transactions.close(transaction)
        return transaction

    def end(self, transaction: Transaction) -> None:
        """What it held is free."""
        self._size -= transaction.size
        self._engine.transactions.end(transaction)

    def undo(self, *, parked: bool = True) -> None:
        """Undo what is open, and (``parked``) what was committed but still waits for its turn."""
        undone = [one for one in self._named.values() if one is not None]
        self._named.clear()
        if parked:
            undone += self.committing
            self.committing.clear()
        for transaction in undone:
            self._undo(transaction)

    def timed_out(self, name: str, transaction: Transaction) -> None:
        """See ``TransactionOwner``."""
        self._named[name] = None
        self._undo(transaction)

    def _undo(self, transaction: Transaction) -> None:
        self.end(transaction)
        preparing = self.preparing.pop(transaction, None)
        if preparing is not None:
            preparing.roll_back()
        if not self._engine.abandoned:
            for settler, part in transaction.take_remote().items():
                settler.give_back((*part.acknowledged, *part.refused))
            self._engine.roll_back(transaction, refused=False)

    def _allow(self, size: int, *, begins: bool = False) -> None:
        bound = self._acceptor.max_transaction_bytes
        if self._size + size > bound:
            raise FrameRefusedError(
                f"open transactions hold more than {bound} bytes (acceptor.max-transaction-bytes)"
            )
        objection = self._engine.transactions.objection(size, begins=begins)
        if objection:
            raise FrameRefusedError(objection)
