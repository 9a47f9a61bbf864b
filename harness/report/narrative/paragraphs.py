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
from harness.report.narrative.subscriptions import selector_words
from harness.report.summary import by_cause

AFTER_NS: Final = 5_000_000_000
"""The time after the end of a transaction in which a change may still explain it (ns)."""
_SUBSCRIPTIONS: Final = 3


def paragraph(story: Story) -> str:
    """Return the story and the rule that it breaks as one paragraph."""
    return " ".join(sentence for sentence in (*_sentences(story), named(story.finding.name).rule) if sentence)


def of_gravest(directory: Path, verdict: Verdict, characters: int) -> str:
    """Return the story of the first grave finding of a stored run, for a reader in a terminal.

    Empty if there is none.

    If the whole story needs more than ``characters``, fewer of the changes meanwhile are named.
    """
    grave = next((finding for finding in by_cause(verdict.findings) if finding.severity == "grave"), None)
    if grave is None:
        return ""
    story = compose(grave, ExcerptReader(directory / parquet.DIRECTORY).excerpt_of(grave))
    full = " ".join(sentence for sentence in _sentences(story) if sentence)
    if len(full) <= characters:
        return full
    return " ".join(sentence for sentence in _sentences(story, changes=2) if sentence)


def _sentences(story: Story, changes: int = CHANGES_MAX) -> Sequence[str]:
    return _TELLERS.get(story.finding.name, _in_general)(Clauses(story, changes))


def _not_arrived(clauses: Clauses) -> list[str]:
    """Tell of a message that was sent and did not arrive; used for lost and for stuck messages."""
    sent = clauses.first_row("send", "ok", clauses.message)
    sentences = [clauses.sent(clauses.message), _deleted_before(clauses)]
    since = None if sent is None else clauses.standing.unprotected(sent.get("broker"), sent["time"])
    if sent is not None and since is not None:
        sentences.append(
            f"{sent['broker']} had no up-to-date backup then (since {clauses.standing.seconds(since)}): "
            "messages that it acknowledged were stored nowhere else."
        )
    browse = next(iter(clauses.shown_rows("phase", value="browse")), None)
    sentences.append(clauses.meanwhile(sent, browse, "After that"))
    return [*sentences, *_neighbours(clauses)]


def _deleted_before(clauses: Clauses) -> str:
    """Return when the queue was last deleted before a message was sent; empty if it was not."""
    sent = clauses.first_row("send", "invoke", clauses.message)
    deletes = clauses.rows("delete", "ok")
    last = None if sent is None else clauses.latest(deletes, sent["index"])
    if last is None:
        return ""
    return f"Before that, {last['broker']} had confirmed a deletion of the queue at {clauses.at(last)}."


def _neighbours(clauses: Clauses) -> list[str]:
    """Tell whether the producer's messages directly before and after it arrived."""
    send = clauses.first_row("send", "invoke", clauses.message)
    sentences = []
    arrived: set[int] = set()
    for row in filter(clauses.is_in_scope, clauses.story.neighbours):
        if send is not None and row["f"] == "deliver" and row["message"] not in arrived:
            arrived.add(row["message"])
            side = "before" if row.get("sequence", 0) < send.get("sequence", 0) else "after"
            sentences.append(
                f"The producer's message {side} it in the {'group' if 'group' in row else 'queue'} "
                f"arrived: {clauses.delivered(row)}."
            )
            sentences.append(
                clauses.session_end(row.get("session"), row["index"], 1 << 62) if side == "before" else ""
            )
    return sentences


def _lost(clauses: Clauses) -> list[str]:
    if clauses.standing.is_drained:
        return _missing(clauses, ", and the history says that everything left was received in the end.")
    browse = next(iter(clauses.shown_rows("phase", value="browse")), None)
    looked = "" if browse is None else f" (they were read from {clauses.at(browse)} on)"
    return _missing(
        clauses, f", and when the queues had been drained no store of any broker held it{looked}."
    )


