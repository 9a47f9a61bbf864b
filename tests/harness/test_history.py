"""The recorder: what was recorded can be read again, however the harness ended."""

import asyncio
import errno
import random
import time
import timeit
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.arrow_schema import SCHEMA, VERSIONS
from harness.history import parquet, recorder
from harness.history.recorder import STREAM, StreamRecorder, read_stream, recover
from harness.interface import InfrastructureError, UsageError


class Clock:
    def __init__(self):
        self.now = 1_000

    def __call__(self):
        self.now += 10
        return self.now


def record(directory, rows, *, flush_every=None):
    """A closed stream with ``rows`` (keyword arguments of ``event``); returns its path."""

    async def main():
        async with StreamRecorder(directory, Clock()) as recorder:
            for number, row in enumerate(rows):
                recorder.event(**row)
                if flush_every and number % flush_every == flush_every - 1:
                    await recorder.flush()
        return recorder.path

    return asyncio.run(main())


def operations(count, groups=5, seed=1):
    """Sends, deliveries and acks as a workload records them, faults and roles between them."""
    chance = random.Random(seed)
    sequences = {}
    for number in range(count):
        producer, group = number % 4, f"g{chance.randrange(groups)}"
        sequence = sequences[producer, group] = sequences.get((producer, group), -1) + 1
        message = {
            "queue": "orders",
            "group": group,
            "message": (producer << 40) | number,
            "producer": producer,
            "sequence": sequence,
            "connection": 1 + producer,
        }
        digest = google_crc32c.value(str(message["message"]).encode())
        yield {"process": producer, "type": "invoke", "f": "send", **message, "digest": digest}
        yield {"process": producer, "type": "ok", "f": "send", **message, "digest": digest, "broker": "a1"}
        yield {
            "process": 10,
            "type": "ok",
            "f": "deliver",
            **message,
            "digest": digest,
            "broker": "a1",
            "session": 3,
            "redelivered": False,
            "delivery_count": 1,
        }
        yield {"process": 10, "type": "invoke", "f": "ack", **message, "session": 3}
        yield {"process": 10, "type": "ok", "f": "ack", **message, "session": 3, "broker": "a1"}
        if number % 50 == 0:
            yield {"process": -1, "type": "invoke", "f": "kill", "value": '{"label": "kill"}'}
            yield {
                "process": -2,
                "type": "info",
                "f": "role",
                "broker": "a1",
                "role": "live",
                "time_low": 1,
                "time_high": 2,
            }


def read_all(files):
    return pa.concat_tables([pq.read_table(file) for file in files]).sort_by("index")


def test_every_column_of_every_row_comes_back(tmp_path):
    rows = list(operations(120))
    record(tmp_path, rows, flush_every=37)
    table = read_all(recover(tmp_path)).to_pylist()
    assert [row["index"] for row in table] == list(range(len(rows)))
    for given_row, row in zip(rows, table, strict=True):
        assert {
            name: value for name, value in row.items() if value is not None and name not in {"index", "time"}
        } == given_row


def test_times_and_indexes_grow(tmp_path):
    record(tmp_path, operations(20))
    table = read_all(recover(tmp_path))
    times = table.column("time").to_pylist()
    assert times == sorted(times)
    assert times[0] >= 0


def test_parquet_has_the_schema_and_the_stream_is_gone(tmp_path):
    record(tmp_path, operations(10))
    files = recover(tmp_path)
    assert all(pq.read_schema(file).equals(SCHEMA) for file in files)
    assert not (tmp_path / STREAM).exists()
    assert recover(tmp_path) == files


@given(st.data())
@settings(max_examples=150, deadline=None)
@pytest.mark.slow
def test_recovery_keeps_every_whole_batch_before_any_cut(stream_bytes, data):
    content, ends = stream_bytes.content, stream_bytes.ends
    cut = data.draw(st.integers(0, len(content)))
    directory = data.draw(st.builds(lambda: Path(_fresh())))
    (directory / STREAM).write_bytes(content[:cut])
    whole = max((rows for end, rows in ends if end <= cut), default=0)
    table = read_all(recover(directory))
    assert table.column("index").to_pylist() == list(range(whole))


@pytest.mark.slow
def test_cuts_at_every_byte_around_the_end_of_a_batch(stream_bytes, tmp_path):
    content, ends = stream_bytes.content, stream_bytes.ends
    path = tmp_path / STREAM
    first, second = ends[0][0], ends[1][0]
    for cut in {*range(1, first, 7), *range(first - 100, first + 100), *range(second - 100, second + 100)}:
        path.write_bytes(content[:cut])
        rows = sum(batch.num_rows for batch in read_stream(path))
        assert rows == max((rows for end, rows in ends if end <= cut), default=0), cut


class Stream:
    def __init__(self, content, ends):
        self.content = content
        self.ends = ends


_counter = iter(range(10**9))
_root = None


