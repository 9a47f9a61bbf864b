"""The import of another harness' history, from its file into a store like a run's.

Why by way of a directory next to the store: a file that cannot be read to its end leaves nothing
behind, and reading needs no memory: rows are written as they come.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa

from checkers.arrow_schema import batch
from checkers.intake import Event, Intake, IntakeError, Row
from environments import scratch
from harness.history import parquet
from harness.history import store as stores
from harness.history.importers.edn import EdnError, forms
from harness.history.importers.jepsen import Jepsen
from harness.history.importers.lines import LineError, json_lines, table, texts
from harness.history.spec import GUARANTEES, build
from harness.interface import IMPORTED, BroughtHistory, InfrastructureError, UsageError, program
from harness.interface.errors import choose, near

FORMATS: Final = ("jepsen-edn", "jsonl", "csv")
_SUFFIXES: Final[Mapping[str, str]] = {
    ".edn": "jepsen-edn", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv",
}  # fmt: skip
_GZIP: Final = ".gz"
_MAGIC: Final[Mapping[bytes, str]] = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16",
}  # fmt: skip
"""The first bytes of files that are not UTF-8 text, and what such files are."""
_BATCH_ROWS: Final = 20_000
_BYTES_A_ROW: Final = 80
"""Bytes of a row in a file of another harness; only the order of magnitude matters."""
_BYTES_PACKED: Final = 10
"""Bytes of a history that gzip compresses to one; only the order of magnitude matters."""
UNDRAINED: Final = (
    "the history does not say that every queue was emptied at the end, so lost messages "
    "cannot be recognised: give --drained, or record the event"
)


@dataclass(frozen=True, slots=True)
class Imported:
    """The store of an imported history, and what the history has."""

    store: Path
    rows: int
    drained: bool


def import_file(
    file: Path,
    kind: str | None,
    root: Path,
    *,
    name: str | None = None,
    guarantee: str | None = None,
    ordered: bool | None = None,
    drained: bool = False,
    fifo: bool = False,
    ack_wait_s: float | None = None,
) -> Imported:
    """Read a history into a new store below ``root``; leave nothing there if it cannot be read.

    Args:
        file: the file to read.
        kind: one of ``FORMATS``; None: as the file's name says.
        root: the directory of all results.
        name: the name of the test; None: that of the file.
        guarantee: what the brokers promised.
        ordered: whether they promised order.
        drained: everything was received in the end.
        fifo: they promised that a queue is in order as a whole, without groups.
        ack_wait_s: the seconds without an acknowledgement after which they take a message back.

    Raises UsageError, in one line that names file, line and cause; InfrastructureError if there is
    no space.
    """
    kind = choose("format", kind, FORMATS) if kind is not None else _kind_of(file)
    if guarantee is not None and guarantee not in GUARANTEES:
        raise UsageError(f'unknown guarantee "{guarantee}": {near(guarantee, GUARANTEES)}')
    if ack_wait_s is not None and not 0 < ack_wait_s < math.inf:
        raise UsageError(f"--ack-wait is {ack_wait_s:g}: it must be a number of seconds above 0")
    spec = build(
        {
            "name": name or _name_of(file), "system": IMPORTED, "policy": IMPORTED,
            "workload": IMPORTED, "environment": IMPORTED, "guarantee": guarantee, "ordered": ordered,
        }
    )  # fmt: skip
    reading = _Reading(file, kind, drained=drained)
    begun = datetime.now().astimezone()
    made = not root.exists()
    is_stored = False
    try:
        with contextlib.ExitStack() as ending:
            try:
                root.mkdir(parents=True, exist_ok=True)
                unfinished = ending.enter_context(scratch.directory_in(root, "importing"))
            except OSError as error:
                raise InfrastructureError(
                    f"cannot make a directory for the results in {root}: {error}"
                ) from error
            parquet.write(
                unfinished, reading.batches(), reading.files, columns=lambda: reading.intake.columns
            )
            store = stores.create(root, spec.name, begun)
            (unfinished / parquet.DIRECTORY).rename(store / parquet.DIRECTORY)
            is_stored = True
            description = BroughtHistory(
                file=_printable(file.resolve()),
                format=kind,
                drained=reading.intake.drained,
                fifo=fifo,
                ack_wait_s=ack_wait_s,
                not_judged=reading.not_judged,
            )
            stores.save(store, stores.SPEC, build({"imported": description, "name": spec.name}, spec))
            command = [
                "import",
                _printable(file.resolve()),
                "--format",
                kind,
                *(["--drained"] * drained),
            ]
            command += ["--fifo"] * fifo
            command += [] if ack_wait_s is None else ["--ack-wait", f"{ack_wait_s:g}"]
            started = begun.isoformat(timespec="milliseconds")
            record = stores.RunRecord(
                state="ended", environment=IMPORTED, started=started, again=program.command(*command)
            )
            stores.save(store, stores.RUN, record)
    except OSError as error:
        raise InfrastructureError(f"cannot write {root}: {error}") from error
    finally:
        if made and not is_stored:
            with contextlib.suppress(OSError):
                root.rmdir()
    return Imported(store, reading.intake.rows, reading.intake.drained)


def _kind_of(file: Path) -> str:
    kind = _SUFFIXES.get(_without_gzip(file).suffix.lower())
    if kind is None:
        raise UsageError(
            f"{_printable(file)}: the file's name does not show its format: give --format "
            f"{', '.join(FORMATS)}"
        )
    return kind


def _without_gzip(file: Path) -> Path:
    return file.with_suffix("") if file.suffix.lower() == _GZIP else file


def _name_of(file: Path) -> str:
    """Return the name of a test made from its file's name: one line of text in any case."""
    name = _printable(_without_gzip(file).stem)
    return "".join(letter if letter.isprintable() else "-" for letter in name) or "import"


