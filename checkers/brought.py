"""``check``, the function with which a program judges a history of its own.

    from checkers import check

    verdict = check(events, drained=True)
    assert verdict.valid, verdict.reasons

Why apart from ``checkers.api``: that judges files of our own tests, whose brokers' promises are
known. This takes events of any harness (``checkers.intake``), a table, or files of which nothing
else is known.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers import api
from checkers.arrow_schema import OLDER, SCHEMA, batch, completed
from checkers.breakage import of_schema
from checkers.intake import Event, Intake, IntakeError, Row
from checkers.judge import judge
from checkers.schema import ALWAYS, DECLARED
from checkers.source import SLICE_ROWS, HereSource, HistoryError, TablePart, with_messages
from checkers.verdict import CAUTIOUS, GUARANTEES, CheckOptions, Verdict

Engine = Literal["auto", "here", "spark"]
ENGINES: Final = ("auto", "here", "spark")

_BATCH_ROWS: Final = 20_000


class Checked(Verdict, frozen=True, kw_only=True):
    """A verdict, and the engine that judged: "here" (in this process) or "spark"."""

    engine: str


def check(
    history: Iterable[Event] | pa.Table | str | Path | Sequence[Path],
    *,
    guarantee: str = "at-least-once",
    ordered: bool = True,
    drained: bool = False,
    ack_wait_s: float | None = None,
    engine: Engine = "auto",
    options: CheckOptions | None = None,
) -> Checked:
    """Judge one history.

    Args:
        history: events as ``checkers.intake`` takes them, in order of time; or a table with columns
            of ``checkers.schema`` (what needs columns that it lacks is not judged); or the
            directory of a run, or Parquet files.
        guarantee: "at-most-once", "at-least-once" or "exactly-once".
        ordered: whether order within a group is promised.
        drained: for events only: everything was received in the end, so a missing message is lost.
        ack_wait_s: the seconds without an acknowledgement after which a broker takes a message
            back (``Promises.ack_wait_s``); None: as ``options`` say.
        engine: "here" or "spark"; "auto": "here" up to ``checkers.api.HERE_ROWS`` rows.
        options: what else is promised, and how patient the judge is. Without options, brokers
            promise only what every broker does (``CAUTIOUS``). ``guarantee`` and ``ordered`` are
            not taken from here.

    Raises HistoryError for an input that is not a history, ValueError for a wrong argument.
    """
    if engine not in ENGINES:
        raise ValueError(f'engine is "{engine}"; it must be one of {", ".join(ENGINES)}')
    if guarantee not in GUARANTEES:
        raise ValueError(f'guarantee is "{guarantee}"; it must be one of {", ".join(GUARANTEES)}')
    if ack_wait_s is not None and not 0 < ack_wait_s < math.inf:
        raise ValueError(f"ack_wait_s is {ack_wait_s}; it must be a number of seconds above 0")
    promised = options or CheckOptions(broker=CAUTIOUS)
    if ack_wait_s is not None:
        broker = msgspec.structs.replace(promised.broker, ack_wait_s=ack_wait_s)
        promised = msgspec.structs.replace(promised, broker=broker)
    promised = msgspec.structs.replace(promised, guarantee=guarantee, ordered=ordered)
    if isinstance(history, str | Path):
        return _of_files(_existing([Path(history)]), promised, engine)
    if isinstance(history, Sequence) and history and all(isinstance(path, Path) for path in history):
        return _of_files(_existing([Path(str(path)) for path in history]), promised, engine)
    if isinstance(history, pa.Table):
        return _of_table(history, promised, engine)
    intake = Intake()
    events = cast("Iterable[Event]", history)
    table = pa.Table.from_batches(_batches(intake, events, drained=drained), SCHEMA)
    left_out = {**intake.not_judged, **promised.not_judged}
    promised = msgspec.structs.replace(promised, not_judged=left_out)
    return _of_table(table.select(intake.columns), promised, engine)


def _existing(paths: list[Path]) -> list[Path]:
    for path in paths:
        if path.is_file() and path.suffix != ".parquet":
            raise HistoryError(
                f'{path} is no Parquet file: "jepsen-run import" reads what other harnesses write'
            )
    return paths


def _of_files(paths: list[Path], options: CheckOptions, engine: Engine) -> Checked:
    rows = api.rows_of(paths)
    where = _where(rows, engine)
    return _checked(api.check(paths, options, api.start() if where == "spark" else None), where)


def _of_table(table: pa.Table, options: CheckOptions, engine: Engine) -> Checked:
    wrong = of_schema(table.schema, ALWAYS)
    if wrong:
        raise HistoryError(f"the table is not a history: {wrong}")
    strange = sorted(set(table.column_names) - set(SCHEMA.names))
    if strange:
        raise HistoryError(f'the table is not a history: unknown column "{strange[0]}"')
    where = _where(len(table), engine)
    if where == "here":
        return _checked(judge(_source(table), options), where)
    table = table.replace_schema_metadata({DECLARED: ",".join(table.column_names)})
    messages = with_messages(table)
    parts = {"part-00000": table.filter(messages), "control": table.filter(pc.invert(messages))}
    if len(table) > SLICE_ROWS:  # more than one task should read
        parts = {"history": table}
    with tempfile.TemporaryDirectory(prefix="jepsen-run-") as directory:
        for name, rows in parts.items():
            pq.write_table(rows, Path(directory) / f"{name}.parquet")
        return _checked(api.check(Path(directory), options, api.start()), where)


def _source(table: pa.Table) -> HereSource:
    complete = completed(table)
    messages = with_messages(complete)
    last = pc.max(complete["time"]).as_py() or 0
    source = HereSource(
        [TablePart(0, complete.filter(messages))], complete.filter(pc.invert(messages)), last, len(complete)
    )
    source.undeclared = frozenset((*OLDER.names, "headers")) - set(table.column_names)
    return source


def _where(rows: int, engine: Engine) -> str:
    return ("spark" if rows > api.HERE_ROWS else "here") if engine == "auto" else engine


def _checked(verdict: Verdict, engine: str) -> Checked:
    values: Mapping[str, Any] = {name: getattr(verdict, name) for name in verdict.__struct_fields__}
    return Checked(**values, engine=engine)


def _batches(intake: Intake, events: Iterable[Event], *, drained: bool) -> Iterator[pa.RecordBatch]:
    rows: list[Row] = []
    number = 0
    try:
        for number, event in enumerate(events, 1):  # noqa: B007 - told of where an event is refused
            if not isinstance(event, Mapping):
                raise IntakeError(f"it is {type(event).__name__}: it must be a mapping from field to value")  # noqa: TRY301
            rows += intake.take(event)
            if len(rows) >= _BATCH_ROWS:
                yield batch(rows)
                rows = []
    except IntakeError as error:
        raise HistoryError(f"event {number}: {error}") from None
    rows += intake.end(drained=drained)
    if rows:
        yield batch(rows)
