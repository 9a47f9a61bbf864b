"""A journal's plain second implementation, and small helpers for tests."""

import asyncio

from broker.storage.entry import ADD, DELETE, UPDATE, Operation
from broker.storage.options import JournalOptions

DIRECTORY = "data/journal"
SMALL = JournalOptions(segment_size=1024, compact_min_files=0)


def add(id_, data=b"x", kind=1):
    return Operation(ADD, kind, id_, data)


def update(id_, data=b"u", kind=2):
    return Operation(UPDATE, kind, id_, data)


def delete(id_):
    return Operation(DELETE, 0, id_, b"")


class Model:
    """All entries ever taken; what lives after the first ``n`` of them is a loop over them."""

    def __init__(self):
        self.entries = []

    def append(self, *operations):
        self.entries.append(operations)

    def state(self, count=None):
        live = {}
        for operations in self.entries[:count]:
            for action, kind, id_, data in operations:
                if action == ADD:
                    live[id_] = (id_, kind, data, [])
                elif action == UPDATE:
                    live[id_][3].append((kind, data))
                else:
                    del live[id_]
        return list(live.values())

    def states(self):
        """Position of every state in the history, the last one where equal."""
        return {repr(self.state(count)): count for count in range(len(self.entries) + 1)}


def plain(recovered):
    """Recovered records as the model writes them."""
    return [(id_, kind, data, [tuple(u) for u in updates]) for id_, kind, data, updates in recovered.records]


async def until(condition, bound_s=60.0):
    """Let the loop turn until the condition holds; a bound instead of for ever."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + bound_s
    while not condition():
        assert loop.time() < deadline, "the condition never came to hold"
        await asyncio.sleep(0)
