"""Small histories of a correct broker, and ways to damage them.

What the differential test feeds both implementations.

The simulated broker is as simple as a correct one can be: messages of a group go in order to the
session that owns the group; when a session goes, what it had not acknowledged is delivered again,
marked, in order, to the next. Damage is a list of small edits of the finished rows; deleting any of
them leaves a valid list, so that hypothesis shrinks well.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from checker_rows import MS, Row, finished, o
from hypothesis import strategies as st


def correct(seed: int, *, transactions: bool = False, complete: bool = True) -> list[Row]:
    """A history in which nothing is wrong; times are irregular."""
    chance = random.Random(seed)
    rows: list[Row] = []

    def add(process: int, type_: str, f: str, message: int | None = None, **columns: Any) -> None:
        rows.append(o(len(rows), process, type_, f, message, **columns))

    def begin(session: int) -> None:
        add(100 + session, "invoke", "subscribe", session=session)
        if chance.random() < 0.9:
            add(100 + session, "ok", "subscribe", session=session, broker="a1")

    def deliver(session: int, message: int, **columns: Any) -> None:
        count = counts[message] = counts.get(message, 0) + 1
        told = {
            "session": session,
            "broker": "a1",
            "redelivered": count > 1,
            "delivery_count": count if counting else None,
        }
        add(100 + session, "ok", "deliver", message, digest=message * 7, **told, **columns)

    counts: dict[int, int] = {}
    counting = chance.random() < 0.7
    add(-2, "info", "role", broker="a1", node_id="n", role="live", time_low=0, time_high=0)
    begin(1)
    groups = ["g", "h", None][: chance.randint(1, 3)]
    sequences: dict[tuple[int, str | None], int] = {}
    waiting: dict[str | None, list[tuple[int, int, int]]] = {g: [] for g in groups}
    owner: dict[str | None, int] = dict.fromkeys(groups, 1)
    held: dict[str | None, list[tuple[int, int, int]]] = {g: [] for g in groups}
    message, session, transaction = 0, 1, 0

    def send(group: str | None, inside: dict[str, Any], outcome: str) -> tuple[int, int, int]:
        nonlocal message
        message += 1
        producer = chance.randint(1, 2)
        number = sequences[producer, group] = sequences.get((producer, group), -1) + 1
        place: dict[str, Any] = {"group": group, "producer": producer, "sequence": number}
        add(producer, "invoke", "send", message, digest=message * 7, **place, **inside)
        add(producer, outcome, "send", message, broker="a1", **place, **inside)
        return message, producer, number

    def lose(gone: int) -> None:
        """A session ends; what it held is delivered again to the next."""
        nonlocal session
        if chance.random() < 0.3:
            add(100 + gone, "invoke", "unsubscribe", session=gone)
            add(100 + gone, "ok", "unsubscribe", session=gone, broker="a1")
        else:
            add(100 + gone, "info", "disconnect", session=gone, broker="a1")
        session += 1
        begin(session)
        for g in groups:
            if owner[g] == gone:
                owner[g] = session
                for m, producer, number in held[g]:
                    deliver(session, m, group=g, producer=producer, sequence=number)

    def move(group: str | None) -> None:
        """One transaction that takes the next message of a group and sends some to any."""
        nonlocal transaction
        transaction += 1
        inside = {"transaction": transaction}
        taken, mine = held[group][0], owner[group]
        place = {"group": group, "producer": taken[1], "sequence": taken[2], "session": mine}
        add(100 + mine, "invoke", "ack", taken[0], **place, **inside)
        add(100 + mine, "ok", "ack", taken[0], broker="a1", **place, **inside)
        sent = [(g, send(g, inside, "ok")) for g in chance.choices(groups, k=chance.randint(1, 2))]
        end, finish, happens = chance.choice(
            [
                ("commit", "ok", True),
                ("commit", "info", True),
                ("commit", "info", False),
                ("abort", "ok", False),
            ]
        )
        add(100 + mine, "invoke", end, **inside)
        add(100 + mine, finish, end, broker="a1", **inside)
        if happens:
            held[group].pop(0)
            for g, one in sent:
                waiting[g].append(one)
        else:
            lose(mine)

    for _ in range(chance.randint(3, 14)):
        group = chance.choice(groups)
        what = chance.random()
        if transactions and held[group] and what > 0.6:
            move(group)
            continue
        if what < 0.45:
            inside: dict[str, Any] = {}
            if transactions and chance.random() < 0.5:
                transaction += 1
                inside = {"transaction": transaction}
            outcome = chance.choice(["ok", "ok", "ok", "info", "fail"])
            one = send(group, inside, outcome)
            producer, sent = one[1], outcome != "fail"
            if inside:
                end = chance.choice(["commit", "commit", "abort"])
                add(producer, "invoke", end, **inside)
                finish = chance.choice(["ok", "ok", "info"])
                add(producer, finish, end, broker="a1", **inside)
                sent = sent and end == "commit"
            if sent:
                waiting[group].append(one)
        elif what < 0.7 and waiting[group]:
            m, producer, number = waiting[group].pop(0)
            held[group].append((m, producer, number))
            deliver(owner[group], m, group=group, producer=producer, sequence=number)
        elif what < 0.9 and held[group]:
            m, producer, number = held[group].pop(0)
            mine = owner[group]
            place = {"group": group, "producer": producer, "sequence": number, "session": mine}
            inside = {}
            if transactions and chance.random() < 0.3:
                transaction += 1
                inside = {"transaction": transaction}
            add(100 + mine, "invoke", "ack", m, **place, **inside)
            add(100 + mine, "ok", "ack", m, broker="a1", **place, **inside)
            if inside:
                add(100 + mine, "invoke", "commit", **inside)
                add(100 + mine, "ok", "commit", broker="a1", **inside)
        else:
            lose(owner[group])
    for group in groups:
        for m, producer, number in waiting[group]:
            deliver(owner[group], m, group=group, producer=producer, sequence=number)
    if complete:
        rows += finished(len(rows), read=("a1", "a2", "b1"))
    if chance.random() < 0.7:
        _connect(rows)
    at = 0
    for row in rows:
        at += chance.choice([MS, MS, 50 * MS, 900 * MS])
        row["time"] = at
    return rows


def _connect(rows: list[Row]) -> None:
    """Each client's connection, as it is numbered."""
    for r in rows:
        if r.get("session") is not None:
            r["connection"] = 20 + r["session"]
        elif r["f"] == "send":
            r["connection"] = r["producer"]


def _drop(rows: list[Row], chance: random.Random) -> None:
    del rows[chance.randrange(len(rows))]