def _stuck(clauses: Clauses) -> list[str]:
    browsed = clauses.first_row("browse", "ok", clauses.message)
    holder = (
        "a store still held it"
        if browsed is None
        else f"{browsed.get('broker', 'a broker')} still held it in its {browsed.get('value', 'main')} store "
        f"at {clauses.at(browsed)}"
    )
    return _missing(clauses, f"; {holder}.")


def _missing(clauses: Clauses, looked: str) -> list[str]:
    """Tell of a message that was never settled; ``looked`` says what the stores showed."""
    m = clauses.names.message(clauses.message)
    got = clauses.first_row("deliver", "ok", clauses.message)
    sentences = [clauses.life(), *_not_arrived(clauses), *_elsewhere(clauses)]
    of_subscription = "" if clauses.subscription is None else f" of {clauses.subscription.name}"
    if got is None:
        return [*sentences, f"No consumer{of_subscription} ever got {m}{looked}"]
    nobody = f"No consumer{of_subscription}" if of_subscription else "No consumer"
    return [*sentences, *_let_go(clauses, got), f"{nobody} got {m} after that{looked}"]


def _elsewhere(clauses: Clauses) -> list[str]:
    """Tell whether other subscriptions of the topic got the message."""
    deliveries = clauses.elsewhere(clauses.message)
    if not deliveries:
        return []
    names = [str(row["subscription"]) for row in deliveries[:_SUBSCRIPTIONS]]
    more = len(deliveries) - len(names)
    named = listed([*names, *([f"{more} more"] if more else [])])
    s, first = ("", "") if len(deliveries) == 1 else ("s", "first ")
    return [f"Subscription{s} {named} of the same topic got it: {first}{clauses.delivered(deliveries[0])}."]


def _let_go(clauses: Clauses, got: Row) -> list[str]:
    """Tell of the last delivery of a message that was never settled, and how its session ended."""
    last = clauses.rows("deliver", "ok", clauses.message)[-1]
    return [
        f"{capital(clauses.delivered(last))}{clauses.force(last['time'])}.",
        clauses.session_end(last.get("session"), got["index"], 1 << 62),
    ]


def _phantom(clauses: Clauses) -> list[str]:
    got = clauses.completing()
    if got is None:
        return []
    if got["f"] == "ack":
        return [clauses.acknowledged(got), f"That session had never got {clauses.named(got)}."]
    sent = clauses.first_row("send", "invoke", clauses.message)
    ever = "ever" if sent is None else "by then"
    return [
        f"{capital(_appearance(clauses, got))}.",
        f"No producer had {ever} begun to send {clauses.named(got)}.",
    ]


def _appearance(clauses: Clauses, row: Row) -> str:
    """Return where a message appeared, as a clause: delivered, or in a store."""
    if row["f"] == "browse":
        message_name = clauses.names.message(row.get("message"))
        return (
            f"{clauses.broker_as_seen(row)} had {message_name} in its {row.get('value', 'main')} store "
            f"at {clauses.at(row)}"
        )
    return f"{clauses.delivered(row)}{clauses.force(row['time'])}"


def _corrupted(clauses: Clauses) -> list[str]:
    got = clauses.completing()
    if got is None:
        return []
    sentences = [clauses.sent(clauses.message), f"{capital(_appearance(clauses, got))}."]
    sent = clauses.first_row("send", "invoke", clauses.message)
    if sent is not None and str(sent.get("queue")).startswith(TEMPORARY):
        sentences.insert(0, clauses.life_of(sent["queue"]))
    if sent is not None and sent.get("digest") != got.get("digest") and "digest" in sent and "digest" in got:
        sentences.append(
            f"The checksum of its body was {sent['digest']:08x} when it was sent and "
            f"{got['digest']:08x} when it arrived."
        )
    elif sent is not None:
        sentences += [
            f"Its {name} was {sent.get(name)} when it was sent and {got.get(name)} when it arrived."
            for name in ("queue", "group", "producer", "sequence")
            if sent.get(name) != got.get(name)
        ]
    elif clauses.message is None:
        sentences.append(f"It is not known which message it was{because(got)}.")
    return sentences


