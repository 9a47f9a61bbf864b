"""The recorder that writes a history to disk as columns while the test still runs.

Why a stream first and Parquet last: a Parquet file is unreadable until its footer is written, and
the run most worth judging is the one whose harness was killed. So rows go to an Arrow IPC *stream*
(``history.arrows``), readable up to the last whole batch, four times a second. When the test has
ended, the stream is rewritten as Parquet, partitioned for Spark (``harness.history.parquet``), and
removed.

The hot path (``Recorder.event``) appends one tuple to a list; everything else happens in another
thread than the loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from checkers.arrow_schema import OLDER, SCHEMA, VERSIONS, completed
from harness.history import parquet
from harness.history.rows import HistoryRecorder
from harness.history.store import STREAM
from harness.interface import InfrastructureError, UsageError
from harness.interface.recorder import Row

FLUSH_INTERVAL_S: Final = 0.25
BATCH_ROWS: Final = 20_000
_POLL_S: Final = 0.05

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")


def to_batch(rows: list[Row]) -> pa.RecordBatch:
    """Return one record batch of rows, which are tuples in ``SCHEMA``'s order."""
    columns = zip(*rows, strict=True)
    arrays = []
    for field, column in zip(SCHEMA, columns, strict=True):
        if pa.types.is_dictionary(field.type):
            text = pa.array(column, field.type.value_type)
            arrays.append(text.dictionary_encode().cast(field.type))
        else:
            arrays.append(pa.array(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class StreamRecorder(HistoryRecorder):
    """A recorder of one test into ``directory/history.arrows``.

    Use as ``async with StreamRecorder(directory) as recorder``: entering starts the flusher,
    leaving writes what is left. A flush that fails calls ``on_failure`` once, from the event loop,
    with the error; the caller must then end the test. For a full disk it is an InfrastructureError
    that says from which row on the history is missing. ``close`` raises the same error, so that it
    cannot get lost.

    Args:
        directory: the store directory of the test; must exist.
        clock: monotonic nanoseconds; its value now is the test's time zero.
    """

    __slots__ = (
        "_failure",
        "_file",
        "_flusher",
        "_writer",
        "_writing",
        "path",
    )

    def __init__(self, directory: Path, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.path = directory / STREAM
        super().__init__(clock)
        self._failure: Exception | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._writing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
        try:
            self._file = self.path.open("wb")
            self._writer = pa.ipc.new_stream(self._file, SCHEMA, options=_OPTIONS)
            self._file.flush()
        except OSError as error:
            raise InfrastructureError(f"cannot write the history {self.path}: {error}") from error

    # ---------------------------------------------------------------------------------- to the disk

    async def __aenter__(self) -> Self:
        self._flusher = asyncio.create_task(self._flush_for_ever(), name="history-flusher")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def flush(self) -> None:
        """Write every row recorded before this call and hand it to the operating system.

        Raises InfrastructureError if the file cannot be written. For a row that does not fit the
        columns, which is a bug of ours, raises an error of Arrow's. A cancellation of this call
        changes nothing for the rows: the writer thread takes them in the order of the calls and
        finishes what it has begun.
        """
        rows, self._rows = self._rows, []
        if rows or self._failure is not None:
            written = asyncio.get_running_loop().run_in_executor(self._writing, self._write, rows)
            # The error is kept in _failure; it is retrieved here so that asyncio does not complain.
            written.add_done_callback(asyncio.Future.exception)
            # A cancelled future would be dropped from the executor's queue, rows and all.
            await asyncio.shield(written)

    def _write(self, rows: list[Row]) -> None:
        """Write rows, in the writer thread, one call at a time."""
        written = 0
        try:
            while self._failure is None and written < len(rows):
                chunk = rows[written : written + BATCH_ROWS]
                self._append(chunk)
                written += len(chunk)
        except OSError as error:
            self._failure = InfrastructureError(
                f"the history {self.path} cannot be written ({error}): the rows from {rows[written][0]} "
                "on are not on disk; "
                "free some space and run again"
            )
            self._failure.__cause__ = error
        except Exception as error:  # noqa: BLE001 - kept, as the waiting caller may be cancelled
            self._failure = error
        if self._failure is not None:
            raise self._failure

    def _append(self, rows: list[Row]) -> None:
        self._writer.write_batch(to_batch(rows))
        self._file.flush()

    async def _flush_for_ever(self) -> None:
        idle = 0.0
        while True:
            await asyncio.sleep(_POLL_S)
            idle += _POLL_S
            if idle < FLUSH_INTERVAL_S and len(self._rows) < BATCH_ROWS:
                continue
            idle = 0.0
            try:
                await self.flush()
            except Exception as failure:  # noqa: BLE001 - close raises it again
                if self.on_failure is not None:
                    self.on_failure(failure)
                return

    async def close(self) -> None:
        """Write what is left and close the stream; may be called twice.

        Raises the error that kept rows from the disk, if rows are missing there.
        """
        if self._flusher is not None:
            self._flusher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._flusher
            self._flusher = None
        if self._file.closed:
            return
        try:
            await self.flush()
            await asyncio.get_running_loop().run_in_executor(self._writing, self._writer.close)
        except OSError as error:
            raise InfrastructureError(f"the history {self.path} cannot be written: {error}") from error
        finally:
            self._writing.shutdown()
            with contextlib.suppress(OSError):
                self._file.close()

    async def finish(self) -> list[Path]:
        """Close the stream, rewrite it as Parquet for the checkers, and remove it.

        Returns the Parquet files.
        """
        await self.close()
        return await asyncio.to_thread(recover, self.path.parent)


# ------------------------------------------------------------------------------------------ reading


def read_stream(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the whole batches of a stream, in order, however it was cut.

    What follows the last whole batch is ignored.

    Raises UsageError that says what is wrong if the file is not a history.
    """
    heads = [schema.serialize().to_pybytes() for schema in VERSIONS]  # our streams begin with one of these
    with path.open("rb") as file:
        start = file.read(max(map(len, heads)))
    if not any(start.startswith(head) for head in heads):
        if any(head.startswith(start) for head in heads):
            return
        _refuse_foreign(path)
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_stream(source)
        if not _is_known_version(reader.schema):
            _refuse_schema(path, reader.schema)
        while True:
            try:
                batch = reader.read_next_batch()
                batch.validate()
            except (StopIteration, OSError, pa.ArrowException):
                return
            yield from completed(pa.Table.from_batches([batch])).to_batches()


def _refuse_foreign(path: Path) -> None:
    """Raise UsageError for a stream that is not ours.

    The message tells a stream with other columns (another version's) from a file that is no stream.
    """
    try:
        schema = pa.ipc.open_stream(pa.memory_map(str(path))).schema
    except (OSError, pa.ArrowException):
        raise UsageError(f"{path} is not a history: it is not an Arrow stream") from None
    if not _is_known_version(schema):
        _refuse_schema(path, schema)


def _is_known_version(schema: pa.Schema) -> bool:
    return any(schema.equals(version) for version in VERSIONS)


def _refuse_schema(path: Path, schema: pa.Schema) -> None:
    for field in OLDER:
        if field.name not in schema.names:
            raise UsageError(f'{path} is not a history: it has no column "{field.name}"')
        if not schema.field(field.name).type.equals(field.type):
            raise UsageError(
                f'{path} is not a history: column "{field.name}" is {schema.field(field.name).type}, '
                f"not {field.type}"
            )
    strange = sorted(set(schema.names) - set(SCHEMA.names))
    raise UsageError(
        f"{path} is not a history of this version: unknown columns {', '.join(strange) or '(order)'}"
    )


def recover(store: Path, *, keep: bool = True) -> list[Path]:
    """Return the Parquet files of a test's history.

    They are built from the stream if they are missing or incomplete.

    Why here and not only at the end of a run: ``check`` judges runs whose harness was killed.
    Idempotent; the stream is removed only after the Parquet files are complete and synced. Without
    ``keep`` nothing is written or removed.

    Raises:
        UsageError: ``store`` has no history, or files that are not one, or ``keep`` is false and
            the Parquet files would have to be written.
        InfrastructureError: no space for the Parquet files.
    """
    stream = store / STREAM
    files = parquet.complete_files(store, certain=not stream.is_file())
    if files is None:
        if not stream.is_file():
            raise UsageError(
                f"{store} has no history: neither a complete {parquet.DIRECTORY}/ nor {STREAM} (is it "
                "a test's store directory?)"
            )
        if not keep:
            raise UsageError(
                f'{store}: this run was killed; "jepsen-run check" with this directory completes its history'
            )
        try:
            files = parquet.write(store, read_stream(stream), parquet.files_for(stream.stat().st_size))
        except OSError as error:
            raise InfrastructureError(f"cannot write {store / parquet.DIRECTORY}: {error}") from error
    if keep:
        stream.unlink(missing_ok=True)
    return files
