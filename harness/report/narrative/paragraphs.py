"""The story of a finding as one paragraph.

It says who sent what and when, who acknowledged it in which role, what was broken, and why the end
is a contradiction.

Why only from rows: a paragraph that guesses misleads an engineer with authority. Every clause is a
row of the history, a role that the monitor saw or a fault that the nemesis recorded; what is not
known is not said. Moments are the history's, as in its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from checkers.anomaly import named
from checkers.asked import properties_of, selector_of
from checkers.delivery import ANOTHERS, UNWANTED
from checkers.schema import HARNESS, TEMPORARY, json_object
from checkers.verdict import Verdict
from harness.history import parquet
from harness.report.narrative import ownership
from harness.report.narrative.cluster_state import CHANGES_MAX, listed
from harness.report.narrative.excerpt import ExcerptReader, Row
from harness.report.narrative.fragments import Clauses
from harness.report.narrative.sentences import because, capital, shortened
from harness.report.narrative.story import Story, compose
from harness.report.narrative.subscriptions import wanted
from harness.report.summary import by_cause

AFTER_NS: Final = 5_000_000_000
"""The time after the end of a transaction in which a change may still explain it (ns)."""
_SUBSCRIPTIONS: Final = 3


def paragraph(story: Story) -> str:
    """Return the story and the rule that it breaks as one paragraph."""
    return " ".join(sentence for sentence in (*_told(story), named(story.finding.name).rule) if sentence)


def of_gravest(directory: Path, verdict: Verdict, characters: int) -> str:
    """Return the story of the first grave finding of a stored run, for a reader in a terminal.

    Empty if there is none.

    If the whole story needs more than ``characters``, fewer of the changes meanwhile are named.
    """
    grave = next((each for each in by_cause(verdict.findings) if each.severity == "grave"), None)
    if grave is None:
        return ""
    story = compose(grave, ExcerptReader(directory / parquet.DIRECTORY).of(grave))
    whole = " ".join(sentence for sentence in _told(story) if sentence)
    if len(whole) <= characters:
        return whole
    return " ".join(sentence for sentence in _told(story, changes=2) if sentence)


def _told(story: Story, changes: int = CHANGES_MAX) -> Sequence[str]:
    return _TELLERS.get(story.finding.name, _in_general)(Clauses(story, changes))


def _gone(of: Clauses) -> list[str]:
    """Tell of a message that was sent and did not arrive; used for lost and for stuck messages."""
    sent = of.one("send", "ok", of.message)
    told = [of.sent(of.message)]
    since = None if sent is None else of.standing.unprotected(sent.get("broker"), sent["time"])
    if sent is not None and since is not None:
        told.append(
            f"{sent['broker']} had no up-to-date backup then (since {of.standing.seconds(since)}): what "
            "it acknowledged was nowhere else."
        )
    browse = next(iter(of.shown("phase", value="browse")), None)
    told.append(of.meanwhile(sent, browse, "After that"))
    return [*told, *_beside(of)]


def _beside(of: Clauses) -> list[str]:
    """Tell whether the producer's messages directly before and after it arrived."""
    own = of.one("send", "invoke", of.message)
    told = []
    arrived: set[int] = set()
    for row in filter(of.here, of.story.neighbours):
        if own is not None and row["f"] == "deliver" and row["message"] not in arrived:
            arrived.add(row["message"])
            which = "before" if row.get("sequence", 0) < own.get("sequence", 0) else "after"
            told.append(
                f"Its producer's message {which} it in the {'group' if 'group' in row else 'queue'} did "
                f"arrive: {of.delivered(row)}."
            )
            told.append(
                of.session_end(row.get("session"), row["index"], 1 << 62) if which == "before" else ""
            )
    return told


def _lost(of: Clauses) -> list[str]:
    browse = next(iter(of.shown("phase", value="browse")), None)
    looked = "" if browse is None else f" (looked into from {of.at(browse)} on)"
    return _missing(of, f", and when the queues had been drained no store of any broker held it{looked}.")


def _stuck(of: Clauses) -> list[str]:
    kept = of.one("browse", "ok", of.message)
    held = (
        "a store still held it"
        if kept is None
        else f"{kept.get('broker', 'a broker')} still held it in its {kept.get('value', 'main')} store "
        f"at {of.at(kept)}"
    )
    return _missing(of, f"; {held}.")


