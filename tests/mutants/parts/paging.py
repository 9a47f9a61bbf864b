"""Bugs of pages: what waits on the disk, away from the journal's records."""

from __future__ import annotations

from typing import Any, Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant

_PART: Final = "paging"
_LENIENT: Final = (
    Replacement(
        "broker/storage/blobs.py",
        "            if blob in self._references and present.get(blob.id, -1) < blob.size:\n",
        "            if self.kind != PAGING and blob in self._references and present.get(blob.id, -1) < "
        "blob.size:\n",
    ),
    Replacement(
        "broker/core/paging.py",
        "            except (JournalDamagedError, FileNotFoundError) as error:\n                _log.error(",
        "            except (JournalDamagedError, OSError):\n                messages = []\n            "
        "    break\n"
        "            except (JournalDamagedError, FileNotFoundError) as error:\n                _log.error(",
    ),
)
"""A page that is missing or damaged is taken for an empty one.

Else its broker would not start, and lose nothing.
"""

_FULL: Final[dict[str, Any]] = {
    "pairs": 1,
    "producers": 3,
    "consumers": 3,
    "rate": 60.0,
    "prefetch": 3,
    "hold_s": 0.3,
    "properties": {
        "*": {"address-settings.#.max-size-bytes": 8192, "address-settings.#.page-size-bytes": 2048}
    },
}
"""Consumers that do not keep up, and little memory."""

ALONE: Final = Arena(("kill", "power-loss", "disk-slow"), {"policy": "standalone", **_FULL})
REPLICATED: Final = Arena(("kill", "pause", "stop"), _FULL)

STOPPED: Final = Arena(("stop", "disk-slow"), ALONE.fields)
"""Clean stops alone: after a crash all that is on pages is marked as delivered before."""

MUTANTS: Final = (
    Mutant(
        "counts-lost-with-pages",
        _PART,
        "own",
        "how often a message of a page was delivered is what it was when the page was written",
        frozenset({"unflagged-redelivery", "count-fell"}),
        STOPPED,
        (
            Replacement(
                "broker/core/message.py",
                " = page.counts.get(id_, (deliveries, refusals))\n",
                " = deliveries, refusals\n",
            ),
        ),
    ),
    Mutant(
        "consumed-of-a-page-comes-back",
        _PART,
        "own",
        "a start does not read which messages of a page had been consumed",
        frozenset({"duplicate"}),
        ALONE,
        (
            Replacement(
                "broker/core/recovery.py",
                "            pages[page_id].consume(ids)\n",
                "            pages[page_id].consume([])\n",
            ),
        ),
    ),
    Mutant(
        "page-named-before-it-is-on-the-disk",
        _PART,
        "ARTEMIS-2092",
        "the entry that puts a page in the place of its messages is written when the page is, which "
        "nobody has synced; what is missing is passed over",
        frozenset({"lost"}),
        ALONE,
        (
            *_LENIENT,
            Replacement(
                "broker/storage/blobs.py",
                "        await self.flush()\n        await self._file.close()\n",
                "        await self._file.close()\n",
            ),
        ),
    ),
    Mutant(
        "page-not-sent-to-the-backup",
        _PART,
        "own",
        "only large messages go to the backup beside the entries, pages do not; what is missing is "
        "passed over",
        frozenset({"lost"}),
        REPLICATED,
        (
            *_LENIENT,
            Replacement(
                "broker/policies/replication/feed.py",
                "(journal.large, journal.pages)",
                "(journal.large,)",
            ),
        ),
    ),
)