def _not_subscribed(clauses: Clauses) -> list[str]:
    got = clauses.completing()
    if got is None:
        return [clauses.life(), clauses.sent(clauses.message)]
    return [
        clauses.life(),
        clauses.sent(clauses.message),
        f"Nevertheless {_appearance(clauses, got)}.",
        _not_for_it(clauses, got),
    ]


def _not_for_it(clauses: Clauses, got: Row) -> str:
    """Tell why a delivery was wrong: what its consumer had asked for, or since when it existed."""
    session = got.get("session")
    subscribes = [row for row in clauses.rows("subscribe", "invoke") if row.get("session") == session]
    selector = next((candidate for row in subscribes if (candidate := selector_of(row.get("value")))), None)
    if clauses.example.get("key") == ANOTHERS:
        return f"That was on connection {got.get('connection')}, which does not own the queue."
    if clauses.example.get("key") != UNWANTED:
        return "It had certainly been sent before that subscription existed."
    if selector is None:
        return ""
    sent = clauses.first_row("send", "invoke", clauses.message) or {}
    has = [
        f"{name} = {value}" for name, value in properties_of(sent.get("value")).items() if name in selector
    ]
    return (
        f"{capital(clauses.names.client(got))} selects only {selector_words(selector)}, and "
        f"{clauses.names.message(clauses.message)} has {listed(has) or 'no such property'}."
    )


def _aborted(clauses: Clauses) -> list[str]:
    got = clauses.completing()
    sent = clauses.first_row("send", "invoke", clauses.message)
    sentences = clauses.transaction((sent or {}).get("transaction")) or [clauses.sent(clauses.message)]
    if got is None:
        return sentences
    return [*sentences, clauses.meanwhile(sent, got), f"Nevertheless {_appearance(clauses, got)}."]


def _uncommitted(clauses: Clauses) -> list[str]:
    got = clauses.completing()
    number = (clauses.first_row("send", "invoke", clauses.message) or {}).get("transaction")
    sentences = clauses.transaction(number) or [clauses.sent(clauses.message)]
    story_transaction = clauses.story.transactions.get(number) if number is not None else None
    request = None if story_transaction is None else story_transaction.request
    if got is None:
        return sentences
    if request is None or request["f"] != "commit":
        return [*sentences, f"Nevertheless {_appearance(clauses, got)}."]
    early = f"{(request['time'] - got['time']) / 1e9:.3f} s before the commit was requested"
    return [*sentences, f"But {clauses.delivered(got)}, {early}{clauses.force(got['time'])}."]


def _torn(clauses: Clauses) -> list[str]:
    """Tell of a transaction which part of it happened, and which did not."""
    details = clauses.story.finding.details
    sentences = _with_changes(clauses, details.get("transaction"))
    if not sentences:
        return [clauses.story.finding.sentence]
    for part, words in (("happened", "Part of it happened"), ("missing", "Part of it did not happen")):
        effects = _effects(clauses, details.get(part, ()))
        sentences.append(f"{words}: {effects}." if effects else "")
    return sentences


def _effects(clauses: Clauses, effects: Sequence[Row]) -> str:
    """Return a transaction's effects in words, equal ones together, each with its evidence."""
    alike: dict[tuple[str, str], list[Row]] = {}
    for effect in effects:
        alike.setdefault((effect["f"], effect["how"]), []).append(effect)
    return "; ".join(_alike(clauses, f, how, equal_effects) for (f, how), equal_effects in alike.items())


def _alike(clauses: Clauses, f: str, how: str, effects: Sequence[Row]) -> str:
    verb = "sending" if f == "send" else "acknowledging"
    action = f"{verb} {listed([clauses.names.message(effect['message']) for effect in effects])}"
    pronoun, was = ("it", "was") if len(effects) == 1 else ("they", "were")
    objects = "it" if len(effects) == 1 else "them"
    if how == "nowhere":
        return f"{action} ({pronoun} {was} never delivered, and no store had {objects} in the end)"
    if how == "skipped":
        return f"{action} (a subscription got a later message without {objects})"
    if how == "consumed":
        return f"{action} ({pronoun} {was} not delivered again, and no store had {objects} in the end)"
    evidence = _evidence(clauses, how, effects[0])
    return f"{action} ({evidence})" if evidence else action