def _missing(of: Clauses, looked: str) -> list[str]:
    """Tell of a message that was never settled; ``looked`` says what the stores showed."""
    m = of.names.message(of.message)
    got = of.one("deliver", "ok", of.message)
    told = [of.life(), *_gone(of), *_elsewhere(of)]
    whose = "" if of.subscription is None else f" of {of.subscription.name}"
    if got is None:
        return [*told, f"No consumer{whose} ever got {m}{looked}"]
    nobody = f"No consumer{whose}" if whose else "Nobody"
    return [*told, *_let_go(of, got), f"{nobody} got {m} after that{looked}"]


def _elsewhere(of: Clauses) -> list[str]:
    """Tell whether other subscriptions of the topic got the message."""
    others = of.elsewhere(of.message)
    if not others:
        return []
    names = [str(row["subscription"]) for row in others[:_SUBSCRIPTIONS]]
    more = len(others) - len(names)
    named = listed([*names, *([f"{more} more"] if more else [])])
    s, first = ("", "") if len(others) == 1 else ("s", "first ")
    return [f"Subscription{s} {named} of the same topic got it: {first}{of.delivered(others[0])}."]


def _let_go(of: Clauses, got: Row) -> list[str]:
    """Tell of the last delivery of a message that was never settled, and how its session ended."""
    last = of.rows("deliver", "ok", of.message)[-1]
    return [
        f"{capital(of.delivered(last))}{of.force(last['time'])}.",
        of.session_end(last.get("session"), got["index"], 1 << 62),
    ]


def _phantom(of: Clauses) -> list[str]:
    got = of.completing()
    if got is None:
        return []
    if got["f"] == "ack":
        return [of.acknowledged(got), f"That session had never got {of.named(got)}."]
    sent = of.one("send", "invoke", of.message)
    when = "ever" if sent is None else "by then"
    return [f"{capital(_shown(of, got))}.", f"No producer had {when} begun to send {of.named(got)}."]


def _shown(of: Clauses, row: Row) -> str:
    """Return where a message appeared, as a clause: delivered, or in a store."""
    if row["f"] == "browse":
        what = of.names.message(row.get("message"))
        return f"{of.seen(row)} had {what} in its {row.get('value', 'main')} store at {of.at(row)}"
    return f"{of.delivered(row)}{of.force(row['time'])}"


def _corrupted(of: Clauses) -> list[str]:
    got = of.completing()
    if got is None:
        return []
    told = [of.sent(of.message), f"{capital(_shown(of, got))}."]
    sent = of.one("send", "invoke", of.message)
    if sent is not None and str(sent.get("queue")).startswith(TEMPORARY):
        told.insert(0, of.life_of(sent["queue"]))
    if sent is not None and sent.get("digest") != got.get("digest") and "digest" in sent and "digest" in got:
        told.append(
            f"The checksum of its body was {sent['digest']:08x} when it was sent and "
            f"{got['digest']:08x} when it arrived."
        )
    elif sent is not None:
        told += [
            f"Its {name} was {sent.get(name)} when it was sent and {got.get(name)} when it arrived."
            for name in ("queue", "group", "producer", "sequence")
            if sent.get(name) != got.get(name)
        ]
    elif of.message is None:
        told.append(f"Nobody can say which message it was{because(got)}.")
    return told


def _not_subscribed(of: Clauses) -> list[str]:
    got = of.completing()
    if got is None:
        return [of.life(), of.sent(of.message)]
    return [of.life(), of.sent(of.message), f"Nevertheless {_shown(of, got)}.", _not_for_it(of, got)]


def _not_for_it(of: Clauses, got: Row) -> str:
    """Tell why a delivery was wrong: what its consumer had asked for, or since when it existed."""
    session = got.get("session")
    asked = [row for row in of.rows("subscribe", "invoke") if row.get("session") == session]
    selector = next((some for row in asked if (some := selector_of(row.get("value")))), None)
    if of.example.get("key") == ANOTHERS:
        return f"That was on connection {got.get('connection')}, which does not own the queue."
    if of.example.get("key") != UNWANTED:
        return "It had been sent, for certain, before that subscription was there."
    if selector is None:
        return ""
    sent = of.one("send", "invoke", of.message) or {}
    has = [
        f"{name} = {value}" for name, value in properties_of(sent.get("value")).items() if name in selector
    ]
    return (
        f"{capital(of.names.client(got))} had asked only for {wanted(selector)}, and "
        f"{of.names.message(of.message)} has {listed(has) or 'nothing of that'}."
    )


