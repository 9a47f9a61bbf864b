"""The validation of a history before it is judged: the first place where its form is broken.

Why before any rule: a row that is missing, doubled or out of order looks like a broker's fault. An
empty column looks like a broker without any fault. So a history whose form is broken is no finding:
one line names file, row and cause, and there is no verdict.

How it costs little: each part is validated when its columns lie in memory anyway, in passes over
numbers without a sort (``of_part``). The form of the history as a whole follows from a few numbers
of each part (``Look``). That ``index`` is dense follows from its first three power sums: other
numbers, as many and in the same range, agree in them only by an accident that no damage brings
about. That ``time`` never goes back is checked between rows of one part, and between the knots of
all parts. In a history of fewer than ``KNOTS`` rows each row is a knot, else one in so many. So a
step back between two files of a larger history is found if it is longer than what lies between two
knots.

A control row of the monitor, the nemesis or the harness that says nothing sensible is *confined*:
the rules that read such rows (``subject``) are not judged, and what the other rows prove stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.arrow_schema import SCHEMA, completed
from checkers.rows import (
    FOREVER,
    NONE,
    Flags,
    Numbers,
    PlaceTable,
    Rows,
    Texts,
    from_table,
    marked,
    numbers_of,
    texts_of,
)
from checkers.schema import (
    HARNESS,
    MONITOR,
    NEMESIS,
    OF_QUEUES,
    OF_SESSIONS,
    OF_TRANSACTIONS,
    TEMPORARY,
    TOPIC,
    TYPES,
    json_object,
)
from checkers.subscriptions import of_topics
from checkers.temporaries import of_temporaries

KNOTS: Final = 1 << 18
"""The number of rows, of all parts together, whose time is compared with that of other parts."""

Subject = Literal["", "roles", "faults", "phases", "stores", "views"]
"""The kind of rows that a confined breakage concerns; "" concerns everything."""

TWICE: Final = "there are two rows of this index"

_PAIRED: Final = ("send", "ack", "nack")
_IN_CONTROL: Final = {
    "connect": None,
    **dict.fromkeys(OF_SESSIONS, "session"),
    **dict.fromkeys(OF_TRANSACTIONS, "transaction"),
    "drop": "subscription",
    **dict.fromkeys(OF_QUEUES, "queue"),
}
"""The paired operations of clients that carry no message.

Each has the column that distinguishes two operations of one process.
"""

_ONLY_INFO: Final = ("disconnect", "receive", "state")
"""What clients record without a message and without an invocation."""

_NONE: Final[frozenset[str]] = frozenset()

_DELIVERED, _KEPT, _TAKEN_BACK = range(2 * len(_PAIRED) + 1, 2 * len(_PAIRED) + 4)
"""The kinds of rows that have no invocation, as numbers (``_codes``).

