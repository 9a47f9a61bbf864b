"""The store: one directory for each run, found again by whatever path a person gives."""

from datetime import UTC, datetime

import pytest

from harness.history import store as stores
from harness.interface import InfrastructureError, TestSpec, UsageError

NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)


def make(root, name, moment=NOON):
    store = stores.create(root, name, moment)
    stores.save(store, stores.SPEC, TestSpec(name=name))
    return store


def test_a_run_has_a_directory_of_its_own_even_in_one_millisecond(tmp_path):
    first, second = make(tmp_path, "kill"), make(tmp_path, "kill")
    assert first == tmp_path / "kill" / "20261121T120000.123"
    assert second == tmp_path / "kill" / "20261121T120000.123-1"
    assert (tmp_path / "kill" / "latest").resolve() == second
    assert (tmp_path / "latest").resolve() == second


@pytest.mark.parametrize(
    ("name", "directory"),
    [("a b/c", "a-b-c"), ("../../etc", "etc"), ("...", "test"), ("größe", "größe"), ("", "test")],
)
def test_a_name_cannot_leave_the_store(tmp_path, name, directory):
    assert stores.create(tmp_path, name).parent == tmp_path / directory


def test_runs_are_found_by_any_path(tmp_path):
    first = make(tmp_path, "kill")
    second = make(tmp_path, "pause", NOON.replace(hour=13))
    assert stores.find(first) == [first]
    assert stores.find(tmp_path / "kill") == [first]
    assert stores.find(tmp_path) == [first, second]
    assert stores.find(first / stores.SPEC) == [first]
    assert stores.find(tmp_path / "latest") == [second]


def test_what_is_no_run_is_refused_by_name(tmp_path):
    (tmp_path / "letter.txt").write_text("dear reader")
    for path, complaint in (
        (tmp_path, "has no history in it"),
        (tmp_path / "letter.txt", "is not a history"),
        (tmp_path / "none", "does not exist"),
    ):
        with pytest.raises(UsageError, match=complaint) as refused:
            stores.find(path)
        assert str(path) in str(refused.value)


def test_a_store_that_cannot_be_made_is_the_machines_fault(tmp_path):
    (tmp_path / "store").write_text("a file is in the way")
    with pytest.raises(InfrastructureError, match="cannot make a directory for the results"):
        stores.create(tmp_path / "store", "kill")


def test_a_damaged_file_is_named(tmp_path):
    store = make(tmp_path, "kill")
    (store / stores.SCHEDULE).write_text('{"faults": 3}')
    with pytest.raises(UsageError, match=r"schedule\.json: Expected `array`"):
        stores.load_schedule(store)


def test_this_process_is_alive_and_none_is_not():
    assert stores.new_record().alive()
    assert not stores.RunRecord().alive()


def test_a_process_with_the_same_number_is_not_the_same(tmp_path):
    import msgspec

    record = stores.new_record()
    record.process = msgspec.structs.replace(record.process, started="1")
    assert not record.alive()


@pytest.mark.parametrize("name", ["latest", "n" * 300, "λ" * 300])
def test_a_test_may_have_any_name(tmp_path, name):
    first, store = make(tmp_path, "first"), make(tmp_path, name)
    assert store.parent.parent == tmp_path
    assert first not in store.resolve().parents
    assert (tmp_path / "latest").resolve() == store.resolve()
    assert (store.parent / "latest").resolve() == store.resolve()
    assert stores.find(tmp_path / "latest") == [store.resolve()]
