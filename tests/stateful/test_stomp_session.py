"""STOMP sessions beside a plain model.

The machine, what it found, and parts broken on purpose that it must find.
"""

import pytest

from broker.core.consumer import QueueConsumer
from broker.core.engine import Engine
from broker.stomp.connection import StompConnection
from broker.stomp.session import StompSession
from stateful.machines import assert_found, budget
from stateful.session_machine import SessionMachine

TestSession = SessionMachine.TestCase
TestSession.settings = budget(120, 50)


# ---- what the machine found, and parts broken on purpose that it must find


@pytest.fixture
def machine():
    """What is in the journal was written by an earlier connection."""
    one = SessionMachine()
    one.begin()
    one.lose()
    yield one
    one.teardown()


def test_the_receipt_of_an_abort_is_not_overtaken(machine):
    """It waited for whatever anybody had written last, and the receipt of the next frame for
    nothing.
    """
    machine.open_transaction("t1", receipt=False, go="all")
    machine.finish(0, commit=False, receipt=True, go="all")
    machine.open_transaction("t2", receipt=True, go="all")
    machine.rest()
    assert machine.view.got == ["r1", "r2"]


def test_the_receipt_of_an_abort_is_not_lost_with_a_disconnect(machine):
    machine.open_transaction("t1", receipt=False, go="all")
    machine.finish(0, commit=False, receipt=True, go="all")
    machine.disconnect(receipt=True)
    machine.arrive("all")
    machine.rest()
    assert machine.view.got == ["r1", "r2"]
    machine.at_rest_all_is_answered()


def test_receipts_that_wait_end_with_a_frame_that_is_seen_early_to_be_none(machine):
    """The model thought that the connection was still open."""
    machine.send(count=1, go="all", note="", receipt=False, style=0, transaction=None, zero=False)
    machine.trouble("unsubscribe", which=1, receipt=True, go="none")
    machine.trouble("broken", which=1, receipt=False, go=len(machine.view.outbox) + 6)
    machine.the_end_is_right()
    machine.rest()
    machine.the_end_is_right()
    machine.at_rest_all_is_answered()
    assert machine.view.errors
    assert machine.view.got == []


@pytest.mark.in_turn
def test_a_transaction_in_pieces_is_found(monkeypatch):
    commit = Engine.commit

    def piecemeal(self, transaction, done=None):
        sends, transaction.sends = transaction.sends, []
        for queue, message in sends:
            self.send(queue, message)
        return commit(self, transaction, done)

    monkeypatch.setattr(Engine, "commit", piecemeal)
    assert_found(SessionMachine)


@pytest.mark.in_turn
def test_a_commit_that_comes_without_its_sends_is_found(monkeypatch):
    commit = Engine.commit

    def lossy(self, transaction, done=None):
        transaction.sends = transaction.sends[:1]
        return commit(self, transaction, done)

    monkeypatch.setattr(Engine, "commit", lossy)
    assert_found(SessionMachine)


@pytest.mark.in_turn
def test_receipts_that_come_twice_are_found(monkeypatch):
    receipt = StompSession._receipt

    def twice(self, name):
        receipt(self, name)
        self._open_receipts += 1
        receipt(self, name)

    monkeypatch.setattr(StompSession, "_receipt", twice)
    assert_found(SessionMachine)


@pytest.mark.in_turn
def test_an_error_that_does_not_close_is_found(monkeypatch):
    error = StompConnection.error

    def lenient(self, *arguments, **more):
        close, self.closing = StompConnection.close, False
        monkeypatch.setattr(StompConnection, "close", lambda _: None)
        try:
            error(self, *arguments, **more)
        finally:
            monkeypatch.setattr(StompConnection, "close", close)

    monkeypatch.setattr(StompConnection, "error", lenient)
    assert_found(SessionMachine)


@pytest.mark.in_turn
def test_a_cumulative_acknowledgement_of_one_message_only_is_found(monkeypatch):
    monkeypatch.setattr(QueueConsumer, "through", lambda self, delivery: [delivery])
    assert_found(SessionMachine)