The other numbers: 2 n + 1 is an invocation of the n-th paired operation, and 2 n + 2 its
completion. 0 is a row that does not belong into a part.
"""
_ALONE: Final = {("deliver", "ok"): _DELIVERED, ("browse", "ok"): _KEPT, ("timeout", "info"): _TAKEN_BACK}
"""The kinds of rows of a part that have no invocation."""


@dataclass(frozen=True, slots=True)
class Breakage:
    """A row (None: no row in particular) that breaks the form of a history, and the cause.

    ``subject`` names what cannot be judged because of it.

    ``follows``: missing or doubled rows may have caused it, so these are looked for, and reported,
    first.
    """

    index: int | None
    cause: str
    subject: Subject = ""
    follows: bool = False

    def __str__(self) -> str:
        """Return the row and the cause."""
        return self.cause if self.index is None else f"row {self.index}: {self.cause}"


@dataclass(frozen=True, slots=True)
class Look:
    """A summary of one part, or of a slice of it, for the validation of the whole history.

    ``sums`` are the power sums of its indexes modulo 2^64, ``low`` and ``high`` the first and the
    last index. ``knots`` are the index and the time of some rows. ``keys`` are hashes of what must
    lie in one part: queue and group, or queue and producer for messages without a group. ``broken``
    is the first breakage within it.
    """

    rows: int = 0
    sums: tuple[int, int, int] = (0, 0, 0)
    low: int = FOREVER
    high: int = -1
    knots: tuple[Numbers, Numbers] = field(
        default_factory=lambda: (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    )
    keys: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    broken: Breakage | None = None


def step_of(rows: int) -> int:
    """Return the step between knots: one in so many rows is a knot."""
    return max(1, -(-rows // KNOTS))


# -------------------------------------------------------------------------------------------- parts


def of_part(
    rows: Rows,
    places: PlaceTable,
    step: int,
    *,
    keys: bool,
    lacking: frozenset[str] = _NONE,
    nameless: Breakage | None = None,
) -> Look:
    """Validate the rows of a part that carry messages.

    ``keys``: the part has to hold whole groups. ``lacking`` are the columns that the history does
    not have. ``nameless`` is the breakage that ``of_consumers`` found.
    """
    broken = _first([*_of_messages(rows, places, lacking), nameless])
    is_hashed = keys and (broken is None or broken.follows)
    hashes = np.fromiter(_keys(rows, places), dtype=np.uint64) if is_hashed else None
    return _look(rows.index, rows.time, step, broken, hashes)


def of_consumers(table: pa.Table) -> Breakage | None:
    """Return the first row of a topic's consumer that does not name its subscription, if any."""
    table = table.unify_dictionaries().combine_chunks()
    f, index = texts_of(table, "f"), numbers_of(table, "index")
    wrong = f.are("deliver", "ack", "nack") & of_topics(texts_of(table, "queue"))
    at = np.flatnonzero(wrong & (texts_of(table, "subscription").codes < 0))
    return _null(index, f, int(at[np.argmin(index[at])]), "subscription") if len(at) else None


def _look(
    index: Numbers,
    time: Numbers,
    step: int,
    broken: Breakage | None,
    keys: npt.NDArray[np.uint64] | None = None,
) -> Look:
    if not len(index) or (broken is not None and not broken.follows):
        return Look(rows=len(index), broken=broken)
    plain = index.view(np.uint64)
    square = plain * plain
    sums = (int(plain.sum()), int(square.sum()), int(np.dot(square, plain)))
    knots = (index[::step].copy(), time[::step].copy())
    nothing = np.zeros(0, dtype=np.uint64)
    return Look(
        len(index), sums, int(index[0]), int(index[-1]), knots, nothing if keys is None else keys, broken
    )


def _first(breakages: Iterable[Breakage | None]) -> Breakage | None:
    """Return the first breakage that follows from no other, else the first one."""
    follows = None
    for breakage in breakages:
        if breakage is not None and not breakage.follows:
            return breakage
        follows = follows or breakage
    return follows


def _of_messages(rows: Rows, places: PlaceTable, lacking: frozenset[str]) -> Iterator[Breakage | None]:
    yield _of_order(rows.index, rows.time)
    yield from _of_words(rows.index, rows.f, rows.type)
    codes = _codes(rows.f, rows.type)
    nothing = codes == 0
    yield _at(
        rows, nothing, lambda n: f"{_word(rows.f, n)} {_word(rows.type, n)} is no operation with a message"
    )
    is_browse = codes == _KEPT
    strange = is_browse != (rows.process < 0)
    strange |= is_browse & (rows.process != HARNESS)
    yield _at(
        rows,
        strange,
        lambda n: f"{_word(rows.f, n)} is of process {_number(rows.process[n])}: {_whose(is_browse[n])}",
    )
    nowhere = np.array([queue is None for _, queue, _ in places.named], dtype=bool)
    if nowhere.any():  # the recorder never lays such rows here; others may
        for n in np.flatnonzero(nowhere[rows.place])[:1].tolist():
            yield _null(rows.index, rows.f, n, "queue")
    if "session" not in lacking and not rows.session.complete:
        at = np.flatnonzero((codes > 2) & (codes != _KEPT))
        missing = at[rows.session[at] == NONE]
        if len(missing):
            yield _null(rows.index, rows.f, int(missing[0]), "session")
    for name, among in (("send", (codes > 0) & (codes <= 2)), ("timeout", codes == _TAKEN_BACK)):
        yield _at(rows, among & (rows.message == NONE), partial("message is null in a {0}".format, name))
    if "producer" not in lacking and not rows.producer.complete:
        at = np.flatnonzero((codes > 0) & (codes <= 2))
        counted = at[(rows.producer[at] == NONE) & (rows.sequence[at] != NONE)]
        for n in counted[:1].tolist():
            yield Breakage(
                int(rows.index[n]), "sequence counts the sends of a producer, and producer is null"
            )
    for n in range(len(_PAIRED)):
        yield _pairs(rows, np.flatnonzero(codes == 2 * n + 1), np.flatnonzero(codes == 2 * n + 2))