def _repeat(rows: list[Row], chance: random.Random) -> None:
    delivered = [r for r in rows if r["f"] == "deliver"]
    if delivered:
        again = dict(chance.choice(delivered))
        again["session"] = chance.choice([again["session"], again["session"], 1, 2, 9])
        again["redelivered"] = chance.choice([True, False, None])
        rows.insert(chance.randrange(rows.index(chance.choice(rows)) + 1), again)


def _swap(rows: list[Row], chance: random.Random) -> None:
    a, b = chance.randrange(len(rows)), chance.randrange(len(rows))
    rows[a], rows[b] = rows[b], rows[a]


def _swap_deliveries(rows: list[Row], chance: random.Random) -> None:
    places = [n for n, r in enumerate(rows) if r["f"] == "deliver"]
    if len(places) > 1:
        a, b = chance.sample(places, 2)
        rows[a], rows[b] = rows[b], rows[a]


def _corrupt(rows: list[Row], chance: random.Random) -> None:
    delivered = [r for r in rows if r["f"] == "deliver"]
    if delivered:
        r = chance.choice(delivered)
        if chance.random() < 0.3:
            for name in ("message", "producer", "sequence", "digest"):
                r[name] = None
            r["error"] = "unreadable"
        else:
            r["digest"] = 1


def _phantom(rows: list[Row], chance: random.Random) -> None:
    rows.insert(
        chance.randrange(len(rows) + 1),
        o(0, 101, "ok", "deliver", 1000 + chance.randrange(2), group=chance.choice(["g", "h", None]),
          session=1, digest=1,
          producer=1, sequence=chance.randrange(5), redelivered=False, broker="a1"),
    )  # fmt: skip


def _outcome(rows: list[Row], chance: random.Random) -> None:
    done = [r for r in rows if r["type"] != "invoke" and r["f"] in ("send", "ack", "commit", "abort")]
    if done:
        chance.choice(done)["type"] = chance.choice(["ok", "fail", "info"])


def _nack(rows: list[Row], chance: random.Random) -> None:
    acks = [r for r in rows if r["f"] == "ack"]
    if acks:
        chosen = chance.choice(acks)
        for r in acks:
            if r.get("message") == chosen.get("message") and r.get("session") == chosen.get("session"):
                r["f"] = "nack"


def _store(rows: list[Row], chance: random.Random) -> None:
    sent = [r for r in rows if r["f"] == "send"]
    if sent:
        kept = _kept(chance.choice(sent), chance)
        if chance.random() < 0.1:
            kept["message"] += 1000  # that nobody sent
        rows.append(kept)


STORES = ("main", "main", "dead-letter", "store-and-forward", "expired", None)


def _kept(sent: Row, chance: random.Random) -> Row:
    told = {name: sent.get(name) for name in ("group", "producer", "sequence")}
    return o(0, -3, "ok", "browse", sent["message"], **told, broker=chance.choice(["a1", "a2", "b1"]),
             digest=sent["message"] * 7,
             value=chance.choice(STORES))  # fmt: skip


def _read_again(rows: list[Row], chance: random.Random) -> None:
    """Stores that are read twice or more, with copies that are there each time or not."""
    sent = [r for r in rows if r["f"] == "send"]
    if not sent:
        return
    of = chance.choice(sent)
    kept = [_kept(of, chance) for _ in range(chance.randint(1, 3))]
    for _ in range(chance.randint(1, 3)):
        rows += [dict(r) for r in kept if chance.random() < 0.9]
        rows += [
            o(0, -3, "ok", "browse", broker=broker) for broker in ("a1", "a2", "b1") if chance.random() < 0.9
        ]


def _one_owner(rows: list[Row], chance: random.Random) -> None:
    at = chance.randrange(len(rows))
    for broker in ("a1", "a2"):
        rows.insert(
            at,
            o(
                0,
                -2,
                "info",
                "role",
                broker=broker,
                node_id=chance.choice(["n", "n", "o"]),
                role="backup",
                time_low=0,
                time_high=0,
            ),
        )


def _misplace(rows: list[Row], chance: random.Random) -> None:
    """A delivery or a stored message, or a whole operation, in another group or queue than the
    rest of its message.
    """
    some = [
        r for r in rows if r["f"] in ("deliver", "browse", "ack", "send") and r.get("message") is not None
    ]
    if some:
        chosen = chance.choice(some)
        place = chance.choice([{"group": "g"}, {"group": "h"}, {"group": None}, {"queue": "r"}])
        for r in some:
            operation = r["f"] in ("ack", "send") and (r["f"], r["message"]) == (
                chosen["f"],
                chosen["message"],
            )
            if operation or r is chosen:
                r.update(place)


def _alter(rows: list[Row], chance: random.Random) -> None:
    shown = [r for r in rows if r["f"] in ("deliver", "browse") and r.get("message") is not None]
    if shown:
        chance.choice(shown)[chance.choice(["producer", "sequence", "digest"])] = 99


def _head(rows: list[Row], chance: random.Random) -> None:
    """Headers of some sends and deliveries, which mostly are the same."""
    for r in rows:
        shown = r["f"] in ("send", "deliver", "browse") and r.get("message") is not None
        if shown and chance.random() < 0.7:
            r["headers"] = r["message"] if chance.random() < 0.97 else 99


def _take_back(rows: list[Row], chance: random.Random) -> None:
    """A time-out of what was delivered, told before, after or of another session; redelivered."""
    got = [r for r in rows if r["f"] == "deliver" and r.get("message") is not None and "session" in r]
    if not got:
        return
    of = chance.choice(got)
    place = {k: of.get(k) for k in ("queue", "group", "message", "producer", "sequence")}
    session = chance.choice([of["session"], of["session"], of["session"], 1, 2])
    told = o(0, 185, "info", "timeout", **place, session=session)
    at = rows.index(of)
    rows.insert(chance.randrange(max(0, at - 3), len(rows)) + 1, told)
    for _ in range(chance.choice([0, 1, 1, 2])):
        again = {**of, "session": chance.choice([of["session"], 1, 2, 3]), "redelivered": True}
        rows.insert(chance.randrange(at, len(rows)) + 1, again)


def _stale(rows: list[Row], chance: random.Random) -> None:
    """An ack in a session, whatever it got."""
    delivered = [r for r in rows if r["f"] == "deliver" and r.get("message") is not None]
    if delivered:
        of = chance.choice(delivered)
        answer = {k: of.get(k) for k in ("queue", "group", "message", "producer", "sequence")}
        answer["session"] = chance.choice([of["session"], 1, 2, 9, None])
        at = chance.randrange(len(rows) + 1)
        rows[at:at] = [
            o(0, 190, "invoke", "ack", **answer),
            o(0, 190, chance.choice(["ok", "fail"]), "ack", broker="a1", **answer),
        ]


