"""A voter's decisions in the journal of the broker that votes.

Why there: the decisions must outlive a restart of the voter, and its backup must know them when it
votes in its place. The journal does both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from broker.cluster.quorum import Grant, Grants, Voter
from broker.storage.entry import ADD, DELETE, Operation
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal, Recovered

GRANT: Final = 32
"""The kind of the journal records."""


class Ballots:
    """Stores the decisions of ``voter``. ``recovered`` is the content of the journal."""

    def __init__(
        self,
        node_id: str,
        journal: Journal,
        gate: DurabilityGate,
        recovered: Recovered,
        *,
        partner_gone: bool = True,
    ) -> None:
        self._journal = journal
        self._gate = gate
        self._records: dict[tuple[str, str], list[int]] = {}
        grants = []
        for record in recovered.records:
            if record.kind == GRANT:
                grant = msgspec.msgpack.decode(record.data, type=Grant)
                grants.append(grant)
                self._records.setdefault((grant.node_id, grant.session), []).append(record.id)
        self.voter = Voter(
            node_id,
            Grants(grants),
            self._keep,
            self._drop,
            lambda: gate.held,
            partner_gone=partner_gone,
        )

    def _keep(self, grant: Grant, done: Callable[[], None]) -> None:
        """Write a decision; call ``done`` once it is on our disk, and on a following backup's."""
        key = (grant.node_id, grant.session)
        operations = [Operation(DELETE, GRANT, record) for record in self._records.get(key, ())]
        record = self._journal.next_id()
        operations.append(Operation(ADD, GRANT, record, msgspec.msgpack.encode(grant)))
        self._records[key] = [record]
        sequence = self._journal.append(operations)
        if self._gate.held:
            # Two pairs may be interrupted at once, and each needs the other's vote. Then our own
            # disk must suffice.
            task = asyncio.create_task(self._journal.flush(), name="keep a vote")
            task.add_done_callback(
                lambda flushed: None if flushed.cancelled() or flushed.exception() else done()
            )
        else:
            self._gate.when_durable(sequence, done)

    def _drop(self, grants: Sequence[Grant]) -> None:
        records = [
            record for grant in grants for record in self._records.pop((grant.node_id, grant.session), ())
        ]
        if records:
            self._journal.append([Operation(DELETE, GRANT, record) for record in records])