def _fresh():
    directory = _root / str(next(_counter))
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def stream_bytes(tmp_path_factory):
    """A stream of several batches with where each ended: (byte, rows up to there)."""
    global _root  # noqa: PLW0603
    _root = tmp_path_factory.mktemp("cuts")
    directory = tmp_path_factory.mktemp("stream")
    ends = []

    async def main():
        async with StreamRecorder(directory, Clock()) as recorder:
            for number, row in enumerate(operations(30), 1):
                recorder.event(**row)
                if number % 13 == 0:
                    await recorder.flush()
                    ends.append((recorder.path.stat().st_size, number))
        return recorder.path

    path = asyncio.run(main())
    total = sum(batch.num_rows for batch in read_stream(path))
    end_mark = 8
    return Stream(path.read_bytes(), [*ends, (path.stat().st_size - end_mark, total)])


def test_a_crash_of_the_harness_loses_at_most_the_last_moments(tmp_path):
    """The flusher alone, without any end of the test, makes the rows readable."""

    async def main():
        recorder = StreamRecorder(tmp_path)
        async with recorder:
            for row in operations(40):
                recorder.event(**row)
            deadline = time.monotonic() + 60
            while sum(batch.num_rows for batch in read_stream(recorder.path)) < recorder.recorded:
                assert time.monotonic() < deadline, "the flusher never wrote"
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_rows_of_a_group_are_in_one_file_and_in_order(tmp_path):
    rows = [*operations(600, groups=40), *({**row, "group": None} for row in operations(300))]
    path = record(tmp_path, rows)
    files = parquet.write(tmp_path, read_stream(path), parts=8)
    assert len(files) == 9
    homes, producers = {}, {}
    total = 0
    for file in files:
        table = pq.read_table(file).to_pylist()
        total += len(table)
        indexes = [row["index"] for row in table]
        assert indexes == sorted(indexes)
        for row in table:
            if row["group"] is not None:
                homes.setdefault((row["queue"], row["group"]), set()).add(file.name)
            elif row["producer"] is not None:
                producers.setdefault((row["queue"], row["producer"]), set()).add(file.name)
            else:
                assert file.name == parquet.CONTROL
    assert total == len(rows)
    assert len(homes) == 40
    assert all(len(names) == 1 for names in (*homes.values(), *producers.values()))
    assert len(set().union(*homes.values())) > 4, "the groups are spread over the files"


def test_chunks_of_a_long_history_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "CHUNK_ROWS", 100)
    rows = list(operations(200))
    path = record(tmp_path, rows, flush_every=64)
    files = parquet.write(tmp_path, read_stream(path), parts=2)
    assert read_all(files).column("index").to_pylist() == list(range(len(rows)))


def test_files_grow_with_the_history():
    counts = [parquet.files_for(size) for size in (0, 10**6, 10**8, 10**9, 10**12)]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == parquet.MAX_FILES
    assert all(count & (count - 1) == 0 for count in counts)


@pytest.mark.slow
def test_an_operation_costs_at_most_forty_bytes_on_disk(tmp_path):
    rows = list(operations(20_000, groups=100))
    record(tmp_path, rows)
    stream = (tmp_path / STREAM).stat().st_size
    parquet = sum(file.stat().st_size for file in recover(tmp_path))
    sends_deliveries_and_acks = 3 * 20_000
    assert stream / sends_deliveries_and_acks <= 40
    assert parquet / sends_deliveries_and_acks <= 40


def test_recording_a_row_costs_little_more_than_a_call_that_appends_a_tuple(tmp_path):
    """Against a baseline of the same moments, so that a slow or busy machine is slow in both."""
    row = {
        "queue": "q", "group": "g", "message": 12, "producer": 1, "sequence": 3, "digest": 5, "broker": "a1",
        "session": 3, "redelivered": False, "delivery_count": 1,
    }  # fmt: skip
    recorder = StreamRecorder(tmp_path)
    rows = []

    def append(
        process, kind, f, *, queue, group, message, producer, sequence, digest, broker, session, **flags
    ):
        rows.append(
            (process, kind, f, queue, group, message, producer, sequence, digest, broker, session, flags)
        )

    baseline = timeit.Timer(lambda: append(1, "ok", "deliver", **row))
    recording = timeit.Timer(lambda: recorder.event(1, "ok", "deliver", **row))
    pairs = [(baseline.timeit(2_000), recording.timeit(2_000)) for _ in range(50)]
    assert min(own for _, own in pairs) < 3 * min(plain for plain, _ in pairs)


def test_a_full_disk_is_told_once_and_again_at_the_end(tmp_path, monkeypatch):
    told = []

    async def main():
        recorder = StreamRecorder(tmp_path)
        recorder.on_failure = told.append

        def full(rows):
            raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(InfrastructureError, match="the rows from 1 on are not on disk"):
            async with recorder:
                recorder.event(1, "invoke", "send", message=1)
                await recorder.flush()
                monkeypatch.setattr(StreamRecorder, "_append", lambda _, rows: full(rows))
                for message in range(2, 6):
                    recorder.event(1, "invoke", "send", message=message)
                deadline = time.monotonic() + 60
                while not told:
                    assert time.monotonic() < deadline, "nobody was told"
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(told) == 1
    assert "No space left" in str(told[0])
    assert read_all(recover(tmp_path)).num_rows == 1, "what had been written can be judged"