def _aborted(of: Clauses) -> list[str]:
    got = of.completing()
    sent = of.one("send", "invoke", of.message)
    told = of.transaction((sent or {}).get("transaction")) or [of.sent(of.message)]
    if got is None:
        return told
    return [*told, of.meanwhile(sent, got), f"Nevertheless {_shown(of, got)}."]


def _uncommitted(of: Clauses) -> list[str]:
    got = of.completing()
    number = (of.one("send", "invoke", of.message) or {}).get("transaction")
    told = of.transaction(number) or [of.sent(of.message)]
    known = of.story.transactions.get(number) if number is not None else None
    asked = None if known is None else known.asked
    if got is None:
        return told
    if asked is None or asked["f"] != "commit":
        return [*told, f"Nevertheless {_shown(of, got)}."]
    early = f"{(asked['time'] - got['time']) / 1e9:.3f} s before the commit was asked for"
    return [*told, f"But {of.delivered(got)}, {early}{of.force(got['time'])}."]


def _torn(of: Clauses) -> list[str]:
    """Tell of a transaction which part of it happened, and which did not."""
    details = of.story.finding.details
    told = _with_changes(of, details.get("transaction"))
    if not told:
        return [of.story.finding.sentence]
    for which, words in (("happened", "Part of it happened"), ("missing", "Part of it did not")):
        effects = _effects(of, details.get(which, ()))
        told.append(f"{words}: {effects}." if effects else "")
    return told


def _effects(of: Clauses, effects: Sequence[Row]) -> str:
    """Return a transaction's effects in words, equal ones together, each with its evidence."""
    alike: dict[tuple[str, str], list[Row]] = {}
    for effect in effects:
        alike.setdefault((effect["f"], effect["how"]), []).append(effect)
    return "; ".join(_alike(of, f, how, some) for (f, how), some in alike.items())


def _alike(of: Clauses, f: str, how: str, effects: Sequence[Row]) -> str:
    verb = "sending" if f == "send" else "taking"
    what = f"{verb} {listed([of.names.message(effect['message']) for effect in effects])}"
    them = "it" if len(effects) == 1 else "them"
    if how == "nowhere":
        return f"{what} (nobody ever got {them}, and in the end no store had {them})"
    if how == "skipped":
        return f"{what} (a subscription was given a later message without {them})"
    if how == "consumed":
        return f"{what} (nobody got {them} again, and in the end no store had {them})"
    shown = _evidence(of, how, effects[0])
    return f"{what} ({shown})" if shown else what


def _evidence(of: Clauses, how: str, effect: Row) -> str:
    """Return the delivery or the find in a store that proves an effect."""
    message = effect["message"]
    if how in {"stored", "kept"}:
        kept = of.one("browse", "ok", message)
        return "" if kept is None else _shown(of, kept)
    after = -1 if how == "delivered" else effect["index"]
    got = next((row for row in of.rows("deliver", "ok", message) if row["index"] > after), None)
    return "" if got is None else of.delivered(got, again=how == "again")


def _wrong_total(of: Clauses) -> list[str]:
    """Tell of a bank how much is wrong, and what became of the first account that is wrong."""
    details = of.story.finding.details
    wrong = next(iter(details.get("accounts", ())), None)
    if wrong is None:
        return [of.story.finding.sentence]
    expected, left, message = details["expected"], details["left"], wrong["message"]
    differs = f"{expected - left:,} are missing" if left < expected else f"{left - expected:,} too many"
    told = [
        (
            f"The accounts were given {expected:,} in all; when the queues had been drained and the stores "
            f"read, they held {left:,}: {differs}."
        )
    ]
    within = _with_changes(of, wrong.get("transaction"))
    if within:
        told += within
    else:
        account = f"account {wrong['account']}" if wrong["account"] else "an account"
        told += [of.sent(message), f"By that message {account} held {wrong['amount']:,}."]
    m = of.names.message(message)
    if left < expected:
        answer = ", nor what was sent in its place" if details["first_taken"] else ""
        return [*told, f"In the end neither the drain nor a store had {m}{answer}."]
    if details["first_left"]:
        return [*told, f"Nevertheless {m} was still there in the end."]
    return [*told, f"What was sent in place of {m} is there more than once."]