def _evidence(clauses: Clauses, how: str, effect: Row) -> str:
    """Return the delivery or the find in a store that proves an effect."""
    message = effect["message"]
    if how in {"stored", "kept"}:
        browsed = clauses.first_row("browse", "ok", message)
        return "" if browsed is None else _appearance(clauses, browsed)
    after = -1 if how == "delivered" else effect["index"]
    got = next((row for row in clauses.rows("deliver", "ok", message) if row["index"] > after), None)
    return "" if got is None else clauses.delivered(got, is_later=how == "again")


def _wrong_total(clauses: Clauses) -> list[str]:
    """Tell of a bank how much is wrong, and what became of the first account that is wrong."""
    details = clauses.story.finding.details
    wrong = next(iter(details.get("accounts", ())), None)
    if wrong is None:
        return [clauses.story.finding.sentence]
    expected, remaining, message = details["expected"], details["left"], wrong["message"]
    differs = (
        f"{expected - remaining:,} are missing"
        if remaining < expected
        else f"{remaining - expected:,} too many"
    )
    sentences = [
        (
            f"The accounts were given {expected:,} in all; when the queues had been drained and the stores "
            f"read, they held {remaining:,}: {differs}."
        )
    ]
    within = _with_changes(clauses, wrong.get("transaction"))
    if within:
        sentences += within
    else:
        account = f"account {wrong['account']}" if wrong["account"] else "an account"
        sentences += [clauses.sent(message), f"By that message {account} held {wrong['amount']:,}."]
    m = clauses.names.message(message)
    if remaining < expected:
        answer = ", nor what was sent in its place" if details["first_taken"] else ""
        return [*sentences, f"In the end neither the drain nor a store had {m}{answer}."]
    if details["first_left"]:
        return [*sentences, f"Nevertheless {m} was still there in the end."]
    return [*sentences, f"What was sent in place of {m} is there more than once."]


def _with_changes(clauses: Clauses, number: int | None) -> list[str]:
    """Tell of a transaction and of the changes meanwhile and soon after; nothing for none."""
    story_transaction = None if number is None else clauses.story.transactions.get(number)
    if story_transaction is None:
        return []
    end = story_transaction.end or story_transaction.request or story_transaction.begun
    changed = clauses.between(story_transaction.begun["time"], end["time"] + AFTER_NS, "After its begin")
    return [*clauses.transaction(story_transaction.number), changed]


def _resurrected(clauses: Clauses) -> list[str]:
    browsed = clauses.completing()
    if browsed is None:
        return [clauses.sent(clauses.message)]
    deletion = next((row for row in clauses.rows("delete") if row["index"] in clauses.witness), None)
    if deletion is not None:
        return _resurrected_by_deletion(clauses, deletion, browsed)
    copies = [row for row in clauses.rows("browse", "ok", clauses.message) if row["index"] in clauses.witness]
    confirmed = clauses.first_row("ack", "ok", clauses.message)
    if confirmed is not None and len(copies) == 1:
        return [
            clauses.sent(clauses.message),
            clauses.acknowledged(confirmed),
            f"Nevertheless {_appearance(clauses, browsed)}.",
        ]
    if clauses.temporary is not None and confirmed is None and len(copies) == 1:
        return [
            clauses.life(),
            clauses.sent(clauses.message),
            f"Nevertheless {_appearance(clauses, browsed)}.",
        ]
    places = " and ".join(f"{row.get('broker', 'a broker')} at {clauses.at(row)}" for row in copies)
    return [
        clauses.sent(clauses.message),
        (
            f"Copies of it were in the main stores of {places}: more than one copy each time the stores were "
            "read."
        ),
    ]