def _whose(is_browse: bool) -> str:
    return f"that is the harness' ({HARNESS})" if is_browse else "clients are 0 and above"


def _of_order(index: Numbers, time: Numbers) -> Breakage | None:
    """Return the first breakage of index or time, of rows that are sorted by index."""
    if not len(index):
        return None
    if index[0] < 0:
        at = int(index[0])
        return Breakage(None, "a row has no index") if at == NONE else Breakage(at, "index is negative")
    if index[-1] >= FOREVER:
        return Breakage(int(index[-1]), f"index is beyond {FOREVER - 1:,}, the last that can be judged")
    same = np.flatnonzero(index[1:] == index[:-1])
    if len(same):
        return Breakage(int(index[same[0]]), TWICE)
    if np.any(time == NONE):
        return Breakage(int(index[np.flatnonzero(time == NONE)[0]]), "time is null")
    back = np.flatnonzero(time[1:] < time[:-1])
    return _back(index, time, int(back[0])) if len(back) else None


def _back(index: Numbers, time: Numbers, n: int) -> Breakage:
    return Breakage(
        int(index[n + 1]),
        f"time goes back to {int(time[n + 1])} ns from {int(time[n])} ns at row {int(index[n])}",
        follows=True,
    )


def _of_words(index: Numbers, f: Texts, type_: Texts) -> Iterator[Breakage | None]:
    for name, texts in (("type", type_), ("f", f)):
        null = np.flatnonzero(texts.codes < 0)
        if len(null):
            yield Breakage(int(index[null[0]]), f"{name} is null")
    strange = [code for code, word in enumerate(type_.values) if word not in TYPES]
    if strange:
        at = np.flatnonzero(np.isin(type_.codes, strange))
        if len(at):
            yield Breakage(
                int(index[at[0]]),
                f'type is "{_word(type_, at[0])}": it must be {", ".join(TYPES[:-1])} or {TYPES[-1]}',
            )


def _codes(f: Texts, type_: Texts) -> npt.NDArray[np.int8]:
    table = np.zeros((len(f.values) + 1, len(type_.values) + 1), dtype=np.int8)
    for i, operation in enumerate(f.values):
        for j, outcome in enumerate(type_.values):
            if operation in _PAIRED:
                table[i, j] = 2 * _PAIRED.index(operation) + (1 if outcome == "invoke" else 2)
            else:
                table[i, j] = _ALONE.get((operation, outcome), 0)
    numbers: npt.NDArray[np.int8] = table.ravel().take(f.codes * np.int32(table.shape[1]) + type_.codes)
    return numbers


def _at(rows: Rows, wrong: Flags, words: Callable[[int], str]) -> Breakage | None:
    if not wrong.any():
        return None
    n = int(np.argmax(wrong))
    return Breakage(int(rows.index[n]), words(n))


def _null(index: Numbers, f: Texts, n: int, name: str) -> Breakage:
    word = _word(f, n)
    return Breakage(int(index[n]), f"{name} is null in {'an' if word[0] in 'aeiou' else 'a'} {word}")


def _word(texts: Texts, n: int) -> str:
    code = int(texts.codes[n])
    return "null" if code < 0 else str(texts.values[code])