def _leave(rows: list[Row], chance: random.Random) -> None:
    """A session that is left in order, and perhaps goes on."""
    session = chance.randint(1, 3)
    at = chance.randrange(len(rows) + 1)
    rows.insert(at, o(0, 180, "invoke", "unsubscribe", session=session))
    if chance.random() < 0.8:
        rows.insert(
            chance.randrange(at, len(rows)) + 1, o(0, 180, "ok", "unsubscribe", session=session, broker="a1")
        )


def _join(rows: list[Row], chance: random.Random) -> None:
    at = chance.randrange(len(rows) + 1)
    rows.insert(at, o(0, 170, "invoke", "subscribe", session=chance.choice([1, 2, 3, 9])))


def _count(rows: list[Row], chance: random.Random) -> None:
    for r in rows:
        if r["f"] == "deliver" and chance.random() < 0.7:
            r["delivery_count"] = chance.choice([1, 1, 2, 3])


def _transact(rows: list[Row], chance: random.Random) -> None:
    """Rows of one message and operation into a transaction, however it ends."""
    some = [r for r in rows if r["f"] in ("send", "ack", "nack") and r.get("message") is not None]
    if not some:
        return
    chosen, transaction = chance.choice(some), 500 + chance.randrange(3)
    for r in some:
        if (r["f"], r["message"]) == (chosen["f"], chosen["message"]):
            r["transaction"] = transaction
    for _ in range(chance.randint(0, 2)):
        f = chance.choice(["commit", "commit", "abort"])
        at = chance.randrange(len(rows) + 1)
        rows.insert(at, o(0, 160, "invoke", f, transaction=transaction))
        rows.insert(
            chance.randrange(at, len(rows)) + 1,
            o(0, 160, chance.choice(["ok", "ok", "info", "fail"]), f, transaction=transaction),
        )


def _tear(rows: list[Row], chance: random.Random) -> None:
    """One effect of a transaction that has several is undone, or done though it was rolled back."""
    inside = [r for r in rows if r.get("transaction") is not None and r.get("message") is not None]
    asked = [r for r in inside if r["type"] == "invoke" and r["f"] in ("send", "ack")]
    if not asked:
        return
    of = chance.choice(asked)
    mine = [r for r in rows if r.get("message") == of["message"]]
    last = next(n for n in range(len(rows), 0, -1) if rows[n - 1]["process"] >= 0)
    told = {k: of.get(k) for k in ("queue", "group", "message", "producer", "sequence")}
    shown = o(0, 199, "ok", "deliver", **told, session=99, broker="a1", redelivered=True,
              digest=of["message"] * 7)  # fmt: skip
    if chance.random() < 0.3:
        rows.append(_kept(of, chance))
    elif of["f"] == "send" and any(r["f"] == "deliver" for r in mine):
        rows[:] = [r for r in rows if r["f"] == "send" or r.get("message") != of["message"]]
    elif chance.random() < 0.5:  # gone since
        at = rows.index(of)
        rows[at:] = [r for r in rows[at:] if r["f"] != "deliver" or r.get("message") != of["message"]]
    else:
        rows[last:last] = [o(0, 199, "invoke", "subscribe", session=99), shown]


def _commit_later(rows: list[Row], chance: random.Random) -> None:
    """A transaction's end is asked for, and answered, later; others go on meanwhile."""
    asked = [r for r in rows if r["f"] == "commit" and r["type"] == "invoke"]
    if asked:
        transaction = chance.choice(asked).get("transaction")
        ends = [r for r in rows if r["f"] == "commit" and r.get("transaction") == transaction]
        at = rows.index(ends[0])
        rest = [r for r in rows if not any(r is end for end in ends)]
        for r in ends:
            at = min(at + chance.randint(1, 4), len(rest))
            rest.insert(at, r)
        rows[:] = rest


def _vanish(rows: list[Row], chance: random.Random) -> None:
    """What a session held is gone with it: its answers and what came of them are taken away."""
    delivered = [r for r in rows if r["f"] == "deliver" and r.get("message") is not None]
    if not delivered:
        return
    of = chance.choice(delivered)
    at = rows.index(of)
    rows[at + 1 :] = [r for r in rows[at + 1 :] if r.get("message") != of["message"] or r["f"] == "send"]
    after = chance.choice([0, at + 1, len(rows)])
    answer = {k: of.get(k) for k in ("queue", "group", "message", "producer", "sequence", "session")}
    f, outcome = chance.choice(
        [("nack", "ok"), ("nack", "info"), ("ack", "fail"), ("ack", "info"), (None, None), (None, None)]
    )
    if f is not None:
        rows += [o(0, 175, "invoke", f, **answer), o(0, 175, outcome, f, broker="a1", **answer)]
    if f is None or chance.random() < 0.3:
        rows.insert(after, o(0, 175, "info", "disconnect", session=of.get("session"), broker="a1"))


def _late_copy(rows: list[Row], chance: random.Random) -> None:
    """A session that was there before gets what another has settled, reads it late, and is lost
    or left; or it works on, as one way or another shows.
    """
    acked = [r for r in rows if r["f"] == "ack" and r["type"] == "ok" and r.get("message") is not None]
    if not acked:
        return
    ack = chance.choice(acked)
    mine = {"session": 88, "broker": "a1", "connection": chance.choice([88, 88, 21, None])}
    told = {k: ack.get(k) for k in ("queue", "group", "message", "producer", "sequence")}
    copy = o(0, 188, "ok", "deliver", **told, **mine, digest=ack["message"] * 7,
             redelivered=chance.choice([True, True, False]),
             delivery_count=chance.choice([1, 2, 3, None]))  # fmt: skip
    at = min(rows.index(ack) + chance.choice([0, 1, 1, 2]), len(rows))
    other = {
        **told,
        "message": chance.choice([r.get("message") for r in rows if r.get("message") is not None]),
    }
    told["message"] = chance.choice([told["message"], told["message"], other["message"]])
    answer = chance.choice(["ok", "ok", "info"])
    after = chance.choice(
        [
            [],
            [o(0, 188, "ok", "deliver", **other, **mine, redelivered=True, digest=other["message"] * 7)],
            [o(0, 189, "invoke", f := chance.choice(["ack", "nack"]), **told, **mine),
             o(0, 189, answer, f, **told, **mine)],
            [o(0, 189, "invoke", "unsubscribe", **mine), o(0, 189, answer, "unsubscribe", **mine)],
            [o(0, 189, "invoke", "subscribe", **{**mine, "session": 87}),
             o(0, 189, answer, "subscribe", **{**mine, "session": 87})],
        ]
    )  # fmt: skip
    places = sorted(chance.randrange(at, len(rows) + 1) for _ in after)
    for place, row in reversed(list(zip(places, after, strict=True))):
        rows.insert(place, row)
    rows.insert(chance.randrange(at, len(rows) + 1), copy)
    rows.insert(chance.randrange(at + 1), o(0, 188, "invoke", "subscribe", **mine))
    if chance.random() < 0.8:
        rows.append(o(0, 188, "info", "disconnect", **mine))