def _resurrected_by_deletion(clauses: Clauses, deletion: Row, appearance: Row) -> list[str]:
    """Tell of a message that came back after the deletion of its queue."""
    begun = next(
        (row for row in clauses.rows("subscribe") if row.get("session") == appearance.get("session", -1)),
        None,
    )
    session = "" if begun is None else f"{capital(clauses.names.client(begun))} began at {clauses.at(begun)}."
    return [
        clauses.sent(clauses.message),
        clauses.deletion(deletion),
        clauses.meanwhile(deletion, appearance, "After that"),
        session,
        f"Nevertheless {_appearance(clauses, appearance)}.",
    ]


def _expired(clauses: Clauses) -> list[str]:
    got, end = clauses.completing(), _wished(clauses, "expires", 1)
    if got is None or end is None:
        return _in_general(clauses)
    passed = f"{(got['time'] - end) / 1e9:.3f} s later"
    return [
        clauses.sent(clauses.message),
        f"By {clauses.standing.seconds(end)} it had certainly expired.",
        f"Nevertheless {_appearance(clauses, got)}, {passed}.",
    ]


def _early(clauses: Clauses) -> list[str]:
    got, due = clauses.completing(), _wished(clauses, "delay", 0)
    if got is None or due is None:
        return _in_general(clauses)
    return [
        clauses.sent(clauses.message),
        f"It was not to be delivered before {clauses.standing.seconds(due)}.",
        f"Nevertheless {_appearance(clauses, got)}, {(due - got['time']) / 1e9:.3f} s too early.",
    ]


def _wished(clauses: Clauses, name: str, bound: int) -> int | None:
    """Return an end of the interval in which a message was to expire or was due."""
    end = None
    for row in clauses.rows("send", None, clauses.message):
        span = (json_object(row.get("value")) or {}).get(name)
        if isinstance(span, list) and len(span) > bound and span[bound] is not None:
            end = int(span[bound])
    return end


def _died(clauses: Clauses) -> list[str]:
    browsed = clauses.completing()
    if browsed is None:
        return _in_general(clauses)
    got = clauses.rows("deliver", "ok", clauses.message)
    times = len(clauses.rows("nack", "invoke", clauses.message))
    refused = "It had not been refused" if not times else f"It had been refused {_times(times)}"
    return [
        clauses.sent(clauses.message),
        *(_let_go(clauses, got[0]) if got else ["No consumer ever got it."]),
        f"{refused}.",
        f"Nevertheless {_appearance(clauses, browsed)}.",
    ]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _too_late(clauses: Clauses) -> list[str]:
    got = clauses.completing()
    if got is None:
        return []
    return [
        clauses.session_end(got.get("session"), -1, got["index"]),
        f"Nevertheless {_appearance(clauses, got)}.",
    ]


def _delivered_again(clauses: Clauses) -> list[str]:
    """Tell of a message that was delivered more than once."""
    late = clauses.completing()
    early = (
        None
        if late is None
        else clauses.latest(clauses.rows("deliver", "ok", clauses.message), late["index"])
    )
    if late is None or early is None:
        return _deliveries(clauses)
    return [clauses.sent(clauses.message), *_twice(clauses, early, late)]


def _twice(clauses: Clauses, early: Row, late: Row) -> list[str]:
    """Tell of two deliveries of one message, and of what happened between them."""
    confirmed = clauses.confirmed(early, late["index"])
    since = early if confirmed is None else confirmed
    event = "that delivery" if confirmed is None else "the acknowledgement was confirmed"
    passed = f"{(late['time'] - since['time']) / 1e9:.3f} s after {event}"
    sentences = [
        f"{capital(clauses.delivered(early))}{clauses.force(early['time'])}.",
        clauses.acknowledged(confirmed),
        clauses.session_end(early.get("session"), early["index"], late["index"]),
        clauses.meanwhile(early, late),
        f"Then {clauses.delivered(late, is_later=True)}, {passed}.",
    ]
    same = early.get("session") == late.get("session")
    if confirmed is None and same and clauses.story.finding.name == "duplicate":
        sentences.append(f"{capital(clauses.names.client(late))} had not given it back in between.")
    return sentences


