"""What a check is asked and what it answers: plain data that can be written as JSON.

Why apart from the judging: reports, batches and shrinkers read verdicts long after the run, without
Spark. Times are seconds since the start of the test in texts, nanoseconds in rows, as in
``checkers.schema``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

Severity = Literal["grave", "warning", "info"]
"""``grave`` makes the test invalid under its guarantee.

``warning`` and ``info`` are reported only.
"""

GUARANTEES: Final = ("at-most-once", "at-least-once", "exactly-once")

NOT_JUDGED: Final = ": not judged, "
"""In a reason of a verdict: behind the rules that were left out, before why.

They are told, and leave a verdict valid.
"""

NOT_DECIDED: Final = " cannot be decided, because "
"""The same of rules that the history says too little of, which leaves no verdict valid."""


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker's acknowledgements and refusals mean.

    What its dialect promises, as far as a verdict depends on it.

    ``nack`` says what becomes of a message that a client refused ("none": nobody can);
    ``delivery_attempts`` after how many attempts it may be a dead letter (-1: never),
    ``most_attempts`` after how many refusals that were answered it certainly is one (-1: nobody can
    say), and ``keeps_dead_letters`` whether a store keeps those. ``keeps_expired``: so does a store
    what has expired, until the end of the test. ``attempts`` says what counts as
    one: that it was "refused" (nacks, and acks that were rolled back), or "given back" by whatever:
    by the end of a session, too, which may hold what its client never read.

    ``redelivery_s``: how long at most what was given back waits until it is delivered again, and
    with it what its group has behind it.

    ``durable_acks``: an ack that was answered ``ok`` outlives every failure that a send outlives;
    where not, what was acknowledged may come again. ``refuses_stale_acks``: an ack of what that
    session does not hold is never answered ``ok``. ``answers_in_order``: on one connection answers
    and deliveries arrive in the order in which the broker made them, so that what is read after an
    answer was sent after the question.

    ``ack_wait_s``: after how many seconds without an acknowledgement the broker takes a message
    back and may give it to another session (SQS' visibility time-out, JetStream's AckWait,
    RabbitMQ's ``consumer_timeout``); None: never. ``counts``: which redeliveries must have a higher
    delivery count than the delivery before: "never" any, or those after a message was "given back".
    ``durable_counts``: how often a message was refused outlives the broker's process; where not, a
    broker that was restarted, or took over, may count from the beginning.

    ``independent_pairs``: an operation needs the broker that it goes to and its pair, and no other
    but for votes while the pair changes its roles. Where not (queues with a majority of all
    brokers, a master broker), a fault of any broker may explain that nothing succeeds.
    ``monotonic_clocks``: leases, heart-beats and delays are measured by clocks that nobody sets;
    where not, a wrong wall clock may explain it, too.

    ``admits``: what an answer says by which a broker admits an error of its own, a bug; no answer
    does where it is empty.

    ``marks_redeliveries``: whether a delivery that is not the first of its message says so:
    "always"; only where the "same-process" of a broker has delivered it before, as a broker does
    that keeps count in memory alone; or "never". ``groups``: a group of messages is one consumer's
    at a time, and in order. ``sticky_groups``: it stays with that consumer, though nothing of it is
    unacknowledged; where not (SQS), it may then go to another. ``fifo``: so is a queue without
    groups in order, given out first what was sent first. ``single``: so is a message, and neither
    is with two brokers at once, as both may have what one forwarded without hearing that it
    arrived. ``atomic``: a transaction happens wholly or not at all; where not, it is a batch.
    ``untold`` is what nobody can ask these brokers for: their roles, their stores; rules that need
    it are left out.
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
        """After how many refusals that were answered it is certainly dead; -1: nobody can say."""
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
"""Of brokers that no module knows nobody is accused of what they never promised."""


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the test promised and how patient the judge is.

    ``deadline_s`` bounds each checker family alone; one that runs past it becomes unknown and hides
    no other. ``expect_faults`` says that the schedule had faults: then a history in which none was
    seen to bit is unknown. ``trouble`` is why the machine, not the broker, spoiled the run: then a
    history without grave findings is unknown. ``broker`` is what the broker's dialect promises.
    ``examples`` is how many instances of a finding are named and kept in its details.
    ``not_judged`` are rules that are left out, by name, each with why this history cannot tell of
    it; the verdict says so.
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

    Checking only these rows finds it again.

    ``rows`` are in order of ``index`` and leave out columns that are null.
    """

    indexes: tuple[int, ...]
    rows: tuple[dict[str, Any], ...]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of anomaly that was found, however often.

    ``name`` is the anomaly's; ``count`` its instances (messages, groups, pairs of brokers, windows:
    the sentence says which). ``details`` has ``examples`` (a list of objects, the earliest first)
    and what else the kind knows.
    """

    name: str
    severity: Severity
    count: int
    sentence: str
    witness: Witness
    details: dict[str, Any] = msgspec.field(default_factory=dict)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles in milliseconds of one operation's time from invocation to ``ok``.

    ``deliver`` is send to first delivery.

    Read from a histogram with 8 bins per octave: within 9 % of the exact value, which costs no
    sort.
    """

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class LongestPause(msgspec.Struct, frozen=True, kw_only=True):
    """Whose sends paused longest: a pair of brokers ("a1+a2") or a client ("producer 3").

    ``seconds`` is None if none of its sends was ok any more.
    """

    of: str
    seconds: float | None


class FaultRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """How long one fault kept clients from sending.

    The longest pause between two ``ok`` sends that touches it.

    ``start_s`` and ``end_s`` are when it was asked for and when its healing was, None for a fault
    that was not healed in the history. ``recovery_s`` is of the whole cluster, None if nothing was
    ok after it; ``pair`` and ``client`` are those of all pairs and
    clients that were kept longest (a cluster of three pairs hides that one of them is away).
    Brokers that had one node ID are a pair. A fault that found no target (``found_target``: no
    broker had the role, say) was never in force, and has no recovery.
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
    """What messages with amounts add up to in the end, and what they must (``wrong-total``).

    ``unjudged`` says why nothing is claimed where the two differ, or the history ends too early.
    """

    accounts: int
    expected: int
    left: int
    unjudged: str = ""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What is always reported and never a failure."""

    rows: int = 0
    duration_s: float = 0.0
    operations: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """f -> type -> rows."""
    latency: dict[str, Latency] = msgspec.field(default_factory=dict)
    faults: tuple[FaultRecovery, ...] = ()
    redeliveries: int = 0
    """Deliveries beyond the first of their message."""
    sends_recovered: int = 0
    """Messages delivered though their send ended ``info`` or never completed."""
    total: Total | None = None
    """None: no message had an amount."""
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """What the checking itself took, by part."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was judged: ``valid`` None is unknown; ``reasons`` say why, the gravest first."""

    valid: bool | None
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    statistics: Statistics = Statistics()
    guarantee: str = "at-least-once"
    ordered: bool = True

    @property
    def left_out(self) -> dict[str, str]:
        """Rules that were not judged, each with the reason."""
        told = (reason.partition(NOT_JUDGED) for reason in self.reasons if NOT_JUDGED in reason)
        return {name: why for names, _, why in told for name in names.split(", ")}

    @property
    def undecided(self) -> dict[str, str]:
        """Rules of which this history says nothing either way, each with the reason."""
        told = (reason.partition(NOT_DECIDED) for reason in self.reasons if NOT_DECIDED in reason)
        return {name: why for names, _, why in told for name in names.split(" and ")}

    def to_json(self) -> bytes:
        """Indented JSON; ``from_json`` gives an equal verdict back."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def from_json(cls, data: bytes | str) -> Verdict:
        """Raises msgspec.ValidationError naming the path of what is wrong."""
        return msgspec.json.decode(data, type=cls)