def _reconnect(rows: list[Row], chance: random.Random) -> None:
    """Two sessions on one connection, or one whose connection nobody wrote down."""
    session, connection = chance.choice([1, 2, 3, 9]), chance.choice([21, 22, None])
    for r in rows:
        if r.get("session") == session:
            r["connection"] = connection


def _mute(rows: list[Row], chance: random.Random) -> None:
    """One session's answers never come."""
    session = chance.choice([1, 2, 3, 77])
    for r in rows:
        if r.get("session") == session and r["type"] == "ok" and r["f"] in ("ack", "nack", "unsubscribe"):
            r["type"] = "info"


def _closed(rows: list[Row], chance: random.Random) -> None:
    rows.append(o(0, -3, "info", "browse", broker="a1", error="silent"))


def _role(rows: list[Row], chance: random.Random) -> None:
    at = chance.randrange(len(rows))
    low = rows[at]["time"] - chance.choice([0, MS, 60 * MS])
    rows.insert(
        at,
        o(0, -2, "info", "role", broker=chance.choice(["a1", "a2"]), node_id=chance.choice(["n", "n", "o"]),
          role=chance.choice(["live", "live", "backup", "stopped", "unreachable"]), time_low=low,
          time_high=rows[at]["time"]),
    )  # fmt: skip


def _starve(rows: list[Row], chance: random.Random) -> None:
    """A session that is confirmed and gets nothing for a while.

    What waits for it comes late, or stays in a store.
    """
    delivered = [r for r in rows if r["f"] == "deliver" and r.get("message") is not None]
    sent = [r for r in rows if r["f"] == "send" and r["type"] == "ok"]
    if not delivered or not sent:
        return
    of = chance.choice(delivered)
    session = chance.choice([of["session"], of["session"], 66])
    at = chance.randrange(len(rows))
    mine = {"session": session, "queue": "q", "broker": chance.choice(["a1", "a1", "a1", "a2"])}
    rows.insert(at, o(0, 166, "ok", "subscribe", **mine))
    if chance.random() < 0.6:  # nobody else ever got any of it
        group = of.get("group")
        others = [r for r in rows if r["f"] == "deliver" and r.get("group") == group and r is not of]
        rows[:] = [r for r in rows if not any(r is other for other in others)]
    if chance.random() < 0.5 and of in rows:
        rows.remove(of)
        rows.insert(chance.randrange(min(at, len(rows)), len(rows) + 1), of)
    late = chance.randrange(len(rows))
    for r in rows[late:]:
        r["time"] += 5_000 * MS
    if chance.random() < 0.5:
        rows.append(
            {**of, "session": session, "time": rows[-1]["time"], "message": chance.choice(sent)["message"]}
        )
    else:
        rows.append(o(0, 166, "invoke", "unsubscribe", session=session, time=rows[-1]["time"]))


def _die(rows: list[Row], chance: random.Random) -> None:
    """A send of unknown outcome, whose message comes late.

    Some process is seen to be gone, perhaps the one that took it.
    """
    delivered = [r for r in rows if r["f"] == "deliver" and r.get("message") is not None]
    if not delivered:
        return
    of = chance.choice(delivered)
    for r in rows:
        if r["f"] == "send" and r["type"] != "invoke" and r["message"] == of["message"]:
            r["type"] = "info"
    at = next((n for n, r in enumerate(rows) if r["f"] == "send" and r["message"] == of["message"]), 0)
    broker = chance.choice(["a1", "a1", "a1", "a2"])
    label = {"label": f"k{chance.randrange(10**9)}"}
    told = label | {"observed": {broker: chance.choice(["gone", "gone", "running"])}, "bit": True}
    saw = chance.choice(
        [
            [o(0, -2, "info", "role", broker=broker, role="stopped", time_low=0, time_high=rows[at]["time"])],
            [o(0, -3, "info", "restart", broker=broker)],
            [
                o(0, -1, "invoke", "kill", value=json.dumps(label)),
                o(0, -1, "info", "kill", value=json.dumps(told)),
            ],
        ]
    )
    place = chance.choice([at, at + 1, min(at + 2, len(rows)), len(rows)])
    rows[place:place] = saw
    if chance.random() < 0.7:
        rows.remove(of)
        rows.insert(chance.randrange(min(at, len(rows)), len(rows) + 1), of)
    if chance.random() < 0.2:
        of["broker"] = "a2"


def _silence(rows: list[Row], chance: random.Random) -> None:
    """A broker falls silent, or was never live, beside another of its node ID that is or is not
    live throughout; then it is seen again.
    """
    at = sorted(chance.randrange(len(rows)) for _ in range(4))
    times = [rows[n]["time"] for n in at]
    quiet, other = chance.sample(["a1", "a2", "b1"], 2)
    told = [
        (quiet, chance.choice(["live", "backup"]), "n", times[0]),
        (other, "live", chance.choice(["n", "n", "n", "o"]), times[1]),
        (quiet, "unreachable", None, times[1]),
        (other, chance.choice(["unreachable", "stopped"]), None, times[2]),
        (other, "live", "n", times[2]),
        (quiet, chance.choice(["backup", "backup", "live"]), chance.choice(["n", "o"]), times[3]),
    ]
    for broker, role, node_id, time in reversed(told):
        if chance.random() < 0.8:
            low = chance.choice([time, time - MS, times[0]])
            place = next((n for n, r in enumerate(rows) if r["time"] >= time), len(rows))
            rows.insert(
                place,
                o(0, -2, "info", "role", broker=broker, node_id=node_id, role=role, time=time, time_low=low,
                  time_high=time),
            )  # fmt: skip
    for r in rows:
        if r["process"] >= 0 and r.get("broker") is not None and chance.random() < 0.4:
            r["broker"] = quiet