def _with_changes(of: Clauses, number: int | None) -> list[str]:
    """Tell of a transaction and of the changes meanwhile and soon after; nothing for none."""
    known = None if number is None else of.story.transactions.get(number)
    if known is None:
        return []
    end = known.end or known.asked or known.begun
    changed = of.between(known.begun["time"], end["time"] + AFTER_NS, "After its begin")
    return [*of.transaction(known.number), changed]


def _resurrected(of: Clauses) -> list[str]:
    kept = of.completing()
    if kept is None:
        return [of.sent(of.message)]
    copies = [row for row in of.rows("browse", "ok", of.message) if row["index"] in of.witness]
    confirmed = of.one("ack", "ok", of.message)
    if confirmed is not None and len(copies) == 1:
        return [of.sent(of.message), of.acknowledged(confirmed), f"Nevertheless {_shown(of, kept)}."]
    if of.temporary is not None and confirmed is None and len(copies) == 1:
        return [of.life(), of.sent(of.message), f"Nevertheless {_shown(of, kept)}."]
    told = " and ".join(f"{row.get('broker', 'a broker')} at {of.at(row)}" for row in copies)
    return [
        of.sent(of.message),
        f"Copies of it were in the main stores of {told}: more than one each time they were looked into.",
    ]


def _expired(of: Clauses) -> list[str]:
    got, end = of.completing(), _wished(of, "expires", 1)
    if got is None or end is None:
        return _in_general(of)
    passed = f"{(got['time'] - end) / 1e9:.3f} s later"
    return [
        of.sent(of.message),
        f"By {of.standing.seconds(end)} it had certainly expired.",
        f"Nevertheless {_shown(of, got)}, {passed}.",
    ]


def _early(of: Clauses) -> list[str]:
    got, due = of.completing(), _wished(of, "delay", 0)
    if got is None or due is None:
        return _in_general(of)
    return [
        of.sent(of.message),
        f"It was not to be delivered before {of.standing.seconds(due)}.",
        f"Nevertheless {_shown(of, got)}, {(due - got['time']) / 1e9:.3f} s too early.",
    ]


def _wished(of: Clauses, name: str, which: int) -> int | None:
    """Return an end of the interval in which a message was to expire or was due."""
    found = None
    for row in of.rows("send", None, of.message):
        span = (json_object(row.get("value")) or {}).get(name)
        if isinstance(span, list) and len(span) > which and span[which] is not None:
            found = int(span[which])
    return found


def _died(of: Clauses) -> list[str]:
    kept = of.completing()
    if kept is None:
        return _in_general(of)
    got = of.rows("deliver", "ok", of.message)
    times = len(of.rows("nack", "invoke", of.message))
    refused = "Nobody had refused it" if not times else f"It had been refused {_times(times)}"
    return [
        of.sent(of.message),
        *(_let_go(of, got[0]) if got else ["No consumer ever got it."]),
        f"{refused}.",
        f"Nevertheless {_shown(of, kept)}.",
    ]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _too_late(of: Clauses) -> list[str]:
    got = of.completing()
    if got is None:
        return []
    return [of.session_end(got.get("session"), -1, got["index"]), f"Nevertheless {_shown(of, got)}."]


def _again(of: Clauses) -> list[str]:
    """Tell of a message that was delivered more than once."""
    late = of.completing()
    early = None if late is None else of.latest(of.rows("deliver", "ok", of.message), late["index"])
    if late is None or early is None:
        return _came(of)
    return [of.sent(of.message), *_twice(of, early, late)]


def _twice(of: Clauses, early: Row, late: Row) -> list[str]:
    """Tell of two deliveries of one message, and of what happened between them."""
    confirmed = of.confirmed(early, late["index"])
    since = early if confirmed is None else confirmed
    what = "that delivery" if confirmed is None else "the acknowledgement was confirmed"
    passed = f"{(late['time'] - since['time']) / 1e9:.3f} s after {what}"
    told = [
        f"{capital(of.delivered(early))}{of.force(early['time'])}.",
        of.acknowledged(confirmed),
        of.session_end(early.get("session"), early["index"], late["index"]),
        of.meanwhile(early, late),
        f"Then {of.delivered(late, again=True)}, {passed}.",
    ]
    same = early.get("session") == late.get("session")
    if confirmed is None and same and of.story.finding.name == "duplicate":
        told.append(f"{capital(of.names.client(late))} had not given it back in between.")
    return told


