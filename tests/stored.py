"""What the stores of an engine hold, seen in one turn of the loop.

Nothing else may happen while a test looks.
"""

from broker.core.message import decode_stored
from broker.core.pages import Page


def stored(engine, queue=None, volume=None):
    """As ``engine.browse`` gives it.

    ``volume``, in memory, is where its pages are, if there are any.
    """
    names = list(engine.queues) if queue is None else [queue] if queue in engine.queues else []
    found = []
    for name in names:
        for item in engine.queues[name].all():
            if isinstance(item, Page):
                assert volume is not None, "a page has to be read"
                data = volume.image()[engine.journal.pages.medium.path(item.blob.id)]
                found += [Stored(engine, name, message) for message in decode_stored(item, data)]
            else:
                found.append(Stored(engine, name, item))
    return found


class Stored:
    """A message in a store."""

    def __init__(self, engine, holder, message):
        self.store = engine.settings.store(holder)
        self.queue = message.target
        self.holder = holder
        self.message = message
