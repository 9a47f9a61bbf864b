"""Queues with groups beside a plain model.

The machine, what it found, and parts broken on purpose that it must find.
"""

import pytest

from broker.core import recovery
from broker.core.groups import Lane
from broker.core.queue import Queue
from stateful.machines import assert_found, budget
from stateful.queue_machine import SYNC_S, QueueMachine

TestQueue = QueueMachine.TestCase
TestQueue.settings = budget(150, 50)


# ---- what the machine found, and parts broken on purpose that it must find


@pytest.mark.in_turn
def test_a_message_that_comes_back_behind_younger_ones_is_found(monkeypatch):
    monkeypatch.setattr(Lane, "put_back", lambda self, message: self.fresh.append(message))
    assert_found(QueueMachine)


@pytest.mark.in_turn
def test_messages_forgotten_with_their_consumer_are_found(monkeypatch):
    leave = Queue.leave

    def forgetful(self, consumer):
        consumer.unacknowledged.clear()
        leave(self, consumer)

    monkeypatch.setattr(Queue, "leave", forgetful)
    assert_found(QueueMachine)


@pytest.mark.in_turn
def test_a_group_that_changes_its_owner_is_found(monkeypatch):
    settled_ = Queue.settled

    def forgetful(self, delivery):
        lane = delivery.lane
        if lane.group is not None and lane.owner is not None and lane.held == 1:
            del lane.owner.owned[lane]
            lane.owner = None
        settled_(self, delivery)

    monkeypatch.setattr(Queue, "settled", forgetful)
    assert_found(QueueMachine)


@pytest.mark.in_turn
def test_a_flag_lost_in_a_crash_is_found(monkeypatch):
    read = recovery.read

    def trusting(*given):
        image = read(*given)
        image.least_deliveries = 0
        return image

    monkeypatch.setattr(recovery, "read", trusting)
    assert_found(QueueMachine)


@pytest.mark.in_turn
def test_a_refused_message_that_is_overtaken_is_found(monkeypatch):
    returned = Queue.returned
    monkeypatch.setattr(Queue, "refusing", lambda self, delivery: None)
    monkeypatch.setattr(
        Queue, "returned", lambda self, some, delay=0.0, refused=False: returned(self, some, delay)
    )
    assert_found(QueueMachine)


@pytest.fixture
def machine():
    one = QueueMachine()
    yield one
    one.teardown()


def settled(machine, attempts=-1, address="DLQ"):
    machine.begin(attempts, address, 0)
    machine.leave(0)


def check(machine):
    machine.nothing_complains()
    machine.counts_add_up()
    machine.nothing_waits_for_nothing()


def test_a_consumer_whose_refused_message_dies_gets_the_next(machine):
    """It held its whole prefetch, and what it refused became a dead letter.

    Nobody gave it its credit back.
    """
    settled(machine, attempts=1)
    machine.send("q", None, 0, 2, "durable")
    machine.subscribe("q", 1, 0, 0, "durable")
    machine.refuse(0, cumulative=False, then="durable")
    check(machine)
    assert machine.holding(), "the second message waits for ever"


def test_a_first_delivery_after_a_clean_start_is_not_forgotten_in_a_crash(machine):
    """The mark of the clean end was still on the disk, and the crash after it was taken for no
    crash.
    """
    settled(machine)
    machine.send("q", None, 0, 1, "durable")
    machine.restart()
    machine.subscribe("q", 1, 0, 0, "turn")
    machine.crash(0)
    check(machine)


def test_a_refused_message_goes_before_a_younger_one_of_its_group(machine):
    """With a prefetch of one: the younger arrived while the refusal was on its way to the disk."""
    settled(machine)
    machine.subscribe("q", 1, 0, 0, "durable")
    machine.send("q", "a", 0, 1, "durable")
    machine.send("q", "a", 0, 1, "nothing")
    machine.loop.advance(SYNC_S / 2)
    machine.refuse(0, cumulative=False, then="nothing")
    machine.flush()
    check(machine)
    assert [machine.clients[0].held[tag][1].text for tag in machine.clients[0].held] == ["m1"]


def test_dead_letters_of_a_commit_stand_behind_what_it_sent_there(machine):
    """They have the higher ids; the other order confused the queue when one of them came back."""
    settled(machine, attempts=1)
    machine.send("q", None, 0, 1, "durable")
    machine.subscribe("q", 1, 0, 0, "durable")
    machine.send_in_transaction(0, "DLQ", None, closes=False)
    machine.take_into_transaction(0, 0, cumulative=False, refused=True)
    machine.finish(0, "commit", "durable")
    check(machine)
    machine.subscribe("DLQ", 1, 0, 0, "durable")
    machine.refuse(0, cumulative=False, then="durable")
    check(machine)
