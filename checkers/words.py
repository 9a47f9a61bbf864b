"""The sentence of a finding, filled in from its witness: who, what, where and when.

``checkers.anomaly`` has the sentences; this module has the fields that they name. Why apart from
the rules: a change of wording can never change a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from checkers.anomaly import named
from checkers.asked import ORDINARY, priority_of
from checkers.delivery import AFTER, ANOTHERS, DEAD, EITHER, EXPIRED, NOT_COPIED, SKIPPED, UNWANTED
from checkers.instance import Instance
from checkers.schema import NEMESIS, TOPIC, json_object
from checkers.subscriptions import split
from checkers.views import CLIENTS
from checkers.visible import visible

Row = Mapping[str, Any]


NS_MAX: Final = 1_000_000
"""The time below which a history counts events rather than time (ns); no cluster starts in it."""


def seconds(time_ns: int | None) -> str:
    """Return a time as text in seconds with three decimals, or "?" if it is not known.

    A history of another harness may have numbers in place of times, which seconds would hide.
    """
    if time_ns is None:
        return "?"
    return f"{time_ns} ns" if 0 < time_ns < NS_MAX else f"{time_ns / 1e9:.3f} s"


def place(i: Instance) -> str:
    """Return the place of an instance as text: queue, or topic and subscription, and group."""
    group = f', group "{i.group}"' if i.group is not None else ""
    topic_and_name = split(i.queue)
    if topic_and_name is not None:
        return f'subscription "{topic_and_name[1]}" of topic "{topic_and_name[0].removeprefix(TOPIC)}"{group}'
    return f'queue "{i.queue}"{group}'


def sentence(i: Instance, count: int, rows: Sequence[Row], details: Mapping[str, Any]) -> str:
    """Return one sentence about the first instance, with the number of instances."""
    anomaly = named(i.name)
    words = anomaly.words_without_message if i.message is None else ""
    more = "" if count == 1 else f" (the first of {count})"
    if details.get("receives"):
        more = (
            f" ({details['missing']} are missing, and {details['receives']} receives of unknown outcome may "
            f"have taken one each: {count} are lost for certain, this one or another)"
        )
    return visible((words or anomaly.words).format_map(_Fields(i, rows, details)) + more + ".")


_COLUMNS: Final = {
    "session": "session", "producer": "producer", "number": "sequence", "count": "delivery_count",
}  # fmt: skip
"""The fields that are a column of the row that completes the anomaly."""
_EARLIER: Final = {"earlier_number": "sequence", "earlier_count": "delivery_count"}
"""The fields that are a column of the delivery before that row."""


class _Fields:
    """The fields that the sentences of ``checkers.anomaly`` name, each computed when it is needed.

    ``_at`` is the row that completes the anomaly, ``_before`` the delivery before it.
    """

    def __init__(self, i: Instance, rows: Sequence[Row], details: Mapping[str, Any]) -> None:
        self._i = i
        self._rows = rows
        self._details = details
        self._example: Mapping[str, Any] = next(iter(details.get("examples") or ()), {})
        self._at: Row = next((r for r in rows if r["index"] == i.index), {})
        earlier = [r for r in rows if r["f"] == "deliver" and r["index"] < i.index]
        self._before: Row = earlier[-1] if earlier else {}

    def __getitem__(self, name: str) -> str:
        if name in _COLUMNS:
            return str(self._at.get(_COLUMNS[name]))
        if name in _EARLIER:
            return str(self._before.get(_EARLIER[name]))
        return str(getattr(self, name)())

    def _row(self, f: str, type_: str) -> Row:
        number = self._i.message
        return next(
            (
                r
                for r in self._rows
                if r["f"] == f and r["type"] == type_ and (number is None or r.get("message") == number)
            ),
            {},
        )

    def index(self) -> int:
        return self._i.index

    def key(self) -> str | None:
        return self._i.key

    def place(self) -> str:
        return place(self._i)

    def message(self) -> str:
        return self._called(self._i.message)

    def message_here(self) -> str:
        return self._called(self._at.get("message"))

    def _called(self, message: int | None) -> str:
        """Return the name of a message: its number, or the name that a row of it gives.

        Histories of other harnesses give their messages names.
        """
        message_rows = (
            r for r in self._rows if r["f"] in ("send", "deliver") and r.get("message") == message
        )
        names = (r["value"] for r in message_rows if r.get("value") is not None)
        name = next((name for name in names if json_object(name) is None), None)
        return f"message {message}" if name is None else f'message "{name}"'

    def error(self) -> str:
        return str(self._at.get("error"))

    def when(self) -> str:
        return seconds(self._at.get("time"))

    def broker(self) -> str:
        return str(self._at.get("broker", "a broker"))

    def earlier_message(self) -> str:
        return self._called(self._before.get("message"))

    def previous(self) -> str:
        before = self._before
        return (
            f"session {before.get('session')} at {before.get('broker', 'a broker')} got "
            f"{self._called(before.get('message'))} at {seconds(before.get('time'))}"
        )

    def seen(self) -> str:
        """Say how the message was seen: in a store, by an ack or by a delivery."""
        at, broker, session = self._at, self.broker(), self["session"]
        match at.get("f"):
            case "browse":
                return f"was found in the {at.get('value') or 'unnamed'} store of {broker} at {self.when()}"
            case "ack":
                return f"was acknowledged in session {session} at {self.when()}, which {broker} confirmed"
        return f"was delivered by {broker} to session {session} at {self.when()}"

    def unheard_of(self) -> str:
        return (
            "but that session never had it" if self._at.get("f") == "ack" else "but its send had never begun"
        )

    def not_for_it(self) -> str:
        """Say why a subscription must not have the message."""
        if self._i.key == UNWANTED:
            return "whose selector it does not match"
        if self._i.key == ANOTHERS:
            return f"on connection {self._at.get('connection')}, which does not own that temporary queue"
        return f"though it was sent for certain at {self.sent_at()}, before that subscription existed"

    def otherwise(self) -> str:
        """Say which columns of the message differ from those that were sent."""
        sent = next((r for r in self._rows if r["f"] == "send" and "queue" in r), {})
        names = ("queue", "group", "producer", "sequence", "digest")
        differ = [
            f"{name} {self._at.get(name)} instead of {sent.get(name)}"
            for name in names
            if sent
            and self._at.get(name) != sent.get(name)
            and (name == "group" or None not in (self._at.get(name), sent.get(name)))
        ]
        if sent and None not in (self._at.get("headers"), sent.get("headers")):
            differ += ["other headers than were sent"] * (self._at["headers"] != sent["headers"])
        return f"with {' and '.join(differ)}" if differ else "with other contents than were sent"

    def unreadable(self) -> str:
        if self._at.get("f") == "browse":
            return (
                f"a body that cannot be read was found in the {self._at.get('value') or 'unnamed'} "
                f"store of {self.broker()} at {self.when()}"
            )
        return (
            f"{self.broker()} delivered a body that cannot be read to session {self['session']} at "
            f"{self.when()}"
        )

    def undead(self) -> str:
        """Say why the message must not be in a store."""
        ack = self._row("ack", "ok")
        delete = next((r for r in self._rows if (r["f"], r["type"]) == ("delete", "ok")), None)
        if delete is not None:
            return f"although its queue had been deleted at {seconds(delete.get('time'))}"
        drop = next((r for r in self._rows if (r["f"], r["type"]) == ("drop", "ok")), None)
        if not ack and drop is not None:
            return f"although its temporary queue ended with its connection at {seconds(drop.get('time'))}"
        killed = next((r for r in self._rows if r["process"] == NEMESIS and r["type"] != "invoke"), None)
        if not ack and killed is not None:
            moment = seconds(killed.get("time"))
            return f"although its temporary queue ended with its broker, which was gone at {moment}"
        if not ack:
            return "beside another copy of it, twice in the same way"
        return (
            f"although {ack.get('broker', 'a broker')} had confirmed its acknowledgement in session "
            f"{ack.get('session')} at {seconds(ack.get('time'))}"
        )

    def fate(self) -> str:
        """Say what happened to a message that is owed at the end of the test."""
        got = self._row("deliver", "ok")
        if self._i.key == DEAD:
            return f"was refused {self.refusals()}, which made it a dead letter that is nowhere"
        if self._i.key == EXPIRED:
            return (
                f"had certainly expired at {self.expired_at()}, before the drain began, {self.last_got(got)}"
            )
        if self._i.key == SKIPPED:
            return f"was never delivered before its subscription ended, {self.later()}"
        if self._i.key == NOT_COPIED:
            return "was never delivered, although another subscription of that topic got its copy"
        if self._i.key == EITHER:
            return (
                "was acknowledged with an unknown outcome, and no session has held it since the drain "
                "began: if the acknowledgement was processed, the message is back from the dead "
                "(resurrected); if not, it was not delivered again (stuck)"
            )
        if self._i.key != AFTER:
            return "was never delivered"
        return (
            f"was never settled nor delivered again after session {got.get('session')} had got it at "
            f"{seconds(got.get('time'))}"
        )

    def last_got(self, got: Row) -> str:
        """Say whether the message had been delivered, and to which session."""
        if not got:
            return "without having been delivered"
        session, moment = got.get("session"), seconds(got.get("time"))
        return f"and had been given back by session {session}, which got it at {moment}"

    def taken(self) -> str:
        """Say which broker acknowledged the send and when, or that its outcome is unknown.

        In a transaction it may be the commit alone that was acknowledged.
        """
        if self._i.key == NOT_COPIED:
            return " with unknown outcome"
        commits = [row for row in self._rows if (row["f"], row["type"]) == ("commit", "ok")]
        if commits and not self._row("send", "ok"):
            by, at = commits[0].get("broker", "a broker"), seconds(commits[0]["time"])
            return f" in transaction {commits[0].get('transaction')} and committed by {by} at {at}"
        return f" and acknowledged by {self.sent_by()} at {self.sent_at()}"

    def later(self) -> str:
        """Say which later message was read although this one was in front of it."""
        reads = [r for r in self._rows if r["f"] == "deliver" and r.get("message") != self._i.message]
        if not reads:
            return "although a later message was"
        read = reads[0]
        return (
            f"although session {read.get('session')} got {self._called(read.get('message'))}, which was sent "
            f"after it, at {seconds(read.get('time'))}"
        )

    def refusals(self) -> str:
        """Say how often the message may have been refused, as far as the rows tell."""
        count = sum({"invoke": 1, "fail": -1}.get(r["type"], 0) for r in self._rows if r["f"] == "nack")
        return {0: "never", 1: "once"}.get(count, f"{count} times")

    def had_been_refused(self) -> str:
        refusals = self.refusals()
        return "had never been refused" if refusals == "never" else f"had been refused {refusals}"

    def expired_at(self) -> str:
        return seconds(self._requested("expires", -1))

    def due_at(self) -> str:
        return seconds(self._requested("delay", 0))

    def _requested(self, name: str, end: int) -> int | None:
        """Return the low (0) or high (-1) end of a span that the send asked for, or None."""
        sends = (r for r in self._rows if r["f"] == "send" and r.get("message") == self._i.message)
        spans = [requested for r in sends if (requested := (json_object(r.get("value")) or {}).get(name))]
        return next((span[end] for span in reversed(spans) if span[end] is not None), None)

    def both_settled(self) -> str:
        return "; both acks were answered ok" if self._example.get("both_acknowledged") else ""

    def ack_wait(self) -> str:
        """Say after how long the broker promises to take back an unacknowledged message."""
        wait = self._details.get("ack_wait_s")
        if wait is None:
            return (
                "; a broker may take a message back when its acknowledgement is late, but none is promised "
                "to (ack_wait_s, --ack-wait)"
            )
        return f"; its acknowledgement was not certainly late, for which {wait:g} s are promised"

    def sent_by(self) -> str:
        return str(self._row("send", "ok").get("broker", "a broker"))

    def sent_at(self) -> str:
        return seconds(self._row("send", "ok").get("time"))

    def stored(self) -> str:
        """Say how it is known that a broker had the message."""
        if self._row("send", "ok"):
            return f"sent for certain at {self.sent_at()}"
        taker = self._row("send", "info").get("broker", "a broker")
        return f"taken by {taker}, whose process was seen to be gone"

    def overtaken(self) -> str:
        """Return the name of the message in the instance's key."""
        key = self._i.key or ""
        return self._called(int(key) if key.lstrip("-").isdigit() else None)

    def priority(self) -> int:
        return self._priority(self._i.message)

    def lower_priority(self) -> int:
        """Return the priority of the message in the instance's key."""
        key = self._i.key or ""
        return self._priority(int(key) if key.lstrip("-").isdigit() else None)

    def _priority(self, message: int | None) -> int:
        sends = (r for r in self._rows if r["f"] == "send" and r.get("message") == message)
        priorities = (priority_of(r.get("value")) for r in sends)
        return next((priority for priority in priorities if priority is not None), ORDINARY)

    def worst(self) -> str:
        """Say which message was overtaken by the most others, and by how many."""
        worst = self._details.get("worst")
        if worst is None:
            return ""
        times = f"{worst['overtakers']} of lower priority"
        return f"; at worst {times} overtook {self._called(worst['message'])}"

    def in_front(self) -> str:
        """Say how it is known that the message in the instance's key was in front of this one."""
        sends = [r for r in self._rows if r["f"] == "send" and str(r.get("message")) == self._i.key]
        inside = {r["transaction"] for r in sends if r.get("transaction") is not None}
        f = "commit" if inside else "send"
        done = [
            r
            for r in (self._rows if inside else sends)
            if r["f"] == f and r["type"] == "ok" and (not inside or r.get("transaction") in inside)
        ]
        if done or not sends:
            moment = seconds(min((r["time"] for r in done), default=None))
            return f"which was certainly sent at {moment} and so in front of it"
        taker = next((r["broker"] for r in sends if r.get("broker")), "a broker")
        return f"which {taker} had taken, whose process was seen to be gone before this one was sent"

    def kept_by(self) -> str:
        return str(self._row("browse", "ok").get("broker", "a broker"))

    def kept_in(self) -> str:
        return str(self._row("browse", "ok").get("value", ""))

    def position(self) -> str:
        return str(self._example.get("position", "part"))

    def alone(self) -> str:
        """Say in which windows the broker that answered had no up-to-date backup.

        Only windows count in which it answered the send (of a lost message) or the ack. Return ""
        if there is none.
        """
        answer = self._row("send" if self._i.name == "lost" else "ack", "ok")
        broker, at = answer.get("broker"), answer.get("time", 0)
        spans = [
            f"from {seconds(begin)} to {'the end' if end is None else seconds(end)}"
            for begin, end in (self._details.get("unprotected_ns") or {}).get(broker, ())
            if begin <= at and (end is None or at <= end)
        ]
        return f"; {broker} had no up-to-date backup {' and '.join(spans)}" if spans else ""

    def answered(self) -> str:
        subject = self.message() if self._i.message is not None else "a client"
        f = self._at.get("f", "an operation")
        return (
            f"delivered {subject}"
            if f == "deliver"
            else f"answered ok to the {_NOUNS.get(f, f)} of {subject}"
        )

    def asked(self) -> str:
        return "which was sent" if self._at.get("f") == "deliver" else "which was requested"

    def fenced(self) -> str:
        """Say which broker had replaced a zombie, and how it is known."""
        by = self._details.get("fenced")
        if not by:
            return "another broker was certainly live in its place"
        deed = "had completed the takeover of" if by["how"] == "takeover" else "was live as"
        lives = "" if by["life"] is None else f"; number {by['life']}"
        if lives and by["own_life"] is not None:
            lives += f" fences number {by['own_life']}"
        return (
            f"{by['by']} certainly {deed} node {by['node_id']} (since a moment between "
            f"{seconds(by['low_ns'])} and {seconds(by['high_ns'])}{lives})"
        )

    def split_brain(self) -> str:
        node_id, first, second = (self._i.key or "? ? ?").split(" ")[:3]
        text = (
            f"{first} and {second} were live under one node ID ({node_id}) from "
            f"{self.begin()} to {self.end()}"
        )
        if self._details.get("both_acknowledged"):
            counts = " and ".join(f"{n} by {broker}" for broker, n in self._details["acknowledged"].items())
            return f"{text}, and both acknowledged sends meanwhile: {counts}"
        return text

    def double_takeover(self) -> str:
        node_id, first, second = (self._i.key or "? ? ?").split(" ")[:3]
        taken = self._details.get("takeovers")
        if not taken:
            return (
                f"{first} and {second} both completed a takeover of node {node_id} without a release between"
            )
        takers = " and ".join(
            f"{taker['broker']} ({number(taker['life'])}, certain from {seconds(taker['certain_ns'])} on)"
            for taker in taken
        )
        if self._details.get("same_life"):
            why = "both were given one number, and a release would have changed it"
        else:
            why = f"both were certainly live with its data from {self.begin()} to {self.end()}"
        return f"node {node_id} was taken over twice without a release between, by {takers}: {why}"

    def diverged(self) -> str:
        held = self._details.get("held")
        if not held:
            return f"brokers disagree about {self._i.key} after recovery"
        views = " and ".join(
            f"{broker} does not know it"
            if value is None
            else f'{broker} {"were answered" if broker == CLIENTS else "says"} "{value}"'
            for broker, value in held.items()
        )
        parties = "clients and brokers" if CLIENTS in held else "brokers"
        return (
            f"after recovery, from {self.begin()} to "
            f"{self.end()}, {parties} disagree about {self._details['kind']} "
            f"{self._details['key']}: {views}"
        )

    def outcome(self) -> str:
        """Say how the transaction ended, as far as its client knows."""
        end = self._details.get("end")
        if end is None:
            return "which was never ended"
        ending = "roll-back" if end["f"] == "abort" else "commit"
        clause = f"whose {ending} was requested at {seconds(end['time'])}"
        by = f" by {end['broker']}" if "broker" in end else ""
        answers = {"ok": f"{clause} and answered ok{by}", "fail": f"{clause} and refused{by}"}
        return answers.get(end["type"], f"{clause}, with unknown outcome")

    def happened(self) -> str:
        return self._effect("happened", "an effect of it did")

    def missing(self) -> str:
        return self._effect("missing", "another did not")

    def _effect(self, kind: str, otherwise: str) -> str:
        """Say what the first effect of a kind is ("happened" or "missing"), and what shows it."""
        effect = next(iter(self._details.get(kind) or ()), None)
        if effect is None:
            return otherwise
        where = place(replace(self._i, queue=effect["queue"], group=effect.get("group")))
        deed = "the send of" if effect["f"] == "send" else "the acknowledgement of"
        return f"{deed} message {effect['message']} ({where}) {_SHOWN_BY[effect['how']]}"

    def total(self) -> str:
        """Say what all accounts held at the start and at the end, and which first one is wrong."""
        details = self._details
        if "expected" not in details:
            return f"the total is wrong at {self.message()} ({self.place()})"
        more_wrong = details["wrong"] - 1
        more = f"; {more_wrong} more {'is' if more_wrong == 1 else 'are'} wrong" if more_wrong else ""
        return (
            f"the accounts held {details['expected']:,} at the start and {details['left']:,} at the end: "
            f"{self._account(details['accounts'][0])}{more}"
        )

    def _account(self, wrong: Mapping[str, Any]) -> str:
        details, transaction = self._details, wrong.get("transaction")
        account = f"account {wrong['account']}" if wrong["account"] else "an account"
        amount = f"{wrong['amount']:,}"
        cause = "" if transaction is None else f"transaction {transaction}, {self.outcome()}"
        if details["left"] < details["expected"]:
            since = f"since {cause}" if cause else "though it was put in for certain"
            return f"{account} with {amount} is missing {since}"
        if not details["first_left"]:
            return f"the {amount} of {account} were moved on more than once, last by {cause}"
        if details["first_taken"]:
            return f"{account} still has the {amount} that were moved on by {cause}"
        return f"{account} has {amount} though {cause or 'putting them in'} did not happen"

    def begin(self) -> str:
        return seconds(self._details.get("begin_ns"))

    def end(self) -> str:
        return seconds(self._details.get("end_ns"))

    def faults(self) -> str:
        """Say which faults explain the window, or a part of it."""
        faults = self._details.get("faults")
        if not faults:
            return "and no fault explains it"
        if self._details.get("excused"):
            return f"with {faults} in force, which explains it"
        return f"with {faults} in force, which does not explain all of it"


_NOUNS: Final = {"ack": "acknowledgement", "nack": "refusal"}
"""The nouns for operations whose names are none."""
_SHOWN_BY: Final = {
    "delivered": "took effect (it was delivered)",
    "stored": "took effect (a store has it)",
    "consumed": "took effect (it is in no store and was never delivered again)",
    "nowhere": "did not (it was never delivered and is in no store)",
    "again": "did not (it was delivered again)",
    "kept": "did not (a store still has it)",
    "skipped": "did not (the subscription got a later message without it)",
}
"""The words for how an effect of a transaction is known (``checkers.transactions``)."""


def number(life: int | None) -> str:
    """Return the words for the number of a life or a takeover."""
    return "number unknown" if life is None else f"number {life}"
