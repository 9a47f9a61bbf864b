"""Small histories in Jepsen's formats, each with what Jepsen's checker says and what ours says.

Written for these tests after the situations that Jepsen's own tests are about
(jepsen/test/jepsen/checker_test.clj and tests/kafka_test.clj).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Example:
    """``theirs``: the kinds of errors that Jepsen's checker names; ``found``: ours."""

    lines: str
    theirs: frozenset[str]
    found: frozenset[str] = field(default_factory=frozenset)
    drained: bool = False
    valid: bool | None = True


def op(process: int | str, type_: str, f: str, value: str = "nil", more: str = "") -> str:
    """An operation without its time."""
    return f"{{:process {process}, :type :{type_}, :f :{f}, :value {value}{more}}}"


def timed(*ops: str) -> str:
    """Operations, one a line, a millisecond apart."""
    return "".join(
        f"{one[:-1]}, :time {number * 1_000_000}, :index {number}}}\n" for number, one in enumerate(ops)
    )


def queue(*told: tuple[int, str, str, str]) -> str:
    """Operations of a queue: process, type, f, value."""
    return timed(*(op(*one) for one in told))


def done(process: int, f: str, asked: str, got: str | None = None, outcome: str = "ok") -> list[str]:
    """An operation and its answer."""
    return [op(process, "invoke", f, asked), op(process, outcome, f, asked if got is None else got)]


def sent(process: int, *steps: tuple[str, str, int], outcome: str = "ok") -> list[str]:
    """A send of (key, value, offset) each, and its answer."""
    asked = " ".join(f"[:send {key} {value}]" for key, value, _ in steps)
    got = " ".join(f"[:send {key} [{offset} {value}]]" for key, value, offset in steps)
    return done(process, "send", f"[{asked}]", f"[{got}]" if outcome == "ok" else f"[{asked}]", outcome)


def polled(
    process: int, key: str, *pairs: tuple[int, str], outcome: str = "ok", f: str = "poll"
) -> list[str]:
    """A poll that got (offset, value) of one key."""
    got = " ".join(f"[{offset} {value}]" for offset, value in pairs)
    return done(process, f, "[[:poll]]", f"[[:poll {{{key} [{got}]}}]]", outcome)


ABC = sent(0, (":x", ":a", 1), (":x", ":b", 2), (":x", ":c", 3))
NOTHING: frozenset[str] = frozenset()

