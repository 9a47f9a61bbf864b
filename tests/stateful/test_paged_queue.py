"""Queues with pages beside the plain model of queues without.

The machine, and parts broken on purpose that it must find.
"""

import pytest

from broker.core import recovery
from broker.core.backlog import Backlog
from stateful.machines import assert_found, budget
from stateful.paged_queue_machine import PagedQueueMachine

TestPagedQueue = PagedQueueMachine.TestCase
TestPagedQueue.settings = budget(150, 50)


@pytest.mark.in_turn
def test_consumed_messages_of_a_page_that_come_back_are_found(monkeypatch):
    monkeypatch.setattr(recovery.Page, "consume", lambda self, ids: None)
    assert_found(PagedQueueMachine)


@pytest.mark.in_turn
def test_messages_that_overtake_those_on_a_page_are_found(monkeypatch):
    put = Backlog.put
    monkeypatch.setattr(
        Backlog, "put", lambda self, page, messages: put(self, page, list(reversed(messages)))
    )
    assert_found(PagedQueueMachine)