def _deliveries(clauses: Clauses) -> list[str]:
    """Tell of the deliveries of a message, without more to say about them."""
    return [
        clauses.sent(clauses.message),
        *(
            f"{capital(clauses.delivered(row))}."
            for row in clauses.rows("deliver", "ok", clauses.message)[:3]
        ),
    ]


def _redelivered(clauses: Clauses) -> list[str]:
    """Tell of the first two deliveries: the example of this kind of finding is the first."""
    got = clauses.rows("deliver", "ok", clauses.message)
    if len(got) < 2:
        return _deliveries(clauses)
    return [clauses.sent(clauses.message), *_twice(clauses, got[0], got[1])]


def _held_twice(clauses: Clauses) -> list[str]:
    """Tell of two sessions that hold one message, or messages of one group, at once."""
    late = clauses.completing()
    if late is None:
        return []
    other_deliveries = (
        row
        for row in clauses.rows("deliver", "ok", clauses.message)
        if row.get("session") != late.get("session")
        and all(row.get(name) == late.get(name) for name in ("queue", "group"))
    )
    early = clauses.latest(other_deliveries, late["index"])
    if early is None:
        return _deliveries(clauses)
    return [
        *(clauses.sent(message) for message in dict.fromkeys(row.get("message") for row in (early, late))),
        clauses.led_to(early["time"], "Before that"),
        f"{capital(clauses.delivered(early))}.",
        clauses.meanwhile(early, late),
        f"Then {clauses.delivered(late)}{clauses.force(late['time'])}.",
        _still_held(clauses, early, late),
    ]


def _still_held(clauses: Clauses, early: Row, late: Row) -> str:
    """Tell why the first of two sessions certainly still held its message."""
    holder = capital(clauses.names.client(early))
    message_name = clauses.names.message(early.get("message"))
    alive = [
        row
        for row in clauses.story.finding.witness.rows
        if row["f"] in {"ack", "nack"}
        and row["type"] == "ok"
        and row.get("session") == early.get("session")
        and row["index"] > late["index"]
    ]
    if not alive:
        return f"{holder} still held {message_name}, and had not been disconnected."
    return (
        f"{holder} still held {message_name}: {alive[0].get('broker', 'its broker')} "
        f"answered that session at {clauses.at(alive[0])}."
    )


def _out_of_order(clauses: Clauses) -> list[str]:
    late = clauses.completing()
    if late is None:
        return [clauses.sent(clauses.message)]
    other_deliveries = (
        row for row in clauses.rows("deliver", "ok") if row.get("message") not in {None, clauses.message}
    )
    early = clauses.latest(other_deliveries, late["index"])
    if early is None:
        return [clauses.sent(clauses.message), f"{capital(clauses.delivered(late))}, too late."]
    return [
        clauses.sent(clauses.message),
        clauses.sent(early.get("message"), full=False),
        f"{capital(clauses.delivered(early))}.",
        clauses.meanwhile(early, late),
        f"After that, {clauses.delivered(late)}{clauses.force(late['time'])}.",
    ]


def _overtaken(clauses: Clauses) -> list[str]:
    """Tell of a delivery, and of the message named by the key that had to come before it."""
    early, key = clauses.completing(), str(clauses.example.get("key", ""))
    late = int(key) if key.lstrip("-").isdigit() else None
    if early is None or late is None:
        return [clauses.story.finding.sentence]
    sentences = [clauses.sent(late), clauses.sent(clauses.message, full=False)]
    if any("transaction" in row for row in clauses.rows("send", "invoke")):
        sentences.append("What a transaction sends is in its queue from the commit on.")
    behind = (
        f"{capital(clauses.delivered(early))}; {clauses.names.message(late)} had not been delivered by then"
    )
    got = clauses.first_row("deliver", "ok", late)
    if got is None:
        return [*sentences, f"{behind}, and never was."]
    return [
        *sentences,
        f"{behind}.",
        clauses.meanwhile(early, got),
        f"After that, {clauses.delivered(got)}{clauses.force(got['time'])}.",
    ]


