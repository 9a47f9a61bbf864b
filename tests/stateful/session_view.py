"""One connection as its client understands it, and what its frames do to the store."""

from collections import deque

from stateful.stomp_client import Reader, Transport


class Effect:
    """What one journal entry does to the store, as a whole.

    Texts added, in order, and texts removed.
    """

    def __init__(self, added=(), removed=()):
        self.added = list(added)
        self.removed = list(removed)

    def apply(self, stored):
        return [text for text in [*stored, *self.added] if text not in self.removed]


class Pending:
    """A frame on its way: where it ends in the stream, what it means when it is whole, or that
    it is no frame.
    """

    def __init__(self, start, end, meaning):
        self.start = start
        self.end = end
        self.meaning = meaning


class View:
    """One connection as its client understands it."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.transport = Transport(protocol)
        self.reader = Reader(self.transport)
        self.state = (
            "new"  # then "in", and "left", "wrong", or "careless": said what is no frame after its DISCONNECT
        )
        self.connected = False
        self.sent = self.arrived = 0
        self.outbox = bytearray()
        self.frames = deque()
        self.receipts = []
        self.got = []
        self.errors = []
        self.fault = None
        self.last = None
        self.subscriptions = {}
        self.everyone = set()
        self.held = {}
        self.acked_of = {}
        self.transactions = {}
        # What has been said, whether or not it has arrived: a client that makes no mistakes asks
        # for nothing twice.
        self.begun = []
        self.subscribed = []
        self.answered = []

    def named(self, index):
        """An open transaction, or None."""
        return self.begun[index % len(self.begun)] if index is not None and self.begun else None