def _number(value: int) -> str:
    return "null" if value == NONE else str(value)


def _pairs(rows: Rows, invokes: Numbers, done: Numbers) -> Breakage | None:
    """Check that each completion has one invocation of its own before it, by the same process.

    ``invokes`` and ``done`` are the positions of the invocations and of the completions.

    Almost every message is sent and acknowledged once: then two tables by message are enough. Only
    the rows of other messages are sorted.
    """
    if not len(invokes) and not len(done):
        return None
    ids, answered = rows.id[invokes], rows.id[done]
    question, answer = np.full((2, rows.messages), -1, dtype=np.int32)
    question[ids] = invokes
    answer[answered] = done
    invoke_of = question[answered]
    wrong = (invoke_of < 0) | (invoke_of > done)
    wrong |= rows.process[np.maximum(invoke_of, 0) if len(invokes) else done] != rows.process[done]
    twice = np.concatenate([ids[question[ids] != invokes], answered[answer[answered] != done]])
    wrong_rows = []
    if len(twice):
        many = np.zeros(rows.messages, dtype=bool)
        many[twice] = True
        wrong &= ~many[answered]
        at = np.sort(np.concatenate([invokes[many[ids]], done[many[answered]]]))
        invoke = np.isin(at, invokes)
        wrong_rows = at[
            _unpaired(rows.id[at], rows.process[at], invoke, once=rows.message[at] != NONE)
        ].tolist()
    wrong_rows += done[wrong].tolist()
    if not wrong_rows:
        return None
    n = min(wrong_rows)
    words = f"{_word(rows.f, n)} of message {_number(rows.message[n])}"
    process = int(rows.process[n])
    is_repeated = np.any((answered == rows.id[n]) & (rows.process[done] == process) & (done < n))
    cause = _unpaired_words(words, _word(rows.type, n), process, bool(is_repeated))
    return Breakage(int(rows.index[n]), cause, follows=True)


def _unpaired(key: npt.NDArray[Any], process: Numbers, invoke: Flags, *, once: Flags) -> Numbers:
    """Return the positions of the rows, of rows in order, that break the pairing.

    A completion breaks it if no open invocation asked for it. An invocation breaks it, where
    ``once`` is true, if the same operation is open already.
    """
    order = np.lexsort((np.arange(len(key)), process, key))
    key, process, invoke, once = key[order], process[order], invoke[order], once[order]
    new = np.ones(len(key), dtype=bool)
    new[1:] = (key[1:] != key[:-1]) | (process[1:] != process[:-1])
    running = np.cumsum(np.where(invoke, 1, -1))
    before = running - np.where(invoke, 1, -1)
    open_ = running - before[new][np.cumsum(new) - 1]
    return np.sort(order[(open_ < 0) | ((open_ > 1) & once)])


def _unpaired_words(operation: str, type_: str, process: int, is_repeated: bool) -> str:
    if type_ == "invoke":
        return (
            f"{operation} is invoked by process {process}, "
            "which has asked for it before and has no answer yet"
        )
    if is_repeated:
        return f"{type_} of {operation} by process {process} is a second completion"
    return f"{type_} of {operation} by process {process} completes what that process has not invoked"


def of_key(rows: Rows, places: PlaceTable, key: int) -> tuple[int, str] | None:
    """Return the index and a description of the first row with a key; None where none has it."""
    for n, place in enumerate(rows.place.tolist()):
        _, queue, group = places.named[place]
        producer = None if group is not None else max(0, int(rows.producer[np.array([n])][0]))
        if key_of(queue, group, producer) == key:
            words = (
                f'group "{group}"' if group is not None else f"what producer {producer} sent without a group"
            )
            return int(rows.index[n]), f'{words} of queue "{queue}"'
    return None