def test_a_row_that_has_no_place_is_no_full_disk_and_is_told_at_once(tmp_path):
    told = []

    async def main():
        recorder = StreamRecorder(tmp_path)
        recorder.on_failure = told.append
        with pytest.raises(UnicodeEncodeError):
            async with recorder:
                recorder.event(1, "ok", "send", error="\udc80")
                deadline = time.monotonic() + 60
                while not told:
                    assert time.monotonic() < deadline, "nobody was told"
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    assert [type(each) for each in told] == [UnicodeEncodeError]


def test_a_row_that_has_no_place_is_told_though_its_flush_was_cancelled(tmp_path):
    async def main():
        async with StreamRecorder(tmp_path) as recorder:
            recorder.event(1, "ok", "send", delivery_count=2**31)
            flushing = asyncio.create_task(recorder.flush())
            await asyncio.sleep(0)
            flushing.cancel()
            await asyncio.wait([flushing])
            recorder.event(1, "ok", "send")

    with pytest.raises(pa.ArrowInvalid):
        asyncio.run(main())


def test_a_flush_that_is_cancelled_loses_and_mixes_nothing(tmp_path, monkeypatch):
    """Each flush is cancelled while its thread writes; the next begins at once."""
    real = StreamRecorder._append

    def slow(self, rows):
        time.sleep(0.005)
        real(self, rows)

    monkeypatch.setattr(StreamRecorder, "_append", slow)
    monkeypatch.setattr(recorder, "BATCH_ROWS", 5)
    rows = list(operations(60))

    async def main():
        async with StreamRecorder(tmp_path) as recorder:
            for number, row in enumerate(rows):
                recorder.event(**row)
                if number % 11 == 0:
                    flushing = asyncio.create_task(recorder.flush())
                    await asyncio.sleep(0)
                    flushing.cancel()

    asyncio.run(main())
    table = read_all(recover(tmp_path)).to_pylist()
    assert [row["message"] for row in table] == [row.get("message") for row in rows]


def test_a_directory_that_cannot_be_written_is_the_machines_fault(tmp_path):
    with pytest.raises(InfrastructureError, match="cannot write the history"):
        StreamRecorder(tmp_path / "missing")


def test_incomplete_parquet_is_rebuilt_from_the_stream(tmp_path):
    rows = list(operations(100))
    path = record(tmp_path, rows)
    stream = path.read_bytes()
    files = recover(tmp_path)
    path.write_bytes(stream)
    files[0].write_bytes(files[0].read_bytes()[:100])
    assert read_all(recover(tmp_path)).num_rows == len(rows)


def test_damaged_parquet_without_a_stream_is_refused(tmp_path):
    record(tmp_path, operations(10))
    recover(tmp_path)[0].unlink()
    with pytest.raises(UsageError, match=r"part-00000.parquet cannot be read"):
        recover(tmp_path)


@pytest.mark.parametrize(
    "content", [b"hello, this is no history at all", b"\xff\xff\xff\xff\x00\x01", b"PAR1" * 100]
)
def test_a_history_that_is_none_is_refused_by_name(tmp_path, content):
    (tmp_path / STREAM).write_bytes(content)
    with pytest.raises(UsageError, match=r"history\.arrows is not a history: it is not an Arrow stream"):
        recover(tmp_path)


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (pa.schema([("index", pa.int64())]), 'it has no column "time"'),
        (SCHEMA.set(1, pa.field("time", pa.float64())), 'column "time" is double, not int64'),
        (SCHEMA.append(pa.field("colour", pa.string())), "unknown columns colour"),
    ],
)
def test_a_stream_with_other_columns_is_refused_by_what_differs(tmp_path, schema, complaint):
    with pa.OSFile(str(tmp_path / STREAM), "wb") as file, pa.ipc.new_stream(file, schema):
        pass
    with pytest.raises(UsageError, match=complaint):
        recover(tmp_path)


@pytest.mark.parametrize("lacking", range(1, len(VERSIONS)))
def test_a_stream_of_before_is_recovered_and_the_columns_it_lacks_are_null(tmp_path, lacking):
    version = VERSIONS[lacking]
    rows = list(operations(20))
    whole = pa.Table.from_batches(read_stream(record(tmp_path, rows)))
    older = whole.select(version.names)
    with pa.OSFile(str(tmp_path / STREAM), "wb") as file, pa.ipc.new_stream(file, version) as writer:
        writer.write_table(older)
    table = read_all(recover(tmp_path))
    assert table.schema.equals(SCHEMA)
    assert all(table.column(name).null_count == len(rows) for name in set(SCHEMA.names) - set(version.names))
    assert table.select(version.names).equals(older.cast(version))


def test_an_empty_directory_has_no_history(tmp_path):
    with pytest.raises(UsageError, match="has no history"):
        recover(tmp_path)


def test_processes_are_never_reused(tmp_path):
    recorder = StreamRecorder(tmp_path)
    assert len({recorder.next_process() for _ in range(100)}) == 100


def test_batches_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "BATCH_ROWS", 7)
    path = record(tmp_path, operations(10))
    assert max(batch.num_rows for batch in read_stream(path)) <= 7