EXAMPLES: dict[str, Example] = {
    # ------------------------------------------------------------------------------------- queues
    "queue: every sent message is received, also one whose send got no answer": Example(
        queue(
            (1, "invoke", "enqueue", "1"),
            (2, "invoke", "enqueue", "2"),
            (2, "ok", "enqueue", "2"),
            (3, "invoke", "dequeue", "nil"),
            (3, "ok", "dequeue", "1"),
            (3, "invoke", "dequeue", "nil"),
            (3, "ok", "dequeue", "2"),
            (3, "invoke", "drain", "nil"),
            (3, "ok", "drain", "[]"),
        ),
        theirs=NOTHING,
    ),
    "queue: one message is lost, one was never sent, one is received twice": Example(
        queue(
            (1, "invoke", "enqueue", ":hung"),
            (2, "invoke", "enqueue", ":kept"),
            (2, "ok", "enqueue", ":kept"),
            (3, "invoke", "enqueue", ":dup"),
            (3, "ok", "enqueue", ":dup"),
            (4, "invoke", "dequeue", "nil"),
            (4, "fail", "dequeue", "nil"),
            (5, "invoke", "dequeue", "nil"),
            (5, "ok", "dequeue", ":wtf"),
            (6, "invoke", "dequeue", "nil"),
            (6, "ok", "dequeue", ":dup"),
            (7, "invoke", "drain", "nil"),
            (7, "ok", "drain", "[:dup]"),
        ),
        theirs=frozenset({"lost", "unexpected", "duplicated"}),
        found=frozenset({"lost", "phantom", "duplicate"}),
        valid=False,
    ),
    "queue: a message that a dequeue without an answer may have taken is not lost": Example(
        queue(
            (1, "invoke", "enqueue", "1"),
            (1, "ok", "enqueue", "1"),
            (1, "invoke", "enqueue", "2"),
            (1, "ok", "enqueue", "2"),
            (2, "invoke", "dequeue", "nil"),
            (2, "info", "dequeue", "nil"),
            (3, "invoke", "drain", "nil"),
            (3, "ok", "drain", "[1]"),
        ),
        theirs=frozenset({"lost"}),
    ),
    "queue: more messages are missing than dequeues without an answer may have taken": Example(
        queue(
            (1, "invoke", "enqueue", "1"),
            (1, "ok", "enqueue", "1"),
            (1, "invoke", "enqueue", "2"),
            (1, "ok", "enqueue", "2"),
            (1, "invoke", "enqueue", "3"),
            (1, "ok", "enqueue", "3"),
            (2, "invoke", "dequeue", "nil"),
            (3, "invoke", "drain", "nil"),
            (3, "ok", "drain", "[1]"),
        ),
        theirs=frozenset({"lost"}),
        found=frozenset({"lost"}),
        valid=False,
    ),
    "queue: a message whose send failed is received": Example(
        queue(
            (1, "invoke", "enqueue", "1"),
            (1, "fail", "enqueue", "1"),
            (3, "invoke", "drain", "nil"),
            (3, "ok", "drain", "[1]"),
        ),
        theirs=NOTHING,
        found=frozenset({"aborted-delivery"}),
        valid=False,
    ),
    "queue: a dequeue returns a message that nobody sent": Example(
        queue((1, "ok", "dequeue", "1")),
        theirs=frozenset({"unexpected"}),
        found=frozenset({"phantom"}),
        valid=False,
    ),
    "queue: the history has no drain": Example(
        queue(
            (1, "invoke", "enqueue", "1"),
            (1, "ok", "enqueue", "1"),
            (1, "invoke", "enqueue", "2"),
            (1, "ok", "enqueue", "2"),
            (2, "invoke", "dequeue", "nil"),
            (2, "ok", "dequeue", "1"),
        ),
        theirs=frozenset({"lost"}),
        valid=None,
    ),
    "queue: a drain that was cut off may have taken anything": Example(
        queue(
            (1, "invoke", "enqueue", "1"),
            (1, "ok", "enqueue", "1"),
            (1, "invoke", "enqueue", "2"),
            (1, "ok", "enqueue", "2"),
            (2, "invoke", "drain", "nil"),
            (2, "info", "drain", "[1]"),
        ),
        theirs=frozenset({"crash of the checker"}),
        drained=True,
        valid=None,
    ),
    # --------------------------------------------------------------------------------------- logs
    "log: two consumers read everything in order, but their polls return in another order": Example(
        timed(
            *ABC, *polled(2, ":x", (2, ":b"), (3, ":c")), *polled(1, ":x", (1, ":a"), (2, ":b"), (3, ":c"))
        ),
        theirs=NOTHING,
        drained=True,
    ),
    "log: a send that failed is read": Example(
        timed(*sent(0, (":x", "2", 0), (":y", "3", 0), outcome="fail"), *polled(1, ":x", (0, "2"))),
        theirs=frozenset({"G1a"}),
        found=frozenset({"aborted-delivery"}),
        valid=False,
    ),
    "log: nobody reads a value that lies before one that was read": Example(
        timed(
            *sent(0, (":x", ":a", 0)),
            *sent(0, (":x", ":b", 1)),
            *sent(1, (":x", ":c", 2)),
            *polled(2, ":x", (2, ":c")),
        ),
        theirs=frozenset({"lost-write"}),
        found=frozenset({"lost"}),
        drained=True,
        valid=False,
    ),
    "log: a value overwrites another one": Example(
        timed(
            *sent(0, (":x", ":a", 0)),
            *sent(0, (":x", ":b", 0), (":x", ":c", 2)),
            *polled(0, ":x", (0, ":b"), (2, ":c")),
        ),
        theirs=frozenset({"inconsistent-offsets", "lost-write"}),
        found=frozenset({"lost"}),
        drained=True,
        valid=False,
    ),
    "log: a consumer goes back": Example(
        timed(*ABC, *polled(1, ":x", (1, ":a"), (2, ":b")), *polled(1, ":x", (2, ":b"), (3, ":c"))),
        theirs=frozenset({"nonmonotonic-poll"}),
        found=frozenset({"duplicate"}),
        drained=True,
        valid=False,
    ),
    "log: a consumer goes back after a new assignment": Example(
        timed(
            *ABC,
            *polled(1, ":x", (1, ":a"), (2, ":b")),
            *done(1, "assign", "[:y]"),
            *done(1, "assign", "[:x]"),
            *polled(1, ":x", (1, ":a"), (2, ":b"), (3, ":c")),
        ),
        theirs=NOTHING,
        drained=True,
    ),
    "log: a consumer goes back in a key that it keeps after a new subscription": Example(
        timed(
            *ABC,
            *polled(1, ":x", (1, ":a"), (2, ":b")),
            *done(1, "subscribe", "[:x :y]"),
            *polled(1, ":x", (2, ":b"), (3, ":c")),
        ),
        theirs=frozenset({"nonmonotonic-poll"}),
        found=frozenset({"duplicate"}),
        drained=True,
        valid=False,
    ),
    "log: the messages of a failed transaction are read again": Example(
        timed(
            *ABC,
            *polled(1, ":x", (1, ":a"), f="txn"),
            *polled(1, ":x", (2, ":b"), outcome="fail", f="txn"),
            *polled(1, ":x", (2, ":b"), (3, ":c"), f="txn"),
        ),
        theirs=NOTHING,
        drained=True,
    ),
    "log: one poll gives messages in the wrong order": Example(
        timed(*ABC, *polled(1, ":x", (1, ":a"), (3, ":c"), (2, ":b"))),
        theirs=frozenset({"int-nonmonotonic-poll"}),
        found=frozenset({"reordered-session"}),
        drained=True,
        valid=False,
    ),
    "log: the log has a producer's messages in the wrong order": Example(
        timed(*sent(0, (":x", ":c", 3)), *sent(0, (":x", ":a", 1)), *polled(1, ":x", (1, ":a"), (3, ":c"))),
        theirs=frozenset({"nonmonotonic-send"}),
        found=frozenset({"reordered-session"}),
        drained=True,
        valid=False,
    ),
    "log: a consumer skips what another read": Example(
        timed(*ABC, *polled(1, ":x", (1, ":a"), (3, ":c")), *polled(2, ":x", (2, ":b"))),
        theirs=frozenset({"int-poll-skip"}),
        drained=True,
    ),
    "log: a value has two offsets": Example(
        timed(*sent(0, (":x", ":a", 1)), *polled(1, ":x", (3, ":a"))),
        theirs=frozenset({"duplicate"}),
        drained=True,
    ),
    "log: a value of unknown outcome is read where a transaction is torn": Example(
        timed(*sent(0, (":x", ":a", 0), (":y", ":b", 0), outcome="info"), *polled(2, ":x", (0, ":a"))),
        theirs=NOTHING,
        drained=True,
    ),
    "log: a transaction reads its own write": Example(
        timed(*done(1, "txn", "[[:send :x :a] [:poll]]", "[[:send :x [0 :a]] [:poll {:x [[0 :a]]}]]")),
        theirs=frozenset({"precommitted-read"}),
        drained=True,
    ),
    "log: two transactions see each other": Example(
        timed(
            op(0, "invoke", "txn", "[[:send :x :a] [:poll]]"),
            op(1, "invoke", "txn", "[[:send :y :b] [:poll]]"),
            op(0, "ok", "txn", "[[:send :x [0 :a]] [:poll {:y [[0 :b]]}]]"),
            op(1, "ok", "txn", "[[:send :y [0 :b]] [:poll {:x [[0 :a]]}]]"),
        ),
        theirs=frozenset({"G1c"}),
        drained=True,
    ),
    "log: a poll returns a value that nobody sent": Example(
        timed(*ABC, *polled(1, ":x", (1, ":a"), (2, ":b"), (3, ":c"), (4, ":d"))),
        theirs=frozenset({"crash of the checker"}),
        found=frozenset({"phantom"}),
        drained=True,
        valid=False,
    ),
}


def table() -> str:
    """Return the examples in which only one of the two finds something.

    It is a table of docs/how-to/bring-your-own-history.md.
    """
    verdicts = {True: "valid", False: "invalid", None: "unknown"}
    rows = [
        f"| {name} | {', '.join(sorted(one.theirs)) or 'nothing'} "
        f"| {', '.join(sorted(one.found)) or 'nothing'} | {verdicts[one.valid]} |"
        for name, one in EXAMPLES.items()
        if bool(one.theirs) != bool(one.found)
    ]
    head = ["| history | Jepsen's checker finds | `jepsen-run` finds | its verdict |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])