def _keys(rows: Rows, places: PlaceTable) -> Iterator[int]:
    """Yield the keys (``key_of``) of these rows: all rows of one key must lie in one part.

    Messages without a group have a key for each producer. Messages without a producer count as
    those of producer 0, as in the recorder's layout.
    """
    # Every row belongs to a message, if only to the one that stands for all unreadable bodies.
    of_messages = rows.place[rows.first_row]
    is_used, grouped = marked(of_messages, len(places.named)), places.grouped()
    for place in np.flatnonzero(is_used & grouped).tolist():
        _, queue, group = places.named[place]
        yield key_of(queue, group, None)
    if np.any(is_used & ~grouped):
        ungrouped = np.flatnonzero(~grouped[rows.place])
        producer = rows.producer[ungrouped]
        place_and_producer = (rows.place[ungrouped].astype(np.int64) << 32) + (
            np.where(producer == NONE, 0, producer) & 0xFFFFFFFF
        )
        for pair in pc.unique(pa.array(place_and_producer)).to_pylist():
            yield key_of(places.named[pair >> 32][1], None, pair & 0xFFFFFFFF)


def key_of(queue: str | None, group: str | None, producer: int | None) -> int:
    """Return the hash of a group, or of a producer's messages without one, for ``Look.keys``."""
    return int.from_bytes(blake2b(repr((queue, group, producer)).encode(), digest_size=8).digest(), "little")


# ------------------------------------------------------------------------------------------ control


def of_control(table: pa.Table, step: int, lacking: frozenset[str] = _NONE) -> tuple[Look, list[Breakage]]:
    """Validate the rows without messages; return the breakages that are confined apart."""
    if not len(table):
        return Look(), []
    table = completed(table).unify_dictionaries().combine_chunks()
    index = numbers_of(table, "index")
    if np.any(index[1:] < index[:-1]):
        table = table.take(pa.array(np.argsort(index, kind="stable")))
        index = numbers_of(table, "index")
    time = numbers_of(table, "time")
    broken = _first(_of_control(table, index, time, lacking))
    confined = [] if broken is not None else list(_of_observers(table, lacking))
    return _look(index, time, step, broken), confined


def _of_control(
    table: pa.Table, index: Numbers, time: Numbers, lacking: frozenset[str]
) -> Iterator[Breakage | None]:
    yield _of_order(index, time)
    f, type_, process = texts_of(table, "f"), texts_of(table, "type"), numbers_of(table, "process")
    yield from _of_words(index, f, type_)
    queue = texts_of(table, "queue").codes
    messages = f.are(*_PAIRED, "deliver", "timeout")
    for n in np.flatnonzero(messages | (f.are("browse") & (queue >= 0)))[:1].tolist():
        if queue[n] < 0:
            yield _null(index, f, n, "queue")
        else:
            yield Breakage(int(index[n]), f"{_word(f, n)} of a message lies among the rows that carry none")
    by_clients = f.are(*_IN_CONTROL, *_ONLY_INFO)
    for n in np.flatnonzero((process >= 0) & ~by_clients)[:1].tolist():
        yield Breakage(int(index[n]), f'f is "{_word(f, n)}": no client does that')
    for n in np.flatnonzero((process < HARNESS) | (by_clients & (process < 0)))[:1].tolist():
        yield Breakage(int(index[n]), f"{_word(f, n)} of process {_number(process[n])}, which is no client")
    for name, words in (
        ("session", ("subscribe", "unsubscribe", "disconnect")),
        ("transaction", ("begin", "commit", "abort")),
    ):
        null = f.are(*words) & (numbers_of(table, name) == NONE)
        for n in np.flatnonzero(null)[: name not in lacking].tolist():
            yield _null(index, f, n, name)
    subscription, topics = texts_of(table, "subscription").codes, of_topics(texts_of(table, "queue"))
    durable = f.are("drop") & ~topics & ~of_temporaries(texts_of(table, "queue"))
    for n in np.flatnonzero(durable)[:1].tolist():
        cause = f'a drop of what lasts: its queue begins neither with "{TOPIC}" nor with "{TEMPORARY}"'
        yield Breakage(int(index[n]), cause)
    null = f.are("drop", "subscribe", "unsubscribe") & topics & (subscription < 0)
    for n in np.flatnonzero(null)[: "subscription" not in lacking].tolist():
        yield _null(index, f, n, "subscription")
    for n in np.flatnonzero(f.are("receive", *OF_QUEUES) & (queue < 0))[:1].tolist():
        yield _null(index, f, n, "queue")
    is_no_queue = topics | of_temporaries(texts_of(table, "queue"))
    for n in np.flatnonzero(f.are(*OF_QUEUES) & is_no_queue)[:1].tolist():
        cause = f'a {_word(f, n)} of no queue: its name begins with "{TOPIC}" or "{TEMPORARY}"'
        yield Breakage(int(index[n]), cause)
    value = texts_of(table, "value").codes
    for n in np.flatnonzero(f.are("state") & (value < 0))[: "value" not in lacking].tolist():
        yield _null(index, f, n, "value")
    only_info = f.are(*_ONLY_INFO)
    for n in np.flatnonzero(only_info & (type_.codes != type_.code("info")))[:1].tolist():
        yield Breakage(int(index[n]), f"{_word(f, n)} is {_word(type_, n)}: it must be info")
    for operation, column in _IN_CONTROL.items():
        at = np.flatnonzero(f.are(operation) & (process >= 0))
        if not len(at) or column in lacking:
            continue
        number = np.zeros(len(at), dtype=np.int64) if column is None else _told_apart(table, column)[at]
        invoke = type_.codes[at] == type_.code("invoke")
        wrong = _unpaired(number, process[at], invoke, once=np.ones(len(at), dtype=bool))
        for n in wrong[:1].tolist():
            completions = (number == number[n]) & (process[at] == process[at[n]]) & ~invoke
            about = f" of {column} {table[column][int(at[n])].as_py()}" if column else ""
            completed = f"{operation}{about}"
            cause = _unpaired_words(
                completed, _word(type_, at[n]), int(process[at[n]]), bool(np.any(completions[:n]))
            )
            yield Breakage(int(index[at[n]]), cause, follows=True)