def _came(of: Clauses) -> list[str]:
    """Tell of the deliveries of a message, without more to say about them."""
    return [
        of.sent(of.message),
        *(f"{capital(of.delivered(row))}." for row in of.rows("deliver", "ok", of.message)[:3]),
    ]


def _redelivered(of: Clauses) -> list[str]:
    """Tell of the first two deliveries: the example of this kind of finding is the first."""
    got = of.rows("deliver", "ok", of.message)
    if len(got) < 2:
        return _came(of)
    return [of.sent(of.message), *_twice(of, got[0], got[1])]


def _held_twice(of: Clauses) -> list[str]:
    """Tell of two sessions that hold one message, or messages of one group, at once."""
    late = of.completing()
    if late is None:
        return []
    others = (
        row
        for row in of.rows("deliver", "ok", of.message)
        if row.get("session") != late.get("session")
        and all(row.get(name) == late.get(name) for name in ("queue", "group"))
    )
    early = of.latest(others, late["index"])
    if early is None:
        return _came(of)
    return [
        *(of.sent(message) for message in dict.fromkeys(row.get("message") for row in (early, late))),
        of.led_to(late["time"], "What had changed before"),
        f"{capital(of.delivered(early))}.",
        f"Then {of.delivered(late)}{of.force(late['time'])}.",
        _still_held(of, early, late),
    ]


def _still_held(of: Clauses, early: Row, late: Row) -> str:
    """Tell why the first of two sessions certainly still held its message."""
    holder = capital(of.names.client(early))
    what = of.names.message(early.get("message"))
    alive = [
        row
        for row in of.story.finding.witness.rows
        if row["f"] in {"ack", "nack"}
        and row["type"] == "ok"
        and row.get("session") == early.get("session")
        and row["index"] > late["index"]
    ]
    if not alive:
        return f"{holder} had not let go of {what} by then, nor been disconnected."
    return (
        f"{holder} had not let go of {what} by then: {alive[0].get('broker', 'its broker')} still "
        f"answered that session at {of.at(alive[0])}."
    )


def _out_of_order(of: Clauses) -> list[str]:
    late = of.completing()
    if late is None:
        return [of.sent(of.message)]
    others = (row for row in of.rows("deliver", "ok") if row.get("message") not in {None, of.message})
    early = of.latest(others, late["index"])
    if early is None:
        return [of.sent(of.message), f"{capital(of.delivered(late))}, too late."]
    return [
        of.sent(of.message),
        of.sent(early.get("message"), full=False),
        f"{capital(of.delivered(early))}.",
        of.meanwhile(early, late),
        f"Only then {of.delivered(late)}{of.force(late['time'])}.",
    ]


def _overtaken(of: Clauses) -> list[str]:
    """Tell of a delivery, and of the message named by the key that had to come before it."""
    early, key = of.completing(), str(of.example.get("key", ""))
    late = int(key) if key.lstrip("-").isdigit() else None
    if early is None or late is None:
        return [of.story.finding.sentence]
    told = [of.sent(late), of.sent(of.message, full=False)]
    if any("transaction" in row for row in of.rows("send", "invoke")):
        told.append("What a transaction sends is in its queue from the commit on.")
    behind = f"{capital(of.delivered(early))}; nobody had got {of.names.message(late)} by then"
    got = of.one("deliver", "ok", late)
    if got is None:
        return [*told, f"{behind}, and nobody ever did."]
    return [
        *told,
        f"{behind}.",
        of.meanwhile(early, got),
        f"Only then {of.delivered(got)}{of.force(got['time'])}.",
    ]


# --------------------------------------------------------------------------------------- of brokers


