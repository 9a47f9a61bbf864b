"""The table of every anomaly that the checkers know.

Everything that depends on a finding's name alone is in this table.

Why one table: a name that stands in ten places is forgotten in one of them. A new finding needs its
rule (and the twin of the rule in ``checkers.reference``), a row here, and a row and a section in
docs/explanation/verdicts.md. Severity, order, witness, sentence, JUnit and reports follow from the
row.

Findings are reported in the order of the rows: causes come before what usually follows from them.
Two live brokers cause duplicate deliveries; duplicate deliveries hardly cause two live brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from checkers.verdict import GUARANTEES, CheckOptions, Severity

ANY: Final = frozenset(GUARANTEES)
LOSSLESS: Final = frozenset({"at-least-once", "exactly-once"})
ONCE: Final = frozenset({"at-most-once", "exactly-once"})

Partner = Literal["none", "sent-later", "higher-number", "higher-number-in-session", "held", "key"]
"""The way to find the other message of a pair among the messages that were delivered before.

It is found by its send, by its producer's sequence numbers, by the session that held it, or it is
the instance's key.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The rows that an anomaly's witness needs besides those that every witness may have.

    Every witness may have the rows of its message and those of their sessions and transactions.

    ``control`` names operations of the harness, the monitor and the nemesis. ``clients``: all rows
    of clients at the moments of the anomaly. ``paired``: the rows of its group before it; then
    ``partner`` says which message is the other one. ``alive``: proof that its sessions lived on.
    ``linked``: what was answered before it on its connection. ``alone``: a message of which only
    some rows are in the witness would say something else.
    """

    control: tuple[str, ...] = ()
    clients: bool = False
    paired: bool = False
    partner: Partner = "none"
    alive: bool = False
    linked: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """A kind of finding: its rule, its sentence, its severity and the rows that prove it.

    ``rule`` is the promise that it contradicts, for a reader who does not know the name. ``words``
    is its sentence, with the fields of ``checkers.words``; ``words_without_message`` is the
    sentence of an instance that has no message.

    ``breaks`` are the guarantees under which it makes a test invalid, ``otherwise`` is its severity
    under the others. Where the promise that it rests on was not given, it is an info: ``ordered``
    is the promise of order, ``grouped`` that of groups, ``single`` that one broker alone has a
    message, ``atomic`` that of transactions. ``excusable``: it is a warning where the faults in
    force explain it. ``allowed`` are the guarantees under which it is no finding at all.

    ``columns`` are the columns that it is judged by: a history without them is not judged by this
    rule. ``one_column``: any one of them is enough. ``of_queues``: where queues as a whole are
    promised to be in order, queues are judged, too, which takes none of these columns.

    ``at_end``: it says what became of a message in the end, so it cannot be judged before
    everything was drained and every store read. ``follows_two_lives``: it is to be expected once
    two brokers serve one queue from two journals. ``follows`` are findings that say the same more
    exactly: where one of them is grave, this finding is an info.
    """

    name: str
    rule: str
    words: str
    words_without_message: str = ""
    breaks: frozenset[str] = ANY
    otherwise: Severity = "warning"
    ordered: bool = False
    grouped: bool = False
    single: bool = False
    atomic: bool = False
    excusable: bool = False
    allowed: frozenset[str] = frozenset()
    at_end: bool = False
    follows_two_lives: bool = False
    follows: frozenset[str] = frozenset()
    evidence: Evidence = Evidence()
    columns: tuple[str, ...] = ()
    one_column: bool = False
    of_queues: bool = False


DEADLY: Final = ("kill", "destroy", "stop", "power-loss")
"""The kinds of faults that end processes."""
READ_ALL: Final = ("phase", "browse", "role", "takeover")
"""The operations that say that everything was drained, and which brokers' stores were read."""
_OF_THE_END: Final = (*READ_ALL, "restart", *DEADLY)
"""``READ_ALL``, and the operations that say which acknowledgements cannot have been processed."""

_OF_ORDER: Final = "{message} ({place}, producer {producer}, number {number})"

