"""Random lives of a journal against the plain model.

Whatever happens, what was synced is there, and nothing torn is.
"""

import asyncio
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from journals import DIRECTORY, Model, add, delete, plain, update
from test_journal_compaction import check_accounting

from broker.storage.errors import JournalError
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.options import JournalOptions

OPTIONS = JournalOptions(segment_size=1024, compact_min_files=3, compact_percentage=50)

STEP = st.one_of(
    st.tuples(
        st.just("append"), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 600)), min_size=1, max_size=3)
    ),
    st.tuples(
        st.just("append"), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), min_size=1, max_size=2)
    ),
    st.tuples(st.sampled_from(["flush", "turn", "compact", "compacting", "snapshot", "reopen"]), st.none()),
    st.tuples(st.sampled_from(["crash", "power"]), st.integers(0, 40)),
)


class Life:
    def __init__(self):
        self.volume = MemoryVolume()
        self.model = Model()
        self.live = []
        self.journal = None
        self.next = 0

    async def open(self, durable):
        """Open after a crash that came when ``durable`` entries had been synced."""
        self.journal, recovered = await Journal.open(self.volume, DIRECTORY, OPTIONS)
        count = recovered.last_sequence
        assert durable <= count <= len(self.model.entries)
        assert plain(recovered) == self.model.state(count)
        del self.model.entries[count:]
        self.live = [record.id for record in recovered.records]
        check_accounting(self.journal)

    def append(self, draws):
        operations = []
        for choice, size in draws:
            if choice < 5 or not self.live:
                self.next = self.journal.next_id()
                operations.append(add(self.next, b"m" * size))
                self.live.append(self.next)
            elif choice < 8:
                operations.append(delete(self.live.pop(size % len(self.live))))
            else:
                operations.append(update(self.live[size % len(self.live)], b"u" * (size % 7)))
        sequence = self.journal.append(operations)
        self.model.append(*operations)
        assert sequence == len(self.model.entries)

    async def step(self, what, argument):
        if what == "append":
            self.append(argument)
        elif what == "flush":
            await self.journal.flush()
            assert self.journal.synced == len(self.model.entries)
        elif what == "turn":
            await asyncio.sleep(0)
        elif what == "compact":
            assert await self.journal.compact()
        elif what == "compacting":
            self.running = asyncio.create_task(self.journal.compact())
            await asyncio.sleep(0)
        elif what == "snapshot":
            (await self.journal.snapshot()).release()
        elif what == "reopen":
            await self.journal.close()
            await self.open(len(self.model.entries))
        elif what == "crash":
            durable = self.journal.synced
            self.volume.crash(random.Random(argument))
            await self.journal.close()
            await self.open(durable)
        else:
            self.volume.fail_after = self.volume.operations + argument

    async def power_gone(self):
        durable = self.journal.synced
        self.volume.crash(random.Random(durable))
        await self.journal.close()
        await self.open(durable)


def dying(first, then, end):
    """A compaction that begins between a change and its sync: it once believed the change."""
    return [
        ("append", [first]),
        ("snapshot", None),
        ("append", [then]),
        ("compacting", None),
        ("append", [(5, 0)]),
        (end, 0),
    ]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=60))
@example(dying((0, 0), (8, 0), "power"))
@example(dying((0, 0), (8, 0), "crash"))
@example(dying((0, 0), (0, 0), "crash"))
def test_any_life_of_a_journal(steps):
    async def main():
        life = Life()
        await life.open(0)
        for what, argument in steps:
            if life.volume.fail_after is not None and what in {"compact", "reopen", "snapshot"}:
                continue
            try:
                await life.step(what, argument)
            except JournalError:
                await life.power_gone()
        if life.volume.fail_after is not None:
            await life.power_gone()
        await life.journal.close()
        await life.open(len(life.model.entries))
        await life.journal.close()

    asyncio.run(main())