def _unavailable(of: Clauses) -> list[str]:
    details = of.story.finding.details
    begin, end = details.get("begin_ns"), details.get("end_ns")
    if begin is None or end is None:
        return [of.story.finding.sentence]
    key = str(of.example.get("key", ""))
    kind, _, rest = key.partition(" ")
    nothing = {
        "operation": f"no {rest} of any client succeeded",
        "client": f"nothing that {rest} sent was acknowledged",
        "broker": f"{rest} acknowledged no send",
        "queue": f"nothing succeeded in queue {rest}",
        "group": f"nothing succeeded in group {rest}",
    }
    missed = nothing.get(kind, f"nothing succeeded ({key})")
    told = [f"For {of.span(begin, end)}, {missed}{of.force(begin)}."]
    failed = [row for row in of.story.rows if begin <= row["time"] <= end and row["type"] in {"fail", "info"}]
    errors = sorted({shortened(row["error"]) for row in failed if row.get("error")})
    if errors:
        told.append(f"What clients saw: {', '.join(errors[:4])}.")
    return [*told, of.between(begin, end, "Meanwhile"), *of.excuse()]


def _starved(of: Clauses) -> list[str]:
    details = of.story.finding.details
    begin, end = details.get("begin_ns"), details.get("end_ns")
    if begin is None or end is None:
        return [of.story.finding.sentence]
    who = capital(str(of.example.get("key", "a session")))
    told = [
        of.sent(of.message),
        f"{who} held nothing, and got nothing for {of.span(begin, end)}{of.force(begin)}.",
        of.between(begin, end, "Meanwhile"),
    ]
    got = of.rows("deliver", "ok", of.message)
    told.append(f"Only then {of.delivered(got[0])}." if got else "")
    return [*told, *of.excuse()]


def _not_recovered(of: Clauses) -> list[str]:
    healed = next(iter(of.shown("phase", value="heal")), None)
    said = of.completing()
    told = [] if healed is None else [f"Every fault was healed at {of.at(healed)}."]
    if said is None:
        return told
    told.append(of.meanwhile(healed, said, "After that"))
    if said["process"] == HARNESS:
        told.append(f"At {of.at(said)} the recovery bound had passed, and operations still did not succeed.")
    else:
        told.append(
            "Of the operations that ended after the recovery bound none succeeded; the first ended at "
            f"{of.at(said)}."
        )
    roles = [of.standing.as_seen(broker, said["time"]) for broker in of.story.brokers]
    told.append(f"Brokers at that moment: {', '.join(roles)}." if roles else "")
    return told


def _in_general(of: Clauses) -> list[str]:
    """Tell of a finding of any other kind: its sentence, and what happened to its messages."""
    messages = list(
        dict.fromkeys(row["message"] for row in of.story.finding.witness.rows if "message" in row)
    )
    told = [of.story.finding.sentence, *[of.sent(message) for message in messages[:2]]]
    for message in messages[:2]:
        got = of.rows("deliver", "ok", message)
        if got:
            told.append(f"{capital(of.delivered(got[0]))}.")
    return told


def _admitted(of: Clauses) -> Sequence[str]:
    return [of.story.finding.sentence, "The log of that broker has more."]


_TELLERS: Final[dict[str, Callable[[Clauses], Sequence[str]]]] = {
    "lost": _lost,
    "stuck": _stuck,
    "phantom": _phantom,
    "corrupted": _corrupted,
    "aborted-delivery": _aborted,
    "not-subscribed": _not_subscribed,
    "read-uncommitted": _uncommitted,
    "torn-transaction": _torn,
    "wrong-total": _wrong_total,
    "resurrected": _resurrected,
    "late-delivery": _too_late,
    "expired-delivery": _expired,
    "early-delivery": _early,
    "died-early": _died,
    "count-fell": _again,
    "count-stuck": _again,
    "duplicate": _again,
    "unflagged-redelivery": _again,
    "redelivery": _redelivered,
    "double-delivery": _held_twice,
    "group-split": _held_twice,
    "reordered": _out_of_order,
    "reordered-realtime": _out_of_order,
    "reordered-session": _out_of_order,
    "not-linearizable": _overtaken,
    "split-brain": ownership.split_brain,
    "double-takeover": ownership.double_takeover,
    "zombie": ownership.zombie,
    "diverged": ownership.diverged,
    "unavailable": _unavailable,
    "starved": _starved,
    "internal-error": _admitted,
    "not-recovered": _not_recovered,
}