def _told_apart(table: pa.Table, column: str) -> Numbers:
    """Return a number for each row, different for rows whose column names different things.

    A subscription is named by its topic and its name.
    """
    if column == "queue":
        return texts_of(table, column).codes.astype(np.int64)
    if column != "subscription":
        return numbers_of(table, column)
    queue, name = texts_of(table, "queue").codes, texts_of(table, column).codes
    return (queue.astype(np.int64) << 32) + name


_OBSERVED: Final[Mapping[tuple[int, str], tuple[Subject, tuple[str, ...]]]] = {
    (MONITOR, "role"): ("roles", ("broker", "role", "time_low", "time_high")),
    (MONITOR, "takeover"): ("roles", ("broker", "node_id", "time_low", "time_high")),
    (MONITOR, "replication"): ("roles", ("broker", "value", "time_low", "time_high")),
    (MONITOR, "view-change"): ("views", ("broker", "value", "time_low", "time_high")),
    (HARNESS, "phase"): ("phases", ("value",)),
    (HARNESS, "restart"): ("phases", ()),
    (HARNESS, "browse"): ("stores", ()),
    (HARNESS, "view"): ("views", ("broker",)),
}
"""The operations that observers write, each with its subject and the columns it must not lack."""
_OF: Final[Mapping[int, Subject]] = {NEMESIS: "faults", MONITOR: "roles", HARNESS: "phases"}


def _of_observers(table: pa.Table, lacking: frozenset[str]) -> Iterator[Breakage]:
    """Yield a breakage for each row of monitor, nemesis and harness that says nothing sensible."""
    names = ["index", "process", "type", "f", "broker", "node_id", "role", "time_low", "time_high", "value"]
    rows = table.filter(pc.less(table["process"], 0)).select(names).to_pylist()
    faults: dict[tuple[str, str], str] = {}
    for row in rows:
        if row["process"] == NEMESIS:
            cause = "" if "value" in lacking else of_fault(row, faults)
            subject: Subject = "faults"
        else:
            subject, _ = _OBSERVED.get((row["process"], row["f"]), (_OF[row["process"]], None))
            cause = of_observer(row, lacking)
        if cause:
            yield Breakage(row["index"], cause, subject)


