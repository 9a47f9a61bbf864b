"""Bugs of the journal: what a broker forgets, or remembers wrongly."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant
from mutants.parts.arenas import DISK, ONE_PAIR

_ENGINE: Final = "broker/core/engine.py"

BACKLOG: Final = Arena(
    ("kill", "power-loss", "stop"),
    {
        "policy": "standalone",
        "pairs": 1,
        "producers": 3,
        "consumers": 2,
        "prefetch": 1,
        "hold_s": 0.05,
        "properties": {
            "*": {
                "journal.segment-size": 8192,
                "journal.compact-min-files": 2,
                "journal.compact-percentage": 90,
            }
        },
    },
)
"""Small segments, eager compaction, consumers that are too slow: much lives in old segments."""

TORN: Final = Arena(
    ("power-loss", "disk-slow"),
    {
        "policy": "standalone",
        "pairs": 1,
        "producers": 3,
        "consumers": 1,
        "groups": 40,
        "rate": 100.0,
        "payload_bytes": 8192,
        "prefetch": 2,
    },
)
"""Messages of many of a disk's sectors each.

Few at a time, for one that no client can read comes again and again with those beside it.
"""

MUTANTS: Final = (
    Mutant(
        "receipt-before-fsync",
        "journal",
        "nats-server 7564",
        "entries count as durable when they are written, before they are synced",
        frozenset({"lost", "duplicate"}),
        DISK,
        (
            Replacement(
                "broker/storage/log.py",
                "        await file.sync()\n        segment = batch.segment\n",
                "        self.synced = batch.last\n"
                "        if self.on_synced is not None:\n            self.on_synced(batch.last)\n"
                "        await file.sync()\n        segment = batch.segment\n",
            ),
        ),
    ),
    Mutant(
        "acknowledgement-answered-early",
        "journal",
        "own",
        "an acknowledgement is answered when it is taken, not when its deletion is durable",
        frozenset({"duplicate"}),
        DISK,
        (
            Replacement(
                _ENGINE,
                "self._append(self.paging.removals([one.message for one in deliveries]), done)\n",
                "self._append(self.paging.removals([one.message for one in deliveries]), None)\n"
                "        if done is not None:\n            asyncio.get_running_loop().call_soon(done)\n",
            ),
        ),
    ),
    Mutant(
        "deletion-not-journalled",
        "journal",
        "AMQ-9829",
        "the deletion of a message that is acknowledged after a redelivery is not written to the journal",
        frozenset({"duplicate"}),
        ONE_PAIR,
        (
            Replacement(
                _ENGINE,
                "        sequence = self._append(self.paging.removals([one.message for one in "
                "deliveries]), done)\n",
                "        operations = self.paging.removals(\n"
                "            [one.message for one in deliveries if one.message.deliveries < 2]\n"
                "        )\n"
                "        sequence = self._append(operations, done)\n",
            ),
            Replacement(
                _ENGINE,
                "        sequence = self.journal.append(operations)\n        if done is not None:\n",
                "        sequence = self.journal.append(operations) if operations else "
                "self.journal.last_sequence\n"
                "        if done is not None:\n",
            ),
        ),
    ),
    Mutant(
        "compaction-loses-a-record",
        "journal",
        "ARTEMIS-2053",
        "the rewrite of old segments leaves out the last live entry of each slice that it reads",
        frozenset({"lost", "not-recovered"}),
        BACKLOG,
        (
            Replacement(
                "broker/storage/compaction.py",
                '            self.write(b"".join(kept))\n',
                '            self.write(b"".join(kept[:-1]))\n',
            ),
        ),
    ),
    Mutant(
        "recovery-forgets-the-last-record",
        "journal",
        "nats-server 7549",
        "a journal with a torn tail is read up to the tear, less the last record that was whole",
        frozenset({"lost", "duplicate"}),
        DISK,
        (
            Replacement(
                "broker/storage/journal.py",
                "        image = await recover(volume, directory, manifest, records)\n",
                "        image = await recover(volume, directory, manifest, records)\n"
                "        if image.torn is not None and records:\n            records.popitem()\n",
            ),
        ),
    ),
    Mutant(
        "recovered-tail-not-synced",
        "journal",
        "nats-server 7564",
        "what a killed broker had written is read back, delivered and built upon, but not synced: a "
        "power loss takes it from under later segments",
        frozenset({"lost", "duplicate", "not-recovered"}),
        DISK,
        (
            Replacement(
                "broker/storage/recovery.py",
                "        try:\n            await file.sync()\n        finally:\n            await "
                "file.close()\n    return image\n",
                "        await file.close()\n    return image\n",
            ),
        ),
    ),
    Mutant(
        "torn-record-accepted",
        "journal",
        "nats-server 7549",
        "the checksums of entries are not looked at when a journal is read",
        frozenset({"corrupted", "lost", "phantom", "not-recovered", "unavailable"}),
        TORN,
        (
            Replacement(
                "broker/storage/entry.py",
                '        if _crc(content) != crc:\n            return frames, BadFrameError(here, "the '
                'checksum does not match")\n',
                "",
            ),
        ),
    ),
)
