"""A send that must wait: what the log says of it, and that nobody waits for queues of others."""

import asyncio

import pytest
from brokers import Raw, until

from broker.stomp.intake import Intake
from broker.turn_budget import TurnBudget

pytestmark = pytest.mark.cluster

BODY = bytes(60_000)


def send(client, queue, body=BODY):
    headers = {"destination": f"/queue/{queue}", "content-length": str(len(body)), "receipt": queue}
    client.send("SEND", headers, body)


def lines(broker, text):
    return [line for line in broker.lines if text in line]


@pytest.mark.parametrize(
    ("property_", "reason"),
    [
        ("address-settings.#.max-size-bytes", "'q' has 120596 bytes in memory (address-settings: max-size-"),
        ("broker.global-max-size", "all queues together have 120596 bytes in memory (broker.global-max-size"),
    ],
)
def test_the_log_says_who_waits_for_what_and_when_it_goes_on(brokerd, property_, reason):
    broker = brokerd(**{property_: 100_000, "address-settings.#.address-full-policy": "BLOCK"})
    producer = Raw(broker.port)
    for _ in range(4):
        send(producer, "q")
    until(lambda: lines(broker, "sends to 'q' wait: "), "the log says that sends wait")
    [line] = lines(broker, "sends to 'q' wait: ")
    assert reason in line
    assert "(user 'guest', 127.0.0.1:" in line
    consumer = Raw(broker.port)
    consumer.subscribe(ack="auto")
    for _ in range(4):
        assert consumer.read("MESSAGE")[1] == BODY
        producer.receipt("q")
    until(lambda: lines(broker, "its sends go on after "), "the log says that they go on")
    assert len(lines(broker, "sends to 'q' wait: ")) == 1


def test_a_short_wait_is_not_told():
    async def scenario():
        told = []
        memory = Full()
        intake = Intake(memory, TurnBudget(), lambda: None, lambda: False, told.append)
        intake.park("q", 1, lambda: None)
        memory.full = False
        memory.callback()
        assert not intake
        assert not told
        intake.park("q", 1, lambda: None)
        intake.clear()
        assert not told

    asyncio.run(scenario())


class Full:
    """A memory that is full until it is not."""

    full = True

    def is_full(self, queue):
        return self.full

    must_wait = is_full

    def wait(self, queue, callback):
        self.callback = callback

    def forget(self, callback):
        pass


def test_queues_of_one_client_that_nobody_consumes_stop_nobody_before_or_after_a_restart(brokerd):
    broker = brokerd(**{"broker.global-max-size": 1_000_000, "address-settings.#.page-size-bytes": 10_000})
    client = Raw(broker.port)
    for number in range(60):
        send(client, f"q{number}")
        client.receipt(f"q{number}")
    for _ in range(2):
        Raw(broker.port).publish("m", "another")
        broker.kill()
        broker.start()
    Raw(broker.port).publish("m", "another")
    consumer = Raw(broker.port)
    for number in range(60):
        consumer.subscribe(f"q{number}", ack="auto", name=str(number))
        assert consumer.read("MESSAGE")[1] == BODY
    assert not lines(broker, "wait")