def _succession(rows: list[Row], chance: random.Random) -> None:
    """Lives of some number, and perhaps takeovers, by one broker or two."""
    node_id, life = chance.choice(["n", "n", "o"]), chance.choice(["1", "2", "3", None])
    for broker in chance.sample(["a1", "a2", "b1"], chance.choice([1, 2])):
        at = chance.randrange(len(rows))
        low = rows[at]["time"] - chance.choice([0, MS, 60 * MS])
        told = {"node_id": node_id, "value": life, "time_low": low, "time_high": rows[at]["time"]}
        if chance.random() < 0.6:
            rows.insert(at, o(0, -2, "info", "takeover", broker=broker, **told))
        if chance.random() < 0.8:
            rows.insert(at, o(0, -2, "info", "role", broker=broker, role="live", **told))


def _view(rows: list[Row], chance: random.Random) -> None:
    """What two brokers say of one thing, which may differ for a while."""
    kind, keys, values = chance.choice(
        [
            ("members", ["n", "n", "o"], ["a1", "a2", None]),
            ("destination", ["q of pair a", "q of pair b"], ["2 messages (01)", "1 message (02)", "nothing"]),
        ]
    )
    for broker in chance.sample(["a1", "a2", "b1"], 2):
        low = rows[-1]["time"] + chance.choice([0, MS, 60 * MS])
        value = json.dumps(
            {
                "kind": kind,
                "key": chance.choice(keys),
                "value": chance.choice(values),
            }
        )
        high = low + chance.choice([-MS, 0, MS, 100 * MS, 100 * MS])
        rows.append(o(0, -3, "ok", "view", broker=broker, value=value, time_low=low, time_high=high))


def _move(rows: list[Row], chance: random.Random) -> None:
    done = [r for r in rows if r.get("broker") == "a1" and r["process"] >= 0]
    for r in done:
        if chance.random() < 0.5:
            r["broker"] = "a2"


def _quiet(rows: list[Row], chance: random.Random) -> None:
    """From some row on nothing is answered with ``ok``."""
    for r in rows[chance.randrange(len(rows)) :]:
        if r["f"] in ("send", "ack") and r["type"] == "ok":
            r["type"] = chance.choice(["info", "fail"])


def _slow(rows: list[Row], chance: random.Random) -> None:
    at = chance.randrange(len(rows))
    for r in rows[at:]:
        r["time"] += 5_000 * MS


def _overlap(rows: list[Row], chance: random.Random) -> None:
    """Another session gets a message of the group while the first still holds one, and both work
    on.
    """
    asked = [n for n, r in enumerate(rows) if r["f"] == "ack" and r["type"] == "invoke"]
    if not asked:
        return
    n = chance.choice(asked)
    others = [
        r
        for r in rows
        if r["f"] == "deliver" and r.get("group") == rows[n].get("group") and r.get("message") is not None
    ]
    taken = dict(chance.choice(others)) if others else None
    if taken is not None:
        taken |= {"session": 77, "process": 177, "redelivered": True}
        answer = {k: taken.get(k) for k in ("queue", "group", "message", "session", "producer", "sequence")}
        rows.insert(n, taken)
        rows.append(o(0, 177, "invoke", "ack", **answer))
        rows.append(o(0, 177, "ok", "ack", broker="a1", **answer))


def _strand(rows: list[Row], chance: random.Random) -> None:
    """A message that was sent for certain is never delivered, but some store has it."""
    sent = [r for r in rows if r["f"] == "send" and r["type"] == "ok"]
    if sent:
        r = chance.choice(sent)
        rows[:] = [x for x in rows if x.get("message") != r["message"] or x["f"] == "send"]
        if chance.random() < 0.7:
            rows.append(
                o(0, -3, "ok", "browse", r["message"], group=r.get("group"), broker="a1", value="main")
            )


def _ask(rows: list[Row], chance: random.Random) -> None:
    """Some sends ask for an expiry, a delay or a priority; an answer may say it more exactly."""
    times = [r["time"] for r in rows]
    for message in {r["message"] for r in rows if r["f"] == "send"}:
        mine = [r for r in rows if r["f"] == "send" and r["message"] == message]
        asked: dict[str, Any] = {}
        for name in ("expires", "delay"):
            if chance.random() < 0.4:
                low = chance.choice(times) + chance.choice([-1, 0, 1, 10**12]) * chance.choice([0, 1])
                asked[name] = [low, chance.choice([low, low + 20 * MS, None])]
        if chance.random() < 0.2:
            asked["priority"] = chance.choice([0, 4, 9])
        for r in mine:
            if asked:
                r["value"] = json.dumps(asked)
            if r["type"] == "ok" and "expires" in asked and chance.random() < 0.5:
                r["value"] = json.dumps({**asked, "expires": [asked["expires"][0], asked["expires"][0] + MS]})


def _clock(rows: list[Row], chance: random.Random) -> None:
    """The clock of a broker is wrong for a while, or to the end."""
    value = json.dumps({"label": f"clock {chance.randrange(2)}", "shape": "x", "bit": True})
    at = chance.randrange(len(rows) + 1)
    for type_ in ("invoke", "info"):
        rows.insert(at, o(0, -1, type_, "clock-step", value=value))
        at += 1
    if chance.random() < 0.7:
        at = chance.randrange(at, len(rows) + 1)
        for type_ in ("invoke", "info"):
            rows.insert(at, o(0, -1, type_, "heal:clock-step", value=value))
            at += 1


_FAULTS = (
    ("clock-rate", "true", "rate 1.5"),
    ("kill", "running", "gone"),
    ("disk-slow", "sound", "slow 9 ms"),
    ("pause", "running", "paused"),
    ("hook", "running", "in force"),
    ("partition", "open", "lost"),
)
"""Kinds, each with what is seen without an effect and with one."""


def _fault(rows: list[Row], chance: random.Random) -> None:
    """A fault of any kind, of brokers of one pair or of several, with or without effect.

    It is healed, or only asked to be, or seen not to be; and roles tell whose pair the brokers are.
    """
    brokers = chance.sample(["a1", "a1", "a2", "b1", "c1"], chance.choice([0, 1, 1, 2]))
    kind, quiet, shows = chance.choice([*[("clock-skew", "true", "skewed 9 ms")] * 4, *_FAULTS])
    links = [f"{broker}->{chance.choice(['a1', 'b1', 'zone1'])}" for broker in brokers]
    places = links if kind == "partition" else [f"{broker}/clock" for broker in brokers]
    label = f"fault {chance.randrange(10**9)}"
    about = {"label": label, "nodes": [] if kind == "partition" else brokers}
    about |= {"links": links if kind == "partition" else []}
    if chance.random() < 0.2:
        about = {"label": label}

    def told() -> dict[str, object]:
        seen = {place: chance.choice([quiet, shows, shows]) for place in places}
        bit = chance.choice([True, True, False])
        return about | chance.choice([{}, {"bit": bit}, *[{"bit": bit, "observed": seen}] * 4])

    at = chance.randrange(len(rows) + 1)
    for f in (kind, f"heal:{kind}"):
        error = chance.choice([None, None, None, "no answer"])
        for type_, value in (("invoke", about), ("info", told())):
            if type_ == "info" and chance.random() < 0.15:
                break
            rows.insert(at, o(0, -1, type_, f, value=json.dumps(value), error=error))
            at = chance.randrange(at + 1, min(len(rows), at + 40) + 1)
        if chance.random() < 0.3:
            break
    for broker in chance.sample(["a1", "a2", "b1", "c1"], chance.choice([0, 2, 4])):
        pair = chance.choice([f"n{broker[0]}", f"n{broker[0]}", "n", None])
        rows.insert(
            0, o(0, -2, "info", "role", broker=broker, role="starting", node_id=pair, time_low=0, time_high=0)
        )