def of_observer(row: Mapping[str, Any], lacking: frozenset[str] = _NONE) -> str:
    """Return what is wrong with a row of the monitor or the harness; "" where nothing is."""
    f, type_ = row["f"], row["type"]
    _, needed = _OBSERVED.get((row["process"], f), ("", None))
    observer = "monitor" if row["process"] == MONITOR else "harness"
    if needed is None:
        return f'f is "{f}": the {observer} records nothing of that name'
    if type_ == "invoke" or (type_ != "info" and f not in ("browse", "view")):
        return f"{f} of the {observer} is {type_}: it has no invocation and must be info"
    if f == "view" and type_ == "ok":
        needed = (*needed, "value", "time_low", "time_high")
    if f == "browse" and type_ == "ok":
        needed = ("broker",)
    null = [name for name in needed if row[name] is None and name not in lacking]
    if null:
        return f"{null[0]} is null in a {f}"
    if (f == "view-change" or (f == "view" and type_ == "ok")) and "value" not in lacking:
        view = json_object(row["value"])
        if view is None:
            return f"value is not a JSON object: {row['value']!r:.60}"
        missing = [name for name in ("kind", "key") if not isinstance(view.get(name), str)]
        if missing:
            return f'value has no text "{missing[0]}": {row["value"]!r:.60}'
        if not isinstance(view.get("value"), str | None):
            return f'"value" is neither a text nor null: {row["value"]!r:.60}'
    return ""


def of_fault(row: Mapping[str, Any], latest_types: dict[tuple[str, str], str]) -> str:
    """Return what is wrong with a row of a fault; "" where nothing is.

    ``latest_types`` has the latest type of each label and operation, and gets that of this row.
    """
    fault = json_object(row["value"])
    if fault is None:
        return f"value is not a JSON object: {row['value']!r:.60}"
    label, f, type_ = fault.get("label"), row["f"], row["type"]
    if not isinstance(label, str):
        return f'value has no text "label": {row["value"]!r:.60}'
    before = latest_types.get((label, f))
    latest_types[label, f] = type_
    if type_ == "invoke":
        return "" if before is None else f"{f} of fault {label} is invoked again"
    if before is None:
        return f"{type_} of {f} of fault {label} completes what was not invoked"
    return "" if before == "invoke" else f"{type_} of {f} of fault {label} is a second completion"


# ---------------------------------------------------------------------------------------- the whole


def of_whole(
    looks: Sequence[Look], ask: Spans, spread: Callable[[], Breakage | None] = lambda: None
) -> Breakage | None:
    """Return what breaks the form of all parts together; None where nothing does.

    ``ask`` returns spans of the index from each part. ``spread`` finds what lies in several parts
    and must lie in one.
    """
    broken = [look.broken for look in looks if look.broken is not None]
    first = min(broken, key=lambda one: (one.follows, -1 if one.index is None else one.index), default=None)
    if first is not None and not first.follows:
        return first
    rows = sum(look.rows for look in looks)
    if not rows:
        return None
    index = np.concatenate([look.knots[0] for look in looks])
    time = np.concatenate([look.knots[1] for look in looks])
    order = np.argsort(index, kind="stable")
    back = np.flatnonzero(np.diff(time[order]) < 0)
    low, high = min(look.low for look in looks), max(look.high for look in looks)
    sums = tuple(sum(look.sums[n] for look in looks) % 2**64 for n in range(3))
    if (low, high) != (0, rows - 1) or sums != _power_sums(rows):
        return _hole(rows, ask)
    return spread() or first or (_back(index[order], time[order], int(back[0])) if len(back) else None)


