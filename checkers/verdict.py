"""The options and the verdict of a check: plain data that can be written as JSON.

Why apart from the rules: reports, batches and shrinkers read verdicts long after the run, without
Spark. Times in texts are in seconds since the start of the test, times in rows in nanoseconds, as
in ``checkers.schema``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

Severity = Literal["grave", "warning", "info"]
"""The severity of a finding under the test's guarantee.

``grave`` makes the test invalid; ``warning`` and ``info`` are only reported.
"""

GUARANTEES: Final = ("at-most-once", "at-least-once", "exactly-once")

NOT_JUDGED: Final = ": not judged, "
"""The words in a reason of a verdict between the rules that were left out and the cause.

Such rules are reported; the verdict may be valid all the same.
"""

NOT_DECIDED: Final = " cannot be decided, because "
"""The words in a reason between the rules that the history says too little about and the cause.

With such rules a verdict is never valid.
"""


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    """The promises of a broker's dialect, as far as a verdict depends on them.

    They say above all what the broker's acknowledgements and refusals mean.

    ``nack``: the fate of a message that a client refused ("none": clients cannot refuse).
    ``delivery_attempts``: after how many attempts a message may be a dead letter (-1: never).
    ``most_attempts``: after how many answered refusals it certainly is one (-1: not known).
    ``keeps_dead_letters``: a store keeps dead letters. ``keeps_expired``: a store keeps expired
    messages until the end of the test. ``attempts`` says what counts as an attempt. "refused": only
    nacks, and acks that were rolled back. "given back": whatever gives a message back, the end of a
    session, too, which may hold messages that its client never read.

    ``redelivery_s``: how long at most a message that was given back, and the messages behind it in
    its group, wait until it is delivered again.

    ``durable_acks``: an ack that was answered ``ok`` outlives every failure that a send outlives.
    Without it an acknowledged message may come again. ``refuses_stale_acks``: an ack of a message
    that the session does not hold is never answered ``ok``. ``answers_in_order``: on one connection
    answers and deliveries arrive in the order in which the broker made them. So a delivery that is
    read after an answer was sent after the invocation.

    ``ack_wait_s``: after how many seconds without an acknowledgement the broker takes a message
    back and may give it to another session (SQS' visibility time-out, JetStream's AckWait,
    RabbitMQ's ``consumer_timeout``); None: never. ``counts``: which redeliveries must have a higher
    delivery count than the delivery before: "never" any, or those after a message was "given back".
    ``durable_counts``: the number of a message's refusals outlives the broker's process. Without it
    a broker that was restarted, or took over, may count from the beginning.

    ``independent_pairs``: an operation needs only the broker that it goes to and its pair, and
    others only for votes while the pair changes its roles. Without it (queues with a majority of
    all brokers, a master broker), a fault of any broker may explain that no operation succeeds.
    ``monotonic_clocks``: leases, heartbeats and delays are measured by clocks that are never set.
    Without it a wrong wall clock may explain that, too.

    ``admits``: a text in answers by which a broker admits an internal error, a bug. If it is empty,
    no answer does.

    ``marks_redeliveries``: which redeliveries say that they are such. "always": all.
    "same-process": those of a message that the same process of a broker has delivered before, if
    the broker counts in memory only. Or "never". ``groups``: a group of messages belongs to one
    consumer at a time, and its messages come in order. ``sticky_groups``: a group stays with its
    consumer, even if none of its messages is unacknowledged. Without it (SQS), the group may then
    go to another consumer. ``fifo``: a queue without groups is in order, too: the message that was
    sent first is delivered first. ``single``: a message belongs to one consumer at a time, and a
    message or group is with one broker at a time. Without it two brokers may have a message that
    one forwarded without hearing that it arrived. ``atomic``: a transaction happens wholly or not
    at all. Without it a transaction is a batch. ``untold``: what these brokers cannot be asked for,
    their roles or their stores; rules that need it are left out.
    """

    nack: Literal["requeue", "dead-letter", "consume", "none"] = "requeue"
    delivery_attempts: int = -1
    attempts: Literal["refused", "given back"] = "refused"
    most_attempts: int = -1
    keeps_dead_letters: bool = True
    keeps_expired: bool = False
    redelivery_s: float = 0.0
    durable_acks: bool = True
    refuses_stale_acks: bool = True
    answers_in_order: bool = True
    marks_redeliveries: Literal["always", "same-process", "never"] = "always"
    ack_wait_s: float | None = None
    counts: Literal["never", "given back"] = "never"
    durable_counts: bool = False
    groups: bool = True
    sticky_groups: bool = True
    fifo: bool = False
    single: bool = True
    atomic: bool = True
    independent_pairs: bool = True
    monotonic_clocks: bool = True
    admits: str = "internal error of the broker"
    untold: tuple[Literal["roles", "stores"], ...] = ()

    @property
    def dies_after(self) -> int:
        """The number of answered refusals after which a message is certainly a dead letter.

        -1: not known.
        """
        return 1 if self.nack == "dead-letter" else self.most_attempts if self.nack == "requeue" else -1


CAUTIOUS: Final = Promises(
    nack="consume",
    keeps_dead_letters=False,
    refuses_stale_acks=False,
    answers_in_order=False,
    marks_redeliveries="never",
    sticky_groups=False,
    independent_pairs=False,
    monotonic_clocks=False,
)
"""The promises of a broker that no module knows.

Why so few: no broker may be accused of breaking a promise that it never made.
"""


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The guarantee of a test and the bounds of its checking.

    ``deadline_s`` bounds each family of rules by itself; a family that runs past it becomes unknown
    and does not affect the others. ``expect_faults`` says that the schedule had faults: then a
    history in which none was seen to take effect is unknown. ``trouble`` is why the machine, not
    the broker, spoiled the run: then a history without grave findings is unknown. ``broker`` has
    the promises of the broker's dialect. ``examples`` is how many instances of a finding are named
    and kept in its details. ``not_judged`` are the rules that are left out, by name, each with the
    cause in this history; the verdict says so.
    """

    guarantee: str = "at-least-once"
    ordered: bool = True
    unavailable_bound_s: float = 20.0
    recovery_bound_s: float = 30.0
    deadline_s: float = 300.0
    expect_faults: bool = False
    trouble: str | None = None
    examples: int = 10
    broker: Promises = Promises()
    not_judged: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if self.guarantee not in GUARANTEES:
            raise ValueError(f'guarantee is "{self.guarantee}"; it must be one of {", ".join(GUARANTEES)}')
        for name in ("unavailable_bound_s", "recovery_bound_s", "deadline_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be more than 0 seconds")
        if self.examples < 1:
            raise ValueError(f"examples is {self.examples}; it must be at least 1")


class Witness(msgspec.Struct, frozen=True):
    """The smallest set of history rows that shows one finding.

    Checking only these rows finds the anomaly again. ``rows`` are in order of ``index``, and leave
    out columns that are null.
    """

    indexes: tuple[int, ...]
    rows: tuple[dict[str, Any], ...]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of anomaly that was found, with all its instances.

    ``name`` is the name of the anomaly; ``count`` the number of instances (messages, groups, pairs
    of brokers, windows: the sentence says which). ``details`` has ``examples`` (a list of objects,
    the earliest first) and further facts that depend on the kind.
    """

    name: str
    severity: Severity
    count: int
    sentence: str
    witness: Witness
    details: dict[str, Any] = msgspec.field(default_factory=dict)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The quantiles in milliseconds of one operation's time from invocation to ``ok``.

    For ``deliver`` it is the time from send to first delivery. The quantiles are read from a
    histogram with 8 bins per octave: they are within 9 % of the exact value and need no sort.
    """

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class LongestPause(msgspec.Struct, frozen=True, kw_only=True):
    """The longest pause in the sends of a pair of brokers ("a1+a2") or a client ("producer 3").

    ``seconds`` is None if no later send of it was ``ok``.
    """

    of: str
    seconds: float | None


class FaultRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """The time for which one fault kept clients from sending.

    That is the longest pause between two ``ok`` sends that touches the fault. ``start_s`` and
    ``end_s`` are when the fault and its healing were asked for; ``end_s`` is None if the fault was
    not healed in the history. ``recovery_s`` is the pause of the whole cluster, None if no send was
    ``ok`` after the fault began. ``pair`` and ``client`` have the longest pause of all pairs and of
    all clients, because a cluster of three pairs hides that one of them is away. Brokers that had
    one node ID are a pair. A fault that found no target (``found_target``; perhaps no broker had
    the role) was never in force, and has no recovery.
    """

    fault: str
    label: str
    bit: bool
    start_s: float
    end_s: float | None
    recovery_s: float | None
    pair: LongestPause | None = None
    client: LongestPause | None = None
    found_target: bool = True


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """The total of messages with amounts at the end, and the expected one (``wrong-total``).

    ``unjudged`` says why nothing is claimed although the two differ, or because the history ends
    too early.
    """

    accounts: int
    expected: int
    left: int
    unjudged: str = ""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that are always reported and are never a failure."""

    rows: int = 0
    duration_s: float = 0.0
    operations: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """The number of rows by operation and type: f -> type -> rows."""
    latency: dict[str, Latency] = msgspec.field(default_factory=dict)
    faults: tuple[FaultRecovery, ...] = ()
    redeliveries: int = 0
    """The number of deliveries beyond the first of their message."""
    sends_recovered: int = 0
    """The number of messages delivered though their send ended ``info`` or never completed."""
    total: Total | None = None
    """The total of amounts; None: no message had an amount."""
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """The time that the checking itself took, by part."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: ``valid`` None is unknown; ``reasons`` say why, the gravest first."""

    schema_version: Literal[1] = 1
    """The version of the JSON schema; it grows if readers of the file must change."""
    valid: bool | None
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    statistics: Statistics = Statistics()
    guarantee: str = "at-least-once"
    ordered: bool = True

    @property
    def left_out(self) -> dict[str, str]:
        """The rules that were not judged, each with the reason."""
        parts = (reason.partition(NOT_JUDGED) for reason in self.reasons if NOT_JUDGED in reason)
        return {name: why for names, _, why in parts for name in names.split(", ")}

    @property
    def undecided(self) -> dict[str, str]:
        """The rules that this history says too little to decide, each with the reason."""
        parts = (reason.partition(NOT_DECIDED) for reason in self.reasons if NOT_DECIDED in reason)
        return {name: why for names, _, why in parts for name in names.split(" and ")}

    def to_json(self) -> bytes:
        """Return the verdict as indented JSON, of which ``from_json`` makes an equal verdict."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def from_json(cls, data: bytes | str) -> Verdict:
        """Return the verdict of a JSON text.

        Raises msgspec.ValidationError, which names the path of what is wrong.
        """
        return msgspec.json.decode(data, type=cls)
