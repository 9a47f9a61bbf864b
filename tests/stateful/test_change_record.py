"""The stored change record beside a plain model."""

from broker.core.change_record import ChangeRecord
from stateful.change_record_machine import ChangeRecordMachine
from stateful.machines import assert_found, budget

TestChangeRecord = ChangeRecordMachine.TestCase
TestChangeRecord.settings = budget(40, 30)


def test_a_backlog_that_outlives_its_destination_is_found(monkeypatch):
    monkeypatch.setattr(ChangeRecord, "_ends", lambda self, queue, change: change.value is None)
    assert_found(ChangeRecordMachine)