def _power_sums(rows: int) -> tuple[int, int, int]:
    """Return the first three power sums of the numbers from 0 to rows - 1, modulo 2^64."""
    first = rows * (rows - 1) // 2
    return first % 2**64, (rows - 1) * rows * (2 * rows - 1) // 6 % 2**64, first * first % 2**64


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of a part in spans of the index that have equal widths.

    ``count`` has the number of rows in each span, ``total`` the sum of their indexes modulo 2^64.
    """

    count: Numbers
    total: npt.NDArray[np.uint64]


def spans(index: Numbers, low: int, width: int, count: int) -> Span:
    """Count and sum sorted indexes in ``count`` spans of ``width`` from ``low`` on."""
    edges = np.searchsorted(index, low + np.arange(count + 1, dtype=np.int64) * width)
    running = np.concatenate(
        [np.zeros(1, dtype=np.uint64), np.cumsum(index.view(np.uint64), dtype=np.uint64)]
    )
    return Span(np.diff(edges), np.diff(running[edges]))


Spans = Callable[[int, int, int], Sequence[Span]]
"""A function from the low end, the width and the number of spans to the ``Span`` of each part."""
_SPANS: Final = 4096


def _hole(rows: int, ask: Spans) -> Breakage:
    """Find the first index that is missing or doubled, by asking for ever smaller spans.

    ``rows`` is the number of rows of the history; none of them has an index below 0.
    """
    low, width = 0, max(1, -(-FOREVER // _SPANS))
    while True:
        replies = ask(low, width, _SPANS)
        count = np.sum([span.count for span in replies], axis=0)
        total = np.sum([span.total for span in replies], axis=0, dtype=np.uint64)
        first = (low + np.arange(_SPANS, dtype=np.uint64) * np.uint64(width)).astype(np.uint64)
        # The indexes from 0 to ``rows`` - 1 are expected, so spans beyond these must be empty.
        size = np.clip(rows - first.astype(np.int64), 0, width)
        doubled = first.astype(np.int64) * size + size * (size - 1) // 2
        wrong = np.flatnonzero((count != size) | (total != doubled.view(np.uint64)))
        if not len(wrong):
            return Breakage(None, "index is not dense: some are missing and as many are doubled")
        n = int(wrong[0])
        low += n * width
        if width == 1:
            if count[n]:
                return Breakage(low, TWICE)
            return Breakage(
                low, "there is no row of this index: rows were cut out, or are in a file that is not here"
            )
        width = max(1, -(-width // _SPANS))


def by_subject(confined: Iterable[Breakage]) -> list[Breakage]:
    """Return the first confined breakage of each subject."""
    return list({breakage.subject: breakage for breakage in reversed(list(confined))}.values())[::-1]


def of_tables(messages: pa.Table, control: pa.Table) -> tuple[Breakage | None, list[Breakage]]:
    """Return what breaks the form of a history, and the breakages that are confined.

    ``messages`` are the rows that carry messages, ``control`` the others.
    """
    step = step_of(len(messages) + len(control))
    places = PlaceTable()
    carried = of_part(from_table(messages, places), places, step, keys=False)
    look, confined = of_control(control, step)
    index = np.sort(
        np.concatenate([numbers_of(table.combine_chunks(), "index") for table in (messages, control)])
    )
    broken = of_whole([carried, look], lambda low, width, count: [spans(index, low, width, count)])
    return broken, confined


def of_schema(schema: pa.Schema, required: Iterable[str]) -> str:
    """Return what is wrong with a file's columns; "" where nothing is.

    Texts may be plain or encoded by a dictionary.
    """
    for name in required:
        if name not in schema.names:
            return f'it has no column "{name}"'
    for expected in SCHEMA:
        if expected.name in schema.names:
            actual = schema.field(expected.name).type
            text = pa.types.is_dictionary(expected.type) or pa.types.is_string(expected.type)
            plain = actual.value_type if pa.types.is_dictionary(actual) else actual
            right = (
                pa.types.is_string(plain) or pa.types.is_large_string(plain)
                if text
                else actual == expected.type
            )
            if not right:
                return (
                    f'its column "{expected.name}" is {actual}: it must be '
                    f"{'string' if text else expected.type}"
                )
    return ""