def _printable(file: Path | str) -> str:
    """Return a path as text, although the bytes of its name may not be UTF-8."""
    return str(file).encode(errors="surrogateescape").decode(errors="backslashreplace")


class _Reading:
    """The reading of one file, from its lines to batches of rows."""

    def __init__(self, file: Path, kind: str, *, drained: bool) -> None:
        self.intake = Intake()
        self._file, self._kind, self._drained = file, kind, drained
        self._jepsen = Jepsen()
        self._called = _printable(file)
        try:
            self._bytes = file.stat().st_size
            with file.open("rb") as opened:
                start = opened.read(8)
        except OSError as error:
            raise UsageError(f"{self._called} cannot be read: {error.strerror or error}") from None
        format_name = next(
            (format_name for magic, format_name in _MAGIC.items() if start.startswith(magic)), None
        )
        self._gzip = format_name == "gzip"
        if format_name is not None and not self._gzip:
            remedy = (
                "write it in UTF-8" if format_name == "UTF-16" else "unpack it first, or pack it with gzip"
            )
            raise UsageError(f"{self._called} is {format_name}: {remedy}")

    @property
    def files(self) -> int:
        """The number of part files that the history gets."""
        packed = _BYTES_PACKED if self._gzip else 1
        return parquet.files_for(16 * (packed * self._bytes // _BYTES_A_ROW))

    @property
    def not_judged(self) -> dict[str, str]:
        """The rules of which the history says too little, each with the reason."""
        return {**self.intake.not_judged, **self._jepsen.not_judged}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in batches. Raises UsageError."""
        rows: list[Row] = []
        for row in self._rows():
            rows.append(row)
            if len(rows) == _BATCH_ROWS:
                yield batch(rows)
                rows = []
        if rows:
            yield batch(rows)
        if not self.intake.rows:
            raise UsageError(f"{self._called} is empty: it must have an event a line")

    def _rows(self) -> Iterator[Row]:
        line: int | None = None
        try:
            with self._open() as file:
                for line, event in self._events(file):  # noqa: B007 - the line of an event that is refused
                    yield from self.intake.take(event)
            self._jepsen.end()
            is_complete = "lost" not in self._jepsen.not_judged
            yield from self.intake.end(drained=(self._drained or self._jepsen.drained) and is_complete)
        except (EdnError, LineError) as error:
            raise UsageError(f"{self._called}: line {error.line}: {_in_a_line(error)}") from None
        except IntakeError as error:
            raise UsageError(f"{self._called}: line {line}: {_in_a_line(error)}") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            after = "" if line is None else f" after line {line}"
            raise UsageError(
                f"{self._called} cannot be unpacked{after} ({_in_a_line(error)}): pack it with gzip again"
            ) from None
        except OSError as error:
            raise UsageError(f"{self._called} cannot be read: {error.strerror or error}") from None

    def _open(self) -> BinaryIO:
        return cast("BinaryIO", gzip.open(self._file)) if self._gzip else self._file.open("rb")

    def _events(self, file: BinaryIO) -> Iterator[tuple[int, Event]]:
        if self._kind != "jepsen-edn":
            yield from (json_lines if self._kind == "jsonl" else table)(file)
            return
        for line, form in forms(texts(file)):
            try:
                for event in self._jepsen.events(form):
                    yield line, event
            except IntakeError as error:
                raise LineError(line, str(error)) from None


def _in_a_line(error: Exception) -> str:
    """Return an error as one line for any terminal: half of a surrogate pair as an escape."""
    return " ".join(str(error).split()).encode(errors="backslashreplace").decode()
