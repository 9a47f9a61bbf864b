"""A source of many small histories that are judged at once: files with one whole run each.

A column ``run`` tells the runs apart. Why: if each of a thousand simulated runs had a Spark job and
a plan of its own, each would take a second; as one data set they are one job. A run lies whole in
its file, so tasks exchange nothing: a task takes as many files as make a part worth its start, and
the rules, which know of runs, judge all of them.

A file that cannot be read, or whose rows are not a history, is reported by its name and does not
affect the others. Files carry checksums of their pages; the first job reads every byte of them, so
that later jobs read what was written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from checkers import findings
from checkers.arrow_schema import OLDER, SCHEMA, completed
from checkers.availability import Outage
from checkers.breakage import by_subject, of_schema, of_tables
from checkers.decide import Decision, decide
from checkers.excuses import Window
from checkers.facts import Facts
from checkers.inspection import Confined
from checkers.instance import Found
from checkers.judge import CheckRun, Examination, examine
from checkers.source import opened, with_messages
from checkers.spark_source import FileSource, on_tasks
from checkers.starved import NAME, Hunger
from checkers.verdict import CheckOptions

RUN: Final = "run"
RUNS_SCHEMA: Final = pa.schema([pa.field(RUN, pa.int32(), nullable=False), *SCHEMA])
"""The columns of a run's file."""

PART_ROWS: Final = 100_000
"""The number of rows in files that are judged as one part.

They are enough to be worth a task, and few enough that a rule may pass over all of them for each
run.
"""

