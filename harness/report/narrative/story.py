"""The story of a finding.

It says which rows of the history a person must see, in which order, and which participants they
have.

Why a choice: a witness proves a finding but does not explain it. The story adds what happened to
the same messages, which broker was live meanwhile and what was broken. It leaves out all else: at
most ``STEPS_MAX`` steps, the witness always among them. It is drawn by ``harness.report.sequence``,
told by ``harness.report.narrative.paragraphs``, and gets its log lines from
``harness.report.narrative.logbook``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from checkers import transactions as torn
from checkers.anomaly import AT_END
from checkers.schema import HARNESS, MONITOR, NEMESIS, TEMPORARY
from checkers.subscriptions import split
from checkers.verdict import Finding
from harness.report.narrative import subscriptions, transactions
from harness.report.narrative.cluster_state import Break, Standing, moment
from harness.report.narrative.excerpt import QUEUE_CHANGES, Excerpt, Row, example_of, load_began_ns, named_in
from harness.report.narrative.logbook import LogLine
from harness.report.narrative.naming import Kind, Names
from harness.report.narrative.sentences import phrase
from harness.report.narrative.subscriptions import Subscription
from harness.report.narrative.transactions import Transaction

STEPS_MAX: Final = 40
LANES_MAX: Final = 4
"""The maximum number of lanes of each kind of participant."""
LIVES_MAX: Final = 3
"""The maximum number of transactions, and of subscriptions, that have lanes."""
LOOK_BACK_NS: Final = 5_000_000_000
"""The time before the first row of an anomaly from which roles and faults are shown (ns)."""
NEAR_NS: Final = 1_000_000_000
"""The time before the first row of an anomaly from which begins of sessions are shown (ns)."""

_TOO_MANY: Final = 5
"""The rank of steps that are only counted."""
_PHASES: Final = frozenset({"heal", "recovered", "not-recovered", "drain", "browse", "end"})


@dataclass(frozen=True, slots=True)
class Participant:
    """A participant of the sequence diagram, with a lane of its own: "a1", "producer 5"."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Mark:
    """The effect of a step on a transaction or a subscription, drawn on its lane.

    For a transaction ``kind`` is "begin", "effect" or how it ended (``Transaction.outcome``). For a
    subscription it is "copy" if a message is meant for it, "perhaps" if it may be, "given" if a
    session gets a message.
    """

    lane: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event of a story.

    It is a row, or a question with its answer if nothing of the story lies between. ``source`` and
    ``target`` are lanes; without a target the event happened at one place, without either it
    concerns the whole cluster. ``label`` is for the arrow, ``words`` for the reader. ``answered``
    draws the way back; ``marks`` are the effects on transactions and subscriptions; ``lines`` are
    what brokers logged near it.
    """

    at: int
    rows: tuple[Row, ...]
    label: str
    words: str
    source: str | None = None
    target: str | None = None
    outcome: str = "ok"
    answered: bool = False
    witness: bool = False
    marks: tuple[Mark, ...] = ()
    lines: tuple[LogLine, ...] = ()
    more_lines: int = 0

    @property
    def index(self) -> int:
        """The index of the step's first row."""
        return int(self.rows[0]["index"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that is drawn and told of one finding.

    ``transactions`` are all that its rows belong to, by number, ``subscriptions`` by lane.
    """

    finding: Finding
    lanes: tuple[Participant, ...]
    steps: tuple[Step, ...]
    standing: Standing
    names: Names
    rows: tuple[Row, ...]
    transactions: Mapping[int, Transaction] = field(default_factory=dict)
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    neighbours: tuple[Row, ...] = ()
    faults: tuple[Break, ...] = ()
    left_out: int = 0
    notes: tuple[str, ...] = ()

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that have a lane."""
        return tuple(lane.name for lane in self.lanes if lane.kind == "broker")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Rows that would make a step, and a rank: 0 is the witness, higher ranks matter less."""

    rows: tuple[Row, ...]
    rank: int


def compose(finding: Finding, excerpt: Excerpt) -> Story:
    """Return the story of the first example of a finding, without log lines.

    The rows of the excerpt are all that it needs.
    """
    standing = Standing(excerpt.control, load_began_ns(excerpt.control))
    own_rows = tuple(row for row in excerpt.rows if row["process"] >= 0 or row["f"] == "browse")
    everything = (*own_rows, *excerpt.neighbours)
    names = Names(everything)
    brokers = _brokers(finding, own_rows, standing)
    low, high = _window(finding, own_rows, excerpt.control)
    witness = frozenset(row["index"] for row in finding.witness.rows)
    subscribed = {subscription.name: subscription for subscription in subscriptions.of_rows(own_rows)}
    drawn = _drawn_subscriptions(subscribed, finding, own_rows)
    hidden_of = {subscription.called for subscription in subscribed.values()} - {
        subscription.called for subscription in drawn
    }
    candidates = [
        *_of_clients(finding, _without(own_rows, hidden_of, witness), witness, low, high),
        *_of_neighbours(_without(excerpt.neighbours, hidden_of, witness)),
        *_of_control(finding, excerpt.control, witness, brokers, low, high),
    ]
    faults = tuple(subscription for subscription in standing.breaks if subscription.touches(low, high))
    candidates += [
        _Candidate(rows, _fault_rank(subscription, standing.concerns(subscription, brokers), witness))
        for subscription in faults
        for rows in _ends(subscription, high)
    ]
    chosen, left_out = _bounded(_joined(candidates))
    steps = [_step(candidate, names, standing, witness) for candidate in chosen]
    steps = sorted(steps, key=lambda step: (step.at, step.index))
    within = transactions.of_rows(own_rows)
    lives: list[Transaction | Subscription] = [
        *_drawn_transactions(within.values(), finding, steps),
        *drawn,
    ]
    steps = [replace(step, marks=tuple(_marks(step, lives))) for step in steps]
    lanes, hidden = _lanes(steps, brokers, names, lives)
    lane_names = {lane.name for lane in lanes}
    notes = [f"Not drawn, for want of room: {', '.join(hidden)}."] if hidden else []
    return Story(
        finding=finding,
        lanes=lanes,
        steps=tuple(_among(step, lane_names) for step in steps),
        standing=standing,
        names=names,
        rows=own_rows,
        transactions=within,
        subscriptions=subscribed,
        neighbours=tuple(excerpt.neighbours),
        faults=faults,
        left_out=left_out,
        notes=tuple(notes),
    )


def _among(step: Step, lane_names: set[str]) -> Step:
    """Return a step without participants that have no lane.

    A step whose client has no lane happens at its broker alone.
    """
    source, target = (name if name in lane_names else None for name in (step.source, step.target))
    return replace(step, source=source or target, target=target if source else None)


# ----------------------------------------------------------------------------------------- choosing


def _brokers(finding: Finding, rows: Sequence[Row], standing: Standing) -> list[str]:
    """Return the brokers that the rows name, then those that ever replaced them; a few."""
    brokers = set(standing.roles)
    named = [word for word in str(example_of(finding).get("key", "")).split(" ") if word in brokers]
    named += [row["broker"] for row in finding.witness.rows if "broker" in row]
    named += [row["broker"] for row in rows if "broker" in row]
    first = list(dict.fromkeys(named))
    if not first and finding.name in {"unavailable", "not-recovered"}:
        first = sorted(brokers)
    replacements = [name for name in standing.peers(first) if name not in first]
    return [*first, *replacements][:LANES_MAX]


def _window(finding: Finding, rows: Sequence[Row], control: Sequence[Row]) -> tuple[int, int]:
    """Return the span of time of which roles and faults are shown."""
    messages = {row["message"] for row in rows if "message" in row and row["process"] >= 0}
    core = [row["time"] for row in rows if row.get("message") in messages and row["process"] >= 0]
    core += [row["time"] for row in finding.witness.rows if row["process"] >= 0]
    last = max((row["time"] for row in control), default=0)
    details = finding.details
    moments = [
        moment(row) for row in finding.witness.rows if row["f"] in {"role", "takeover", "view", "phase"}
    ]
    if "begin_ns" in details:
        core.append(details["begin_ns"])
    if finding.name == "unavailable":
        core.append(details.get("end_ns", last))
    low, high = min(core or moments or [0]), max(core or moments or [last])
    if finding.name in AT_END:
        high = max(last, high)
    if finding.name == "zombie":
        low = min([low, *sorted(moments)[-1:]])
    if finding.name == "not-recovered":
        healed = [row["time"] for row in control if row["f"] == "phase" and row.get("value") == "heal"]
        low = min([low, *healed])
        high = max([high, *moments])
    return low - LOOK_BACK_NS, high


def _of_clients(
    finding: Finding, rows: Sequence[Row], witness: frozenset[int], low: int, high: int
) -> list[_Candidate]:
    """Return the rows of messages, and begins and ends of their sessions within the span."""
    done = example_of(finding).get("index", -1)
    place = split(example_of(finding).get("queue"))
    sharing = _sharing_transaction(finding, rows, witness)
    candidates = []
    for row in rows:
        if row["index"] in witness:
            rank = 0
        elif row["f"] in QUEUE_CHANGES or (
            row["f"] in {"subscribe", "drop"}
            and (
                (place is not None and row.get("subscription") == place[1])
                or str(row.get("queue")).startswith(TEMPORARY)
            )
        ):
            rank = 2
        elif place is not None and row.get("subscription") not in {None, place[1]}:
            rank = 3 if row["f"] == "deliver" else 4
        elif row.get("message") in sharing:
            rank = 3
        elif row["f"] in {"subscribe", "unsubscribe", "disconnect"}:
            if not low + LOOK_BACK_NS - NEAR_NS <= row["time"] <= high:
                continue
            rank = 3
        elif row["f"] == "browse":
            rank = 2 if finding.name in AT_END else 4
        else:
            rank = 1 if row["index"] <= done or finding.name in AT_END else 3
        candidates.append(_Candidate((row,), rank))
    return candidates


def _sharing_transaction(finding: Finding, rows: Sequence[Row], witness: frozenset[int]) -> set[int]:
    """Return the messages that only share a transaction with those of the finding.

    There are none for a torn transaction: all of its effects matter.
    """
    if finding.name == torn.NAME:
        return set()
    messages = {row["message"] for row in rows if row["index"] in witness and "message" in row}
    messages.add(example_of(finding).get("message", -1))
    single = {row["message"] for row in rows if "message" in row and "transaction" not in row}
    return {row["message"] for row in rows if "message" in row} - messages - single


def _of_neighbours(rows: Sequence[Row]) -> list[_Candidate]:
    """Return the sends and the first deliveries of neighbouring messages."""
    arrived: dict[int, Row] = {}
    for row in rows:
        if row["f"] == "deliver":
            arrived.setdefault(row["message"], row)
    return [
        _Candidate((row,), 3) for row in (*(row for row in rows if row["f"] == "send"), *arrived.values())
    ]


def _of_control(
    finding: Finding,
    control: Sequence[Row],
    witness: frozenset[int],
    brokers: Sequence[str],
    low: int,
    high: int,
) -> list[_Candidate]:
    """Return roles of the brokers involved, restarts, and the phases that end a test."""
    loaded = Standing(control, 0).loaded  # the lanes begin with the roles at the begin of the load
    edges = _edges(finding, control, brokers, low) if loaded >= 0 else set()
    candidates = []
    restarts: list[Row] = []
    for row in control:
        inside = low <= row["time"] <= high or row["index"] in edges
        if row["index"] in witness and not (row["f"] == "phase" and row.get("value") == "load"):
            candidates.append(_Candidate((row,), 0))
        elif row["process"] == MONITOR and inside and row["index"] > loaded and row.get("broker") in brokers:
            candidates.append(_Candidate((row,), 2 if row["f"] in {"role", "takeover"} else 3))
        elif row["process"] == HARNESS and inside and row["f"] == "restart" and row.get("broker") in brokers:
            restarts.append(row)
        elif row["process"] == HARNESS and inside and row["f"] == "phase" and row.get("value") in _PHASES:
            ends = finding.name in {"not-recovered", "unavailable"} and row.get("value") == "heal"
            candidates.append(_Candidate((row,), 2 if ends else 4))
    # A broker that cannot start is started again four times a second: the first two and the last
    # restart show that.
    candidates += [
        _Candidate((row,), 2 if row in restarts[:2] or row is restarts[-1] else 5) for row in restarts
    ]
    return candidates


def _edges(finding: Finding, control: Sequence[Row], brokers: Sequence[str], low: int) -> set[int]:
    """Return the changes of role outside the span that belong to the finding.

    These are the changes that ended an overlap, and those after which nothing recovered.
    """
    roles = [row for row in control if row["f"] == "role" and row.get("broker") in brokers]
    if finding.name == "split-brain":
        return {row["index"] for row in roles if row.get("time_low") == finding.details.get("end_ns", -1)}
    if finding.name in {"not-recovered", "unavailable"}:
        return set({row["broker"]: row["index"] for row in roles if row["time"] < low}.values())
    return set()


def _fault_rank(fault: Break, concerned: bool, witness: frozenset[int]) -> int:
    if any(row["index"] in witness for row in fault.rows):
        return 0
    return 2 if fault.bit and concerned else 4


def _ends(fault: Break, high: int) -> list[tuple[Row, ...]]:
    """Return the rows of a fault's begin, and those of its end if it lies within the span."""
    begun = tuple(row for row in fault.rows if not row["f"].startswith("heal:"))
    healed = tuple(row for row in fault.rows if row["f"].startswith("heal:"))
    return [begun, *([healed] if healed and healed[0]["time"] <= high else [])]


def _joined(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """Return the candidates in order, a question and its answer joined if nothing lies between.

    Other questions of the same transaction may lie between: they are all asked at once.
    """
    ordered = sorted({candidate.rows[0]["index"]: candidate for candidate in candidates}.values(), key=_first)
    joined: list[_Candidate] = []
    for candidate in ordered:
        at = next((n for n in _reach(joined, candidate) if _answers(joined[n].rows, candidate.rows)), None)
        if at is None:
            joined.append(candidate)
        else:
            before = joined[at]
            joined[at] = _Candidate((*before.rows, *candidate.rows), min(before.rank, candidate.rank))
    return joined


def _reach(joined: Sequence[_Candidate], answer: _Candidate) -> Iterator[int]:
    """Yield the steps that an answer may belong to, the latest first."""
    transaction = answer.rows[0].get("transaction")
    for n in range(len(joined) - 1, -1, -1):
        yield n
        if transaction is None or any(row.get("transaction") != transaction for row in joined[n].rows):
            return


def _first(candidate: _Candidate) -> int:
    return int(candidate.rows[0]["index"])


def _answers(question: tuple[Row, ...], answer: tuple[Row, ...]) -> bool:
    (request, *more), (reply, *rest) = question, answer
    return (
        not more
        and not rest
        and request["process"] >= 0
        and (request["type"], reply["type"]) != ("ok", "ok")
        and request["type"] == "invoke"
        and reply["type"] != "invoke"
        and all(request.get(name) == reply.get(name) for name in ("process", "f", "message"))
    )


def _bounded(candidates: Sequence[_Candidate]) -> tuple[list[_Candidate], int]:
    """Return the steps that matter most, and how many were left out.

    Of steps that matter equally, those nearest to the witness are taken.
    """
    candidates_shown = [candidate for candidate in candidates if candidate.rank < _TOO_MANY]
    witness = [n for n, candidate in enumerate(candidates_shown) if candidate.rank == 0] or [
        len(candidates_shown) - 1
    ]
    far = {id(candidate): min(abs(n - at) for at in witness) for n, candidate in enumerate(candidates_shown)}
    chosen = sorted(candidates_shown, key=lambda candidate: (candidate.rank, far[id(candidate)]))[:STEPS_MAX]
    return sorted(chosen, key=_first), len(candidates) - len(chosen)


# ------------------------------------------------------------------------------------------ shaping


def _step(candidate: _Candidate, names: Names, standing: Standing, witness: frozenset[int]) -> Step:
    rows = candidate.rows
    first, last = rows[0], rows[-1]
    label, words = phrase(rows, names, standing)
    source = target = None
    if first["process"] == MONITOR or first["f"] in {"browse", "restart", "view"}:
        source = first.get("broker")
    elif first["process"] not in {NEMESIS, HARNESS}:
        client, broker = names.client(first), last.get("broker") or names.broker_asked(first)
        source, target = client, broker
        if first["f"] == "deliver" or (first["type"] != "invoke" and first["f"] != "disconnect"):
            source, target = (broker, client) if broker else (client, None)
    return Step(
        at=first["time"],
        rows=rows,
        label=label,
        words=words,
        source=source,
        target=target,
        outcome=last["type"],
        answered=len(rows) > 1 and last["type"] == "ok" and first["process"] >= 0,
        witness=any(row["index"] in witness for row in rows),
    )


def _drawn_transactions(
    transactions: Iterable[Transaction], finding: Finding, steps: Sequence[Step]
) -> list[Transaction]:
    """Return the transactions to draw: those of the finding, then those that begin first."""
    shown_indexes = {row["index"] for step in steps for row in step.rows}
    proven = {row["index"] for step in steps if step.witness for row in step.rows}
    own_number = named_in(finding)
    chosen = sorted(
        (transaction for transaction in transactions if transaction.indexes & shown_indexes),
        key=lambda transaction: (
            transaction.number != own_number,
            not transaction.indexes & proven,
            transaction.begun["index"],
        ),
    )[:LIVES_MAX]
    return sorted(chosen, key=lambda transaction: transaction.begun["index"])


def _drawn_subscriptions(
    subscribed: Mapping[str, Subscription], finding: Finding, rows: Sequence[Row]
) -> list[Subscription]:
    """Return the subscriptions to draw: that of the finding, and those that got its message."""
    place, message = split(example_of(finding).get("queue")), example_of(finding).get("message")
    got = [
        row["subscription"]
        for row in rows
        if row["f"] == "deliver" and "subscription" in row and message in {None, row.get("message")}
    ]
    first = [place[1], *got] if place is not None else got
    by_name = {subscription.called: subscription for subscription in subscribed.values()}
    return [by_name[name] for name in dict.fromkeys(first) if name in by_name][:LIVES_MAX]


def _without(rows: Sequence[Row], hidden: set[str], witness: frozenset[int]) -> list[Row]:
    """Return the rows without those of the consumers of hidden subscriptions."""
    sessions = {row["session"] for row in rows if row.get("subscription") in hidden and "session" in row}
    return [
        row
        for row in rows
        if row["index"] in witness
        or (row.get("subscription") not in hidden and row.get("session") not in sessions)
    ]


def _marks(step: Step, lives: Iterable[Transaction | Subscription]) -> Iterator[Mark]:
    first = step.rows[0]
    for life in lives:
        if isinstance(life, Transaction):
            if life.end is not None and any(row["index"] == life.end["index"] for row in step.rows):
                yield Mark(life.name, life.outcome)
            elif first["index"] == life.begun["index"]:
                yield Mark(life.name, "begin")
            elif first["index"] in life.indexes and first["f"] in {"send", "ack", "nack"}:
                yield Mark(life.name, "effect")
        elif first["f"] == "send" and first["type"] == "invoke" and first.get("queue") == life.topic:
            meant = life.gets(first)
            if meant:
                yield Mark(life.name, "copy" if meant == "there" else "perhaps")
        elif first["f"] == "deliver" and first.get("subscription") == life.called:
            yield Mark(life.name, "given")


def _lanes(
    steps: Sequence[Step],
    brokers: Sequence[str],
    names: Names,
    lives: Sequence[Transaction | Subscription],
) -> tuple[tuple[Participant, ...], list[str]]:
    """Return the lanes, and the names of clients for which there was no room.

    Producers come first, then brokers, then sessions: the way of a message from left to right.
    Subscriptions stand before the sessions that consume them, transactions after all others.
    """
    used = {name: step.witness for step in steps for name in (step.source, step.target) if name}
    used |= {name: True for step in steps if step.witness for name in (step.source, step.target) if name}
    clients = sorted(
        (name for name in used if name not in brokers),
        key=lambda name: (not used[name], steps_of(name, steps)),
    )
    kinds: dict[Kind, list[str]] = {"producer": [], "client": [], "session": []}
    hidden = []
    for name in clients:
        kind: Kind = names.kind(name)
        if len(kinds[kind]) < LANES_MAX:
            kinds[kind].append(name)
        else:
            hidden.append(name)

    def participants(kind: Kind) -> list[Participant]:
        return [Participant(name, kind) for name in sorted(kinds[kind], key=names.order)]

    middle = [Participant(name, "broker") for name in sorted(brokers)]
    subscribed = [Participant(life.name, "subscription") for life in lives if isinstance(life, Subscription)]
    within = [Participant(life.name, "transaction") for life in lives if isinstance(life, Transaction)]
    return (
        *participants("producer"),
        *participants("client"),
        *middle,
        *subscribed,
        *participants("session"),
        *within,
    ), hidden


def steps_of(name: str, steps: Sequence[Step]) -> int:
    """Return the number of the step in which a participant first appears."""
    return next((n for n, step in enumerate(steps) if name in (step.source, step.target)), len(steps))