def _refuse(rows: list[Row], chance: random.Random) -> None:
    """A message that is refused once or several times, each time answered, and perhaps dies."""
    delivered = [n for n, r in enumerate(rows) if r["f"] == "deliver" and r.get("message") is not None]
    if not delivered:
        return
    at = chance.choice(delivered)
    of = rows[at]
    rows[:] = [r for r in rows if r["f"] != "ack" or r.get("message") != of["message"]]
    at = rows.index(of) + 1
    answer = {k: of.get(k) for k in ("queue", "group", "message", "session", "producer", "sequence")}
    for turn in range(chance.randint(1, 3)):
        given = {**of, "redelivered": True}
        rows[at:at] = [
            *([given] if turn else []),
            o(0, 195, "invoke", "nack", **answer),
            o(0, 195, chance.choice(["ok", "ok", "info"]), "nack", broker="a1", **answer),
        ]
        at += 2 + bool(turn)
    if chance.random() < 0.6:
        told = {name: of.get(name) for name in ("queue", "group", "message", "producer", "sequence")}
        rows.append(
            o(0, -3, "ok", "browse", broker="a1", digest=of["message"] * 7, value="dead-letter", **told)
        )


def _send_again(rows: list[Row], chance: random.Random) -> None:
    """Repeat the sends of one message or of several, whatever becomes of each attempt."""
    sends = [r for r in rows if r["f"] == "send" and r["type"] == "invoke"]
    for of in chance.sample(sends, min(len(sends), chance.choice([1, 1, 2, 4]))):
        for _ in range(chance.choice([1, 1, 2])):
            process = chance.choice([of["process"], 7000 + len(rows)])
            asked = {**of, "process": process}
            if chance.random() < 0.3:
                asked["transaction"] = chance.choice([of.get("transaction"), 500, 501, None])
            if chance.random() < 0.2:
                asked["value"] = chance.choice([None, '{"close": true}', '{"delay": [0, 5]}'])
            at = chance.randrange(len(rows) + 1)
            rows.insert(at, asked)
            if chance.random() < 0.9:
                answer = {**asked, "type": chance.choice(["ok", "ok", "info", "info", "fail"])}
                answer["broker"] = chance.choice(["a1", "a1", "a2", None])
                rows.insert(chance.choice([at, chance.randrange(at, len(rows))]) + 1, answer)
            if chance.random() < 0.3:
                first = [r for r in rows if r["f"] == "send" and r["message"] == of["message"]]
                chance.choice(first)["type"] = chance.choice(["invoke", "ok", "info", "fail"])


def _close(rows: list[Row], chance: random.Random) -> None:
    """Let a message close its group."""
    sends = [r for r in rows if r["f"] == "send"]
    if sends:
        chosen = chance.choice(sends)
        for r in sends:
            if r["message"] == chosen["message"] and chance.random() < 0.8:
                r["value"] = '{"close": true}'


def _alternate(rows: list[Row], chance: random.Random) -> None:
    """Give what is delivered to a few sessions in turn, which mostly are not told to be others'."""
    sessions = chance.sample([1, 2, 3, 4], chance.choice([2, 2, 3]))
    given: dict[int, int] = {}
    turn = 0
    for r in rows:
        if r["f"] == "deliver" and r.get("message") is not None:
            if r["message"] not in given:
                turn += chance.random() < 0.9
                given[r["message"]] = sessions[turn % len(sessions)]
            r["session"] = given[r["message"]]
            r["redelivered"] = chance.random() < 0.03
        elif r["f"] in ("ack", "nack") and r.get("message") in given:
            r["session"] = given[r["message"]]


DAMAGE: dict[str, Callable[[list[Row], random.Random], None]] = {
    edit.__name__[1:]: edit
    for edit in (
        _drop, _repeat, _swap, _swap_deliveries, _corrupt, _phantom, _outcome, _nack, _store, _closed, _role,
        _succession, _silence, _die, _starve, _view, _move, _quiet, _slow, _overlap,
        _strand, _read_again, _one_owner, _misplace, _alter, _head, _take_back, _stale, _leave, _join, _count,
        _transact, _tear, _commit_later, _vanish, _late_copy, _reconnect, _mute, _ask, _clock, _fault,
        _refuse, _send_again, _close, _alternate,
    )
}  # fmt: skip


def _of_topics(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r.get("subscription") is not None]


def _subscribed_otherwise(rows: list[Row], chance: random.Random) -> None:
    """Another outcome of a subscribe or a drop."""
    done = [r for r in rows if r["f"] in ("subscribe", "drop") and r["type"] != "invoke"]
    if done:
        chance.choice(done)["type"] = chance.choice(["ok", "fail", "info"])


def _of_another(rows: list[Row], chance: random.Random) -> None:
    """One operation, or a session, is of another subscription."""
    some = _of_topics(rows)
    if some:
        of = chance.choice(some)
        name = chance.choice(some)["subscription"]
        whole = chance.random() < 0.5 and of.get("session") is not None
        for r in some:
            same = (r["f"], r["process"], r.get("message")) == (of["f"], of["process"], of.get("message"))
            if same or (whole and r.get("session") == of["session"]):
                r["subscription"] = name


def _select(rows: list[Row], chance: random.Random) -> None:
    """Some session, or all of a name, ask for other messages."""
    asked = [r for r in rows if r["f"] == "subscribe" and r["type"] == "invoke"]
    if asked:
        of = chance.choice(asked)
        value = chance.choice(
            [None, json.dumps({"selector": {"colour": [chance.choice(["red", "blue"])]}}), "no JSON"]
        )
        for r in asked:
            if r is of or (chance.random() < 0.5 and r.get("subscription") == of.get("subscription")):
                r["value"] = value


