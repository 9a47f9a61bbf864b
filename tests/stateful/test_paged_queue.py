"""Queues with pages beside the plain model of queues without: the machine, and parts broken on purpose that it must find."""

from broker.core import recovery
from broker.core.backlog import Backlog
from broker.core.blobs import HeldBlobs
from broker.core.pages import Page
from stateful.machines import assert_found, budget
from stateful.paged_queue_machine import PagedQueueMachine

TestPagedQueue = PagedQueueMachine.TestCase
TestPagedQueue.settings = budget(150, 50)


def test_consumed_messages_of_a_page_that_come_back_are_found(monkeypatch):
    monkeypatch.setattr(recovery.Page, "consume", lambda self, ids: None)
    assert_found(PagedQueueMachine)


def test_a_page_whose_messages_are_believed_to_be_new_is_found(monkeypatch):
    monkeypatch.setattr(Page, "count", lambda self, message_id, deliveries, refusals: None)
    assert_found(PagedQueueMachine)


def test_a_page_removed_before_its_deletion_is_durable_is_found(monkeypatch):
    monkeypatch.setattr(HeldBlobs, "end", lambda self, blobs: self.let_go(blobs))
    assert_found(PagedQueueMachine)


def test_messages_that_overtake_those_on_a_page_are_found(monkeypatch):
    put = Backlog.put
    monkeypatch.setattr(
        Backlog, "put", lambda self, page, messages: put(self, page, list(reversed(messages)))
    )
    assert_found(PagedQueueMachine)
