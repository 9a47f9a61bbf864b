"""The same queues with room for five messages in memory.

The others wait on pages of three, beside the same model.

What may differ is when a message comes, and how much memory it takes; never which, to whom, in
which order, how often, or what survives.
"""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from broker.core.message import Message
from stateful.queue_machine import GROUPS, QueueMachine, afterwards

ROOM = 1400


class PagedQueueMachine(QueueMachine):
    MEMORY = {"max-size-bytes": ROOM}

    @rule(group=st.sampled_from(GROUPS), count=st.integers(4, 9), then=afterwards)
    def flood(self, group, count, then):
        """More than there is room for."""
        self.send("q", group, 0, count, then)

    def sizes_add_up(self, seen):
        """What is in memory is counted, with what is not yet durable.

        And it is no more than it may be.
        """
        memory = 0
        for name in seen:
            queue = self.engine.queues[name]
            loose = sum(item.size for item in queue.all() if isinstance(item, Message))
            under_way = seen[name].size - loose
            assert 0 <= under_way <= self.model.size(name)
            memory += seen[name].size
        assert self.engine.memory.size == memory

    def looks_further(self, queue):
        """Not while a page is being read, nor while what is lined up takes all the memory that
        it may.
        """
        if queue in self.engine.paging._readers:
            return False
        backlog = queue.backlog
        return backlog is None or not queue.messages or queue.size - backlog.size < ROOM

    @invariant()
    def memory_is_bounded(self):
        """Lined up: what it may have and one message more.

        And a tail that only grows while a page is written.
        """
        for queue in self.engine.queues.values():
            assert sum(message.size for message in queue.messages.values()) < ROOM + 300
            if queue.backlog is not None and self.engine.paging._writer is None:
                assert queue.backlog.tail_size < 2 * queue.page_bytes