def _recolour(rows: list[Row], chance: random.Random) -> None:
    """A message had other properties."""
    asked = [r for r in rows if r["f"] == "send" and r["type"] == "invoke"]
    if asked:
        colour = chance.choice([{"colour": "red"}, {"colour": "blue"}, {}, {"colour": 1}])
        chance.choice(asked)["value"] = json.dumps({"properties": colour})


def _dropped(rows: list[Row], chance: random.Random) -> None:
    """A subscription is dropped somewhere; most of its rows are, in a real history, elsewhere."""
    some = _of_topics(rows)
    if some:
        of = chance.choice(some)
        told = {"queue": of["queue"], "subscription": of["subscription"]}
        at = chance.randrange(len(rows) + 1)
        rows.insert(at, o(0, 150, "invoke", "drop", **told))
        if chance.random() < 0.8:
            answer = o(0, 150, chance.choice(["ok", "ok", "info", "fail"]), "drop", **told)
            rows.insert(chance.randrange(at, len(rows)) + 1, answer)


def _to_a_topic(rows: list[Row], chance: random.Random) -> None:
    """A message of a queue was sent to a topic, or the other way round."""
    sent = [r for r in rows if r["f"] == "send"]
    if sent:
        of = chance.choice(sent)
        queue = chance.choice(["/topic/t", "/topic/u", "q"])
        for r in sent:
            if r["message"] == of["message"]:
                r["queue"] = queue


def _kept_for(rows: list[Row], chance: random.Random) -> None:
    """What a subscription did not get is in a store for it."""
    some = [r for r in _of_topics(rows) if r.get("message") is not None]
    sent = [r for r in rows if r["f"] == "send" and r["queue"].startswith("/topic/")]
    if some and sent:
        of, other = chance.choice(sent), chance.choice(some)
        kept = _kept(of, chance) | {"queue": of["queue"], "subscription": other["subscription"]}
        if chance.random() < 0.5:
            for r in rows:
                if r["f"] == "deliver" and r.get("message") == of["message"]:
                    r["f"], r["process"], r["value"] = "browse", -3, "main"
        rows.insert(chance.choice([len(rows), chance.randrange(len(rows) + 1)]), kept)


def _ungroup(rows: list[Row], chance: random.Random) -> None:
    """All messages of one group, or of all, have none."""
    group = chance.choice(["g", "h", None])
    for r in rows:
        if group is None or r.get("group") == group:
            r.pop("group", None)


def _pull(rows: list[Row], chance: random.Random) -> None:
    """Each delivery of one queue, or almost each, was asked for some time before it came."""
    queue, ago = chance.choice(["q", "q", "r"]), chance.choice([0, MS, 60 * MS, 2_000 * MS])
    almost = chance.random() < 0.9
    for r in rows:
        if r["f"] == "deliver" and r.get("queue") == queue and (almost or chance.random() < 0.9):
            r["time_low"] = r["time"] - chance.choice([0, ago])


def _receive(rows: list[Row], chance: random.Random) -> None:
    """Somebody may have taken a message."""
    rows.insert(
        chance.randrange(len(rows) + 1), o(0, 140, "info", "receive", queue=chance.choice(["q", "r"]))
    )


def _alone(rows: list[Row], chance: random.Random) -> None:
    """All of one queue, or of all, goes to one session, which was there before or came later."""
    session = 95  # of nothing else
    asked = o(0, 100 + session, "invoke", "subscribe", session=session, queue=chance.choice(["q", "r", None]))
    rows[:] = [r for r in rows if r["f"] != "subscribe" or r.get("subscription") is not None]
    for r in rows:
        if r.get("session") is not None and r.get("subscription") is None:
            r["session"] = session
    rows.insert(chance.choice([0, 0, 0, chance.randrange(len(rows) + 1)]), asked)


def _hurry(rows: list[Row], chance: random.Random) -> None:
    """Most sends ask for a priority, and nothing has a group."""
    for message in {r["message"] for r in rows if r["f"] == "send"}:
        asked = chance.choice([None, {"priority": 0}, {"priority": 9}, {"priority": 9, "delay": [0, 1]}])
        for r in rows:
            if r["f"] == "send" and r["message"] == message and asked is not None:
                r["value"] = json.dumps(asked)
    for r in rows:
        r.pop("group", None)


def _made_temporary(rows: list[Row], chance: random.Random) -> None:
    """One queue is a temporary one, of whom the first subscription to it was."""
    queue = chance.choice(["q", "q", "r"])
    for r in rows:
        if r.get("queue") == queue or (r["f"] in ("subscribe", "disconnect") and "queue" not in r):
            r["queue"] = f"/temp-queue/{queue}"


def _ended(rows: list[Row], chance: random.Random) -> None:
    """A temporary queue ends somewhere, or behind the beginning of the drain."""
    some = [r["queue"] for r in rows if r.get("queue", "").startswith("/temp-queue/")]
    drain = [n for n, r in enumerate(rows) if r.get("value") == "drain"]
    if some:
        queue = chance.choice(some)
        at = drain[0] + 1 if drain and chance.random() < 0.4 else chance.randrange(len(rows) + 1)
        rows.insert(at, o(0, 151, "invoke", "drop", queue=queue))
        if chance.random() < 0.8:
            answer = o(0, 151, chance.choice(["ok", "ok", "info", "fail"]), "drop", queue=queue)
            rows.insert(chance.randrange(at, len(rows)) + 1, answer)


def _left_in_it(rows: list[Row], chance: random.Random) -> None:
    """What was sent to a temporary queue is in a store, or came on another connection."""
    sent = [r for r in rows if r["f"] == "send" and r["queue"].startswith("/temp-queue/")]
    if sent:
        of = chance.choice(sent)
        rows.insert(chance.choice([len(rows), chance.randrange(len(rows) + 1)]), _kept(of, chance))
        for r in rows:
            if r["f"] == "deliver" and r.get("message") == of["message"] and chance.random() < 0.5:
                r["connection"] = chance.choice([1, 101, 999])


def _left_out(rows: list[Row], chance: random.Random) -> None:
    """Leave a message out of one subscription or temporary queue."""
    read = [r for r in rows if r["f"] == "deliver" and r.get("message") is not None]
    read = [r for r in read if r["queue"].startswith(("/topic/", "/temp-queue/"))]
    if not read:
        return
    of = chance.choice(read)
    names = ("queue", "subscription", "message")
    gone = [r for r in rows if r["f"] != "send" and all(r.get(name) == of.get(name) for name in names)]
    rows[:] = [r for r in rows if not any(r is one for one in gone)]