_COMPRESSION: Final = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True)
class RunFile:
    """The file of one run."""

    run: int
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class RunsPart:
    """The whole runs that one task judges."""

    number: int
    files: tuple[RunFile, ...]

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield one table with the rows of all runs of the part that carry messages."""
        names = list(dict.fromkeys([*columns, RUN, "f", "queue"]))
        tables = [_read(file.path, names) for file in self.files]
        yield pa.concat_tables(
            [table.filter(with_messages(table)) for table in tables], promote_options="default"
        )


def _read(path: str, columns: list[str] | None = None) -> pa.Table:
    return opened(path, verified=True).read(columns, use_threads=False)


@dataclass(frozen=True, slots=True)
class _Opening:
    """The contents of a part's files without the rows that carry messages.

    ``control`` has the control rows as an Arrow stream, ``last_ns`` the time of the last row of
    each run. ``damaged`` says why a run's file is not a history, ``confined`` which control rows
    are wrong.
    """

    control: bytes
    last_ns: Mapping[int, int]
    damaged: Mapping[int, str]
    confined: Mapping[int, Sequence[Confined]]


def _open(part: RunsPart) -> _Opening:
    tables, last_ns, damaged = [RUNS_SCHEMA.empty_table()], {}, {}
    confined: dict[int, list[Confined]] = {}
    for file in part.files:
        try:
            table = _read(file.path)
        except (OSError, pa.ArrowException) as error:
            damaged[file.run] = f"{file.path} cannot be read: {str(error).splitlines()[0]}"
            continue
        problem = _problem(table, file)
        if problem:
            damaged[file.run] = f"{file.path} is not the history of run {file.run}: {problem}"
            continue
        messages = with_messages(table)
        control_rows = table.filter(pc.invert(messages))
        broken, bad = of_tables(table.filter(messages).drop_columns(RUN), control_rows.drop_columns(RUN))
        if broken is not None:
            damaged[file.run] = f"{file.path}: {broken}"
            continue
        confined[file.run] = [
            Confined(breakage.subject, f"{file.path}: {breakage}") for breakage in by_subject(bad)
        ]
        last_ns[file.run] = pc.max(table["time"]).as_py() or 0
        tables.append(completed(control_rows, RUNS_SCHEMA).cast(RUNS_SCHEMA).replace_schema_metadata(None))
    control = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, control.schema, options=_COMPRESSION) as writer:
        writer.write_table(control)
    return _Opening(sink.getvalue().to_pybytes(), last_ns, damaged, confined)


def _problem(table: pa.Table, file: RunFile) -> str:
    problem = of_schema(table.schema, (RUN, *OLDER.names))
    if problem:
        return problem
    strangers = set(pc.unique(table[RUN]).to_pylist()) - {file.run}
    if strangers:
        return f"it has rows of run {min(strangers)}"
    return ""


class RunsSource(FileSource):
    """A source of runs, each in a file of its own.

    ``damaged`` says, for each run whose file is not a history, what is wrong with it; such a file
    is not read again.
    """

    def __init__(self, spark: SparkSession, files: Sequence[RunFile]) -> None:
        openings = on_tasks(spark, list(_parts(files)), _open).values()
        self.damaged: dict[int, str] = {}
        self.confined: dict[int, Sequence[Confined]] = {}
        last_ns: dict[int, int] = {}
        for opening in openings:
            last_ns |= opening.last_ns
            self.damaged |= opening.damaged
            self.confined |= opening.confined
        readable = [file for file in files if file.run not in self.damaged]
        tables = [pa.ipc.open_stream(opening.control).read_all() for opening in openings]
        control = pa.concat_tables(tables or [RUNS_SCHEMA.empty_table()])
        super().__init__(
            spark, tuple(_parts(readable)), control, last_ns, sum(file.rows for file in readable)
        )


def _parts(files: Sequence[RunFile]) -> Iterator[RunsPart]:
    group: list[RunFile] = []
    number = rows = 0
    for file in files:
        if group and rows + file.rows > PART_ROWS:
            yield RunsPart(number, tuple(group))
            group, rows, number = [], 0, number + 1
        group.append(file)
        rows += file.rows
    if group:
        yield RunsPart(number, tuple(group))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """The verdict on one run among many.

    ``found`` has the findings by name of the anomaly, ``decision`` what they mean; ``bit`` says
    whether a fault was seen to take effect.
    """

    found: Mapping[str, Found]
    decision: Decision
    bit: bool


def judge_runs(
    source: RunsSource,
    options: CheckOptions,
    expecting_faults: Collection[int] = (),
    troubles: Mapping[int, str | None] = {},
) -> dict[int, RunVerdict]:
    """Judge all readable runs of a source; return their verdicts by number.

    ``options`` are what all runs promised; ``expecting_faults`` are the runs whose schedule had
    faults, ``troubles`` says why the machine spoiled some. No rule raises: a rule that failed makes
    each run unknown in which nothing else was found.
    """
    check_run = CheckRun(source, options, confined=source.confined)
    case = examine(check_run) or Examination({}, {}, {}, [])
    expecting = frozenset(expecting_faults)
    pauses: dict[int, list[Outage]] = defaultdict(list)
    hungers: dict[int, list[Hunger]] = defaultdict(list)
    for pause in case.pauses:
        pauses[pause.run].append(pause)
    for hunger in case.hungers:
        hungers[hunger.run].append(hunger)
    judged = {}
    for run in sorted(source.last_ns):
        run_facts = case.facts_by_run.get(run, Facts())
        promised = msgspec.structs.replace(options, expect_faults=run in expecting, trouble=troubles.get(run))
        instances = findings.select_findings(case.found.get(run, {}), options)
        windows: dict[str, Sequence[Window]] = {"unavailable": pauses[run], NAME: hungers[run]}
        confined = source.confined.get(run, ())
        unknown = [*check_run.unknown, *map(str, confined)]
        decision = decide(instances, run_facts, promised, windows=windows, unknown=unknown)
        if confined and decision.valid is not False:
            source.damaged[run] = confined[0].line
            continue
        judged[run] = RunVerdict(
            found={name: instances[name] for name in decision.severities},
            decision=decision,
            bit=any(span.bit for span in run_facts.spans()),
        )
    return judged