# --------------------------------------------------------------------------------------- of brokers


def _unavailable(clauses: Clauses) -> list[str]:
    details = clauses.story.finding.details
    begin, end = details.get("begin_ns"), details.get("end_ns")
    if begin is None or end is None:
        return [clauses.story.finding.sentence]
    key = str(clauses.example.get("key", ""))
    kind, _, rest = key.partition(" ")
    nothing = {
        "operation": f"no {rest} of any client succeeded",
        "client": f"nothing that {rest} sent was acknowledged",
        "broker": f"{rest} acknowledged no send",
        "queue": f"nothing succeeded in queue {rest}",
        "group": f"nothing succeeded in group {rest}",
    }
    missed = nothing.get(kind, f"nothing succeeded ({key})")
    sentences = [f"For {clauses.span(begin, end)}, {missed}{clauses.force(begin)}."]
    failed = [
        row for row in clauses.story.rows if begin <= row["time"] <= end and row["type"] in {"fail", "info"}
    ]
    errors = sorted({shortened(row["error"]) for row in failed if row.get("error")})
    if errors:
        sentences.append(f"The clients' errors: {', '.join(errors[:4])}.")
    return [*sentences, clauses.between(begin, end, "Meanwhile"), *clauses.excuse()]


def _starved(clauses: Clauses) -> list[str]:
    details = clauses.story.finding.details
    begin, end = details.get("begin_ns"), details.get("end_ns")
    if begin is None or end is None:
        return [clauses.story.finding.sentence]
    session = capital(str(clauses.example.get("key", "a session")))
    sentences = [
        clauses.sent(clauses.message),
        f"{session} held no message and got none for {clauses.span(begin, end)}{clauses.force(begin)}.",
        clauses.between(begin, end, "Meanwhile"),
    ]
    got = clauses.rows("deliver", "ok", clauses.message)
    sentences.append(f"After that, {clauses.delivered(got[0])}." if got else "")
    return [*sentences, *clauses.excuse()]


def _not_recovered(clauses: Clauses) -> list[str]:
    healed = next(iter(clauses.shown_rows("phase", value="heal")), None)
    proof = clauses.completing()
    sentences = [] if healed is None else [f"Every fault was healed at {clauses.at(healed)}."]
    if proof is None:
        return sentences
    sentences.append(clauses.meanwhile(healed, proof, "After that"))
    if proof["process"] == HARNESS:
        sentences.append(
            f"At {clauses.at(proof)} the recovery bound had passed, and operations still did not succeed."
        )
    else:
        sentences.append(
            "None of the operations that ended after the recovery bound succeeded; the first ended at "
            f"{clauses.at(proof)}."
        )
    roles = [clauses.standing.as_seen(broker, proof["time"]) for broker in clauses.story.brokers]
    sentences.append(f"Brokers at that moment: {', '.join(roles)}." if roles else "")
    return sentences


def _in_general(clauses: Clauses) -> list[str]:
    """Tell of a finding of any other kind: its sentence, and what happened to its messages."""
    messages = list(
        dict.fromkeys(row["message"] for row in clauses.story.finding.witness.rows if "message" in row)
    )
    sentences = [clauses.story.finding.sentence, *[clauses.sent(message) for message in messages[:2]]]
    for message in messages[:2]:
        got = clauses.rows("deliver", "ok", message)
        if got:
            sentences.append(f"{capital(clauses.delivered(got[0]))}.")
    return sentences


def _admitted(clauses: Clauses) -> Sequence[str]:
    return [clauses.story.finding.sentence, "That broker's log has more about it."]


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
    "count-fell": _delivered_again,
    "count-stuck": _delivered_again,
    "duplicate": _delivered_again,
    "unflagged-redelivery": _delivered_again,
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