ANOMALIES: Final = (
    Anomaly(
        name="split-brain",
        columns=("broker", "node_id", "role", "time_low", "time_high"),
        rule="Under one node ID at most one broker may be live at any moment.",
        words="{split_brain}",
        evidence=Evidence(control=("role", "phase")),
    ),
    Anomaly(
        name="double-takeover",
        columns=("broker", "node_id", "role", "time_low", "time_high", "value"),
        rule="The data of a broker may be taken over by one other at a time, and by a second only when "
             "the first has let go of them.",
        words="{double_takeover}",
        follows_two_lives=True,
        evidence=Evidence(control=("role", "takeover", "phase")),
    ),
    Anomaly(
        name="phantom",
        columns=("session",),
        rule="No message may be delivered, stored or acknowledged that was never sent, and no session may "
             "settle a message that it never got.",
        words="{message} ({place}) {seen}, {unheard_of}",
    ),
    Anomaly(
        name="corrupted",
        columns=("digest", "headers", "producer", "sequence", "group"),
        one_column=True,
        rule="What is delivered or stored must be what was sent, in the queue and group to which it was "
             "sent.",
        words="{message} ({place}) {seen} {otherwise}",
        words_without_message="{unreadable} ({place})",
    ),
    Anomaly(
        name="aborted-delivery",
        rule="A send that failed for certain, or that was rolled back, must never be delivered, nor be "
             "in a store.",
        words="{message} ({place}) {seen} although its send failed or was rolled back",
    ),
    Anomaly(
        name="not-subscribed",
        columns=("subscription", "session"),
        rule="A subscription must get no message that was sent before it existed. A consumer must get no "
             "message that its selector does not match, and none from the temporary queue of another "
             "connection.",
        words="{message} ({place}) {seen}, {not_for_it}",
    ),
    Anomaly(
        name="read-uncommitted",
        columns=("transaction",),
        rule="A message that is sent in a transaction may not be delivered before the commit is requested.",
        words="{message} ({place}) {seen} although the commit of its transaction had not been "
              "requested by then",
    ),
    Anomaly(
        name="torn-transaction",
        columns=("transaction", "session", "value"),
        rule="Everything that is requested in a transaction must happen, or nothing, whatever the answer "
             "to its commit.",
        words="transaction {key}, {outcome}, happened only in part: {happened}, but {missing}",
        atomic=True,
        follows_two_lives=True,
        evidence=Evidence(control=_OF_THE_END, alone=True),
    ),
    Anomaly(
        name="wrong-total",
        columns=("transaction", "session", "value"),
        rule="Money is moved between accounts in transactions: whatever becomes of these, in the end there "
             "must be as much as was put in.",
        words="{total}",
        breaks=LOSSLESS,
        atomic=True,
        follows_two_lives=True,
        evidence=Evidence(control=READ_ALL, alone=True),
    ),
    Anomaly(
        name="lost",
        columns=("value",),
        rule="A message whose send was acknowledged must be delivered until it is acknowledged, or be "
             "in a store when everything has been healed and drained.",
        words="{message} ({place}), sent at {when}{taken}, {fate} and is in no store: "
        "the {position} of its group is missing{alone}",
        breaks=LOSSLESS,
        at_end=True,
        follows_two_lives=True,
        evidence=Evidence(control=_OF_THE_END),
    ),
    Anomaly(
        name="stuck",
        columns=("broker", "value"),
        rule="A message whose send was acknowledged must come to a consumer that acknowledges it once "
             "everything has been healed and drained.",
        words="{message} ({place}), sent at {when}, {fate}; {kept_by} still holds it in its {kept_in} store",
        breaks=LOSSLESS,
        at_end=True,
        follows_two_lives=True,
        evidence=Evidence(control=_OF_THE_END),
    ),
    Anomaly(
        name="died-early",
        columns=("broker", "value"),
        rule="A message may become a dead letter only when it has been refused as often as is configured, or "
             "has expired.",
        words="{message} ({place}) {seen}, though it {had_been_refused} and had not expired",
        breaks=LOSSLESS,
        follows_two_lives=True,
        evidence=Evidence(control=_OF_THE_END),
    ),
    Anomaly(
        name="resurrected",
        columns=("broker", "node_id", "role", "value", "session"),
        rule="A message whose acknowledgement was confirmed, or whose temporary queue has ended, must not be "
             "in any store, and no message in more than one store. A message of a queue that was deleted "
             "must not come back.",
        words="{message} ({place}) {seen} {undead}",
        follows_two_lives=True,
        evidence=Evidence(control=("browse", "role", "phase", *DEADLY)),
    ),
    Anomaly(
        name="duplicate",
        columns=("session",),
        rule="A message whose acknowledgement was confirmed, or that was refused so often that it is dead, "
             "must never be delivered again, nor may one session get it twice without giving it back.",
        words="{message} ({place}) was delivered again by {broker} to session {session} at {when}, "
              "after {previous}{alone}",
        follows_two_lives=True,
        evidence=Evidence(control=("role", "restart", *DEADLY), alive=True, linked=True),
    ),
    Anomaly(
        name="redelivery",
        rule="The guarantee allows one delivery of each message.",
        words="{message} ({place}) was delivered more than once, first by {broker} to session {session} "
              "at {when}, though the guarantee allows one delivery",
        breaks=ONCE,
        allowed=frozenset({"at-least-once"}),
    ),
    Anomaly(
        name="unflagged-redelivery",
        columns=("session", "redelivered"),
        rule="A broker that delivers a message again must mark it as redelivered.",
        words="{message} ({place}) was delivered again by {broker} to session {session} at {when} "
              "without the redelivered mark, after {previous}",
        breaks=ONCE,
        evidence=Evidence(control=("role",), linked=True),
    ),
    Anomaly(
        name="count-fell",
        columns=("session", "delivery_count"),
        rule="A delivery that is certainly later must not have a lower delivery count.",
        words="{message} ({place}) was delivered by {broker} to session {session} at {when} with the "
              "delivery count {count}, after {previous} with the count {earlier_count}",
        breaks=frozenset(),
        evidence=Evidence(linked=True),
    ),
    Anomaly(
        name="count-stuck",
        columns=("session", "delivery_count"),
        rule="A broker that counts deliveries must give each a higher count than an earlier one that was "
             "given back.",
        words="{message} ({place}) was delivered by {broker} to session {session} at {when} with the "
              "delivery count {count}, though a delivery of it with the count {earlier_count} had been "
              "given back",
        breaks=frozenset(),
        evidence=Evidence(control=("role", "restart", *DEADLY), linked=True),
    ),
    Anomaly(
        name="expired-delivery",
        columns=("session", "value"),
        rule="An expired message must not be delivered.",
        words="{message} ({place}) {seen}, and was sent there after it had certainly expired, at "
              "{expired_at}",
        evidence=Evidence(linked=True),
    ),
    Anomaly(
        name="early-delivery",
        columns=("session", "value"),
        rule="A delayed message must not be delivered before its time.",
        words="{message} ({place}) {seen}, though it was not to be delivered before {due_at}",
    ),
    Anomaly(
        name="priority-inversion",
        columns=("session", "producer", "redelivered", "value"),
        rule="Of the messages that wait in a queue, the one with the highest priority must be delivered "
             "first, as far as a broker can tell.",
        words="{message} ({place}) of priority {priority}, sent for certain at {sent_at}, was first "
              "delivered by {broker} to session {session} at {when}, after {overtaken} of priority "
              "{lower_priority}, which was chosen although it waited{worst}",
        breaks=frozenset(),
        otherwise="info",
        evidence=Evidence(partner="key", linked=True),
    ),
    Anomaly(
        name="late-delivery",
        columns=("session",),
        rule="Nothing may be delivered to a session whose end was confirmed.",
        words="{message} ({place}) {seen}, which had ended before",
        breaks=frozenset(),
    ),
    Anomaly(
        name="double-delivery",
        columns=("session",),
        rule="A message may be in the hands of one session at a time.",
        words="{message} ({place}) was held by two sessions at once: {previous}, and session {session} "
              "at {broker} got it at {when}{both_settled}{ack_wait}",
        single=True,
        follows_two_lives=True,
        evidence=Evidence(paired=True, alive=True),
    ),
    Anomaly(
        name="group-split",
        columns=("group", "session"),
        rule="All messages of a group belong to one session at a time.",
        words="{place} was held by two sessions at once: {previous} and still held that when session "
              "{session} at {broker} got {message_here} at {when}",
        grouped=True,
        single=True,
        follows_two_lives=True,
        evidence=Evidence(paired=True, partner="held", alive=True),
    ),
    Anomaly(
        name="reordered",
        columns=("group", "producer", "sequence"),
        rule="The messages of one producer in one group must arrive in the order in which they were sent.",
        words=f"{_OF_ORDER} was first delivered at {{when}}, after number {{earlier_number}} of the "
              f"same producer ({{earlier_message}})",
        ordered=True,
        grouped=True,
        follows_two_lives=True,
        evidence=Evidence(paired=True, partner="higher-number"),
    ),
    Anomaly(
        name="reordered-realtime",
        columns=("group",),
        rule="A message whose send was certainly complete before the send of another one in its group "
             "began must be delivered before that one.",
        words="{message} ({place}) was {stored}, before {earlier_message} was sent, yet was first "
              "delivered after it, at {when}",
        ordered=True,
        grouped=True,
        follows_two_lives=True,
        evidence=Evidence(control=("role", "restart", *DEADLY), paired=True, partner="sent-later"),
    ),
    Anomaly(
        name="reordered-session",
        columns=("group", "session", "producer", "sequence"),
        rule="Within one session the messages of one producer in a group must not go backwards.",
        words=f"session {{session}} at {{broker}} got {_OF_ORDER} at {{when}}, after number "
              f"{{earlier_number}} of the same producer",
        ordered=True,
        grouped=True,
        follows_two_lives=True,
        evidence=Evidence(paired=True, partner="higher-number-in-session"),
    ),
    Anomaly(
        name="not-linearizable",
        columns=("group",),
        rule="A group, or a queue where that is promised, must be a FIFO queue: a message whose send "
             "was certainly complete before the send of another one began must come before that one.",
        words="{message} ({place}) was first delivered by {broker} to session {session} at {when}, and "
              "{overtaken}, {in_front}, had not been by then",
        ordered=True,
        grouped=True,
        follows_two_lives=True,
        follows=frozenset({"lost", "stuck", "corrupted", "reordered", "reordered-realtime"}),
        of_queues=True,
        evidence=Evidence(control=("role", "restart", *DEADLY), partner="key", alone=True),
    ),
    Anomaly(
        name="zombie",
        columns=("broker", "node_id", "role", "time_low", "time_high"),
        rule="A broker that has been replaced must not answer any more, nor deliver messages that were sent "
             "since then.",
        words="{key} {answered} at {when}, {asked} after {fenced}",
        follows_two_lives=True,
        evidence=Evidence(control=("role", "takeover", "phase")),
    ),
    Anomaly(
        name="diverged",
        columns=("broker", "time_low", "time_high", "value"),
        rule="Once the cluster has recovered and the recovery bound has passed, its brokers must agree.",
        words="{diverged}",
        follows_two_lives=True,
        evidence=Evidence(control=("view",)),
    ),
    Anomaly(
        name="internal-error",
        rule="No broker may answer with an internal error.",
        words='{broker} answered at {when} with an internal error ("{error}")',
    ),
    Anomaly(
        name="not-recovered",
        columns=("value",),
        rule="When everything has been healed, operations must succeed again within the recovery bound.",
        words="after everything was healed and the recovery bound had passed, operations still did not "
              "succeed (seen at {when})",
        evidence=Evidence(control=("phase",), clients=True),
    ),
    Anomaly(
        name="starved",
        columns=("session", "broker"),
        rule="A consumer that holds no message must get the messages that wait for it within the bound.",
        words="{key} got none of the messages that waited for it from {begin} to {end}, {faults}: "
              "{message} ({place}) waited all this time",
        excusable=True,
        evidence=Evidence(control=("role",)),
    ),
    Anomaly(
        name="unavailable",
        rule="Without a fault that explains it, operations must succeed within the bound.",
        words="{key}: nothing succeeded from {begin} to {end}, {faults}",
        excusable=True,
        evidence=Evidence(clients=True),
    ),
)  # fmt: skip
"""Every anomaly, causes before what follows from them."""