def _copied_in_part(rows: list[Row], chance: random.Random) -> None:
    """Make the outcome of a send to a topic unknown, alone or in a transaction."""
    sends = [
        r for r in rows if r["f"] == "send" and r["queue"].startswith("/topic/") and r["type"] == "invoke"
    ]
    if not sends:
        return
    of = chance.choice(sends)
    mine = [r for r in rows if r["f"] == "send" and r.get("message") == of["message"]]
    inside, outcome = chance.random() < 0.6, chance.choice(["ok", "info", "info", "fail"])
    for r in mine:
        if inside:
            r["transaction"] = 700 + of["message"]
        elif r["type"] != "invoke":
            r["type"] = outcome
    if inside:
        at = max(n for n, r in enumerate(rows) if any(r is one for one in mine)) + 1
        rows[at:at] = [
            o(0, 164, "invoke", "commit", transaction=700 + of["message"]),
            o(0, 164, outcome, "commit", transaction=700 + of["message"]),
        ]
        if chance.random() < 0.5:  # another message beside it
            other = chance.choice(sends)
            for r in rows:
                if r["f"] == "send" and r.get("message") == other["message"]:
                    r["transaction"] = 700 + of["message"]
    if chance.random() < 0.7:
        _left_out(rows, chance)


def _made_again(rows: list[Row], chance: random.Random) -> None:
    """Make a subscription again, mostly with another selector, or drop it at last."""
    subscribed = [r for r in rows if r["f"] == "subscribe" and r.get("subscription") is not None]
    if not subscribed:
        return
    of = chance.choice(subscribed)
    told = {"queue": of["queue"], "subscription": of["subscription"]}
    at = chance.randrange(rows.index(of), len(rows) + 1)
    if chance.random() < 0.4:
        f, columns = "drop", told
    else:
        value = chance.choice([json.dumps({"selector": {"colour": ["red"]}}), None, None])
        f, columns = "subscribe", told | {"session": 78, "value": value}
    outcome = chance.choice(["ok", "ok", "info", "fail"])
    rows[at:at] = [o(0, 163, "invoke", f, **columns), o(0, 163, outcome, f, broker="a1", **columns)]


def _taken_elsewhere(rows: list[Row], chance: random.Random) -> None:
    """Let another broker, of the same node or not, take, give or serve; or nobody say who."""
    some = [r for r in rows if r.get("broker") is not None and r["f"] in ("send", "deliver", "subscribe")]
    for r in chance.sample(some, min(len(some), chance.randint(1, 4))):
        r["broker"] = chance.choice(["a2", "a2", "b1", None])
    if chance.random() < 0.7:
        at = chance.randrange(len(rows))
        told = {"node_id": "n", "role": "backup", "time_low": rows[at]["time"], "time_high": rows[at]["time"]}
        rows.insert(at, o(0, -2, "info", "role", broker="a2", **told))


def _administered(rows: list[Row], chance: random.Random) -> None:
    """Have an administrator delete a queue, or make it, with or without an answer."""
    sent = [r["queue"] for r in rows if r["f"] == "send"]
    if not sent:
        return
    told = {"queue": chance.choice(sent)}
    f, process = chance.choice(["delete", "delete", "delete", "create"]), chance.randrange(170, 176)
    at = chance.randrange(len(rows) + 1)
    rows.insert(at, o(0, process, "invoke", f, **told))
    if chance.random() < 0.85:
        outcome, broker = (
            chance.choice(["ok", "ok", "ok", "info", "fail"]),
            chance.choice(["a1", "a1", "b1", None]),
        )
        end = chance.randrange(at, min(len(rows), at + 8)) + 1
        rows.insert(end, o(0, process, outcome, f, broker=broker, **told))
    if chance.random() < 0.3:  # a broker starts and must have heard of it
        for role in ("live", "stopped"):
            low = rows[at]["time"] + chance.choice([-MS, 0, 60 * MS])
            rows.insert(
                chance.randrange(at, len(rows)) + 1,
                o(0, -2, "info", "role", broker=chance.choice(["a1", "a2", "b1"]), node_id=None,
                  role=role, time_low=low, time_high=low),
            )  # fmt: skip


def _restored(rows: list[Row], chance: random.Random) -> None:
    """Restore an earlier record of changes, and mostly delete a queue about then."""
    kind, options = chance.choice([("restore-record", {}), ("administer", {"command": "restore"})])
    label = f"restore {chance.randrange(10**9)}"
    told = {"label": label, "nodes": ["a1"], "options": options}
    at = chance.randrange(len(rows) + 1)
    steps = [("invoke", kind), ("info", kind), ("invoke", f"heal:{kind}"), ("info", f"heal:{kind}")]
    for type_, f in steps[: chance.choice([1, 2, 4, 4, 4])]:
        seen = {} if type_ == "invoke" else {"bit": True, "observed": {"a1": "restored"}}
        rows.insert(at, o(0, -1, type_, f, value=json.dumps(told | seen)))
        at = chance.randrange(at + 1, min(len(rows), at + 20) + 1)
    if chance.random() < 0.8:
        _administered(rows, chance)


DAMAGE_BESIDE: dict[str, Callable[[list[Row], random.Random], None]] = {
    edit.__name__[1:]: edit
    for edit in (
        _subscribed_otherwise, _of_another, _select, _recolour, _dropped, _to_a_topic, _kept_for,
        _ungroup, _pull, _receive, _alone,
        _hurry, _made_temporary, _ended, _left_in_it,
        _left_out, _copied_in_part, _made_again, _taken_elsewhere, _administered, _restored,
    )
}  # fmt: skip
"""Apart, so that what the other tests draw by chance stays what it is."""


def damage(
    rows: list[Row],
    edits: list[tuple[str, int]],
    known: Mapping[str, Callable[[list[Row], random.Random], None]] = DAMAGE,
) -> list[Row]:
    """The history after the edits, its indexes dense and its times ascending again.

    No delivery is said to have been asked for after it was read: an import refuses such a row.
    """
    rows = [dict(r) for r in rows]
    for name, seed in edits:
        if rows:
            known[name](rows, random.Random(seed))
    times = sorted(r["time"] for r in rows)
    rows = [{**r, "index": n, "time": time} for n, (r, time) in enumerate(zip(rows, times, strict=True))]
    for r in rows:
        if r["f"] == "deliver" and r.get("time_low") is not None:
            r["time_low"] = min(r["time_low"], r["time"])
    return [{name: value for name, value in r.items() if value is not None} for r in rows]


edits = st.lists(st.tuples(st.sampled_from(sorted(DAMAGE)), st.integers(0, 10_000)), max_size=5)
histories = st.builds(
    lambda seed, transactions, complete, changes: damage(
        correct(seed, transactions=transactions, complete=complete), changes
    ),
    st.integers(0, 2**32),
    st.booleans(),
    st.sampled_from([True, True, True, False]),
    edits,
)
