"""The stored change record beside a plain model."""

import msgspec

from broker.core.change_record import ChangeRecord
from broker.core.changes import DESTINATION, Change, RequestId
from stateful.change_record_machine import ChangeRecordMachine
from stateful.machines import assert_found, budget

TestChangeRecord = ChangeRecordMachine.TestCase
TestChangeRecord.settings = budget(40, 30)


def test_a_backlog_that_outlives_its_destination_is_found(monkeypatch):
    monkeypatch.setattr(ChangeRecord, "_ends", lambda self, queue, change: change.value is None)
    assert_found(ChangeRecordMachine)


def test_a_change_that_was_written_before_changes_told_of_drops_is_read():
    fields = "incarnation", 3, ("a1", 0, 7), DESTINATION, "q", ""
    change = msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Change)
    assert change == Change("incarnation", 3, RequestId("a1", 0, 7), DESTINATION, "q", "")
    assert change.dropped == 0