BY_NAME: Final = {anomaly.name: anomaly for anomaly in ANOMALIES}
AT_END: Final = frozenset(anomaly.name for anomaly in ANOMALIES if anomaly.at_end)

_RANKS: Final = {anomaly.name: number for number, anomaly in enumerate(ANOMALIES)}


def named(name: str) -> Anomaly:
    """Return the table's row of a finding.

    A name that the table lacks (of another version) gets a row that is grave.
    """
    return BY_NAME.get(name) or Anomaly(name=name, rule="", words=f"{name} at row {{index}}")


def rank(name: str) -> tuple[int, str]:
    """Return a key by which names of findings are sorted: causes come first."""
    return _RANKS.get(name, len(_RANKS)), name


def severity(name: str, options: CheckOptions, *, excused: bool = False) -> Severity:
    """Return the severity of a finding under what was promised.

    ``excused``: the faults in force explain it; this matters only to findings that are excusable.

    Every finding is reported whatever the guarantee. The severity decides only whether it makes the
    test invalid.
    """
    anomaly = named(name)
    if options.guarantee not in anomaly.breaks:
        return anomaly.otherwise
    unpromised = (
        (anomaly.ordered and not options.ordered)
        or (anomaly.grouped and not options.broker.groups)
        or (anomaly.single and not options.broker.single)
        or (anomaly.atomic and not options.broker.atomic)
    )
    if unpromised:
        return "info"
    return "warning" if anomaly.excusable and excused else "grave"


def looked_for(options: CheckOptions) -> tuple[str, ...]:
    """Return the names of the anomalies that are findings under what was promised."""
    return tuple(anomaly.name for anomaly in ANOMALIES if options.guarantee not in anomaly.allowed)
