"""kill -9 under load, again and again.

What was answered is kept, what was acknowledged never returns, groups keep their order.
"""

import random
import threading

import pytest
from brokers import BOUND_S, Raw, until

pytestmark = pytest.mark.cluster


class Producer(threading.Thread):
    """Keeps 20 sends on their way until the connection breaks."""

    def __init__(self, port, name, start):
        super().__init__()
        self.raw = Raw(port)
        self.label = name
        self.next = start
        self.answered = []

    def run(self):
        waiting = 0
        try:
            while True:
                while waiting < 20:
                    text = f"{self.label}-{self.next}"
                    headers = {"destination": "/queue/q", "receipt": text, "JMSXGroupID": f"g{self.next % 5}"}
                    self.raw.send("SEND", headers, text.encode())
                    self.next += 1
                    waiting += 1
                command, headers, _ = self.raw.frame()
                if command == "EOF":
                    return
                self.answered.append(headers["receipt-id"])
                waiting -= 1
        except OSError:
            return


class Consumer(threading.Thread):
    """Acknowledges what it gets, each with a receipt, until the connection breaks.

    ``slow`` leaves every third unacknowledged.
    """

    def __init__(self, port, slow):
        super().__init__()
        self.raw = Raw(port)
        self.slow = slow
        self.got = []
        self.acked = []
        self.idle = threading.Event()

    def run(self):
        try:
            self.raw.subscribe(**{"prefetch-count": "50"})
            while True:
                command, headers, body = self.raw.frame()
                if command == "EOF":
                    return
                if command == "RECEIPT":
                    self.acked.append(headers["receipt-id"])
                    continue
                text = body.decode()
                self.got.append((text, headers["redelivered"] == "true"))
                if not self.slow or len(self.got) % 3:
                    self.raw.send("ACK", {"id": headers["ack"], "receipt": text})
        except OSError:
            return


def test_kill_nine_under_load(brokerd):
    chance = random.Random(5)
    broker = brokerd()
    answered, acked, first, seen = set(), set(), [], set()
    starts = {"a": 0, "b": 0}
    for _ in range(4):
        producers = [Producer(broker.port, name, start) for name, start in starts.items()]
        consumers = [Consumer(broker.port, slow) for slow in (False, True)]
        for thread in (*producers, *consumers):
            thread.start()
        goal = chance.randrange(100, 400)
        until(lambda ps=producers, goal=goal: sum(len(p.answered) for p in ps) > goal, "some load")
        broker.kill()
        for thread in (*producers, *consumers):
            thread.join(BOUND_S)
            assert not thread.is_alive()
        for producer in producers:
            starts[producer.label] = producer.next
            answered.update(producer.answered)
        for consumer in consumers:
            check(consumer.got, acked, seen, first)
        for consumer in consumers:
            acked.update(consumer.acked)
        broker.start()
    last = Consumer(broker.port, slow=False)
    last.start()
    Raw(broker.port).publish("end")
    # Every answered message arrives before "end" does, or has been delivered before: nothing
    # answered is missing.
    until(lambda: any(text == "end" for text, _ in last.got), "the end of the queue")
    broker.kill()
    last.join(BOUND_S)
    check(last.got, acked, seen, first)
    missing = answered - seen
    assert not missing
    for label in starts:
        for group in range(5):
            numbers = [int(text.split("-")[1]) for text in first if text.startswith(label)]
            numbers = [n for n in numbers if n % 5 == group]
            assert numbers == sorted(numbers)


def check(got, acked, seen, first):
    """Hold one connection's deliveries against all that is known from before it."""
    for text, redelivered in got:
        assert text not in acked, f"{text} was acknowledged before the crash and came again"
        if text in seen:
            assert redelivered, f"{text} came again without its flag"
        else:
            first.append(text)
        seen.add(text)
