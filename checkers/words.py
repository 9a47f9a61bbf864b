"""A finding in one sentence, read from its witness: who, what, where, when.

Kept apart from the rules so that a change of wording can never change a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checkers.instance import Instance

Row = Mapping[str, Any]


def seconds(time_ns: int | None) -> str:
    """For people: three decimals."""
    return "?" if time_ns is None else f"{time_ns / 1e9:.3f} s"


def place(i: Instance) -> str:
    """Queue and group."""
    group = f', group "{i.group}"' if i.group is not None else ""
    return f'queue "{i.queue}"{group}'


def sentence(i: Instance, count: int, rows: Sequence[Row], details: Mapping[str, Any]) -> str:
    """One sentence about the first instance, and how many there are."""
    more = "" if count == 1 else f" ({count} such, this is the first)"
    return _first(i, rows, details) + more + "."


def _find(rows: Sequence[Row], f: str, type_: str, message: int | None = None) -> Row:
    return next(
        (
            r
            for r in rows
            if r["f"] == f and r["type"] == type_ and (message is None or r.get("message") == message)
        ),
        {},
    )


def _alone(broker: object, windows: Sequence[tuple[int, int | None]]) -> str:
    """The window in which nobody but the broker had what it acknowledged, if there was one."""
    spans = [
        f"from {seconds(begin)} to {'the end' if end is None else seconds(end)}" for begin, end in windows
    ]
    return f"; {broker} had no up-to-date backup {' and '.join(spans)}" if spans else ""


def _first(i: Instance, rows: Sequence[Row], details: Mapping[str, Any]) -> str:
    at: Row = next((r for r in rows if r["index"] == i.index), {})
    when = seconds(at.get("time"))
    broker, session = at.get("broker", "a broker"), at.get("session")
    sent = _find(rows, "send", "ok", i.message)
    m = f"message {i.message}"
    earlier = [r for r in rows if r["f"] == "deliver" and r["index"] < i.index]
    before: Row = earlier[-1] if earlier else {}
    previous = f"session {before.get('session')} at {before.get('broker', 'a broker')} got message {before.get('message')} at {seconds(before.get('time'))}"
    match i.name:
        case "lost":
            position = (details.get("examples") or [{}])[0].get("position", "part")
            took = f"acknowledged by {sent.get('broker', 'a broker')} at {seconds(sent.get('time'))}"
            alone = _alone(sent.get("broker"), details.get("unprotected_ns") or ())
            return f"{m} ({place(i)}), sent at {when} and {took}, was never delivered and is in no store: the {position} of its group is missing{alone}"
        case "stuck":
            kept = _find(rows, "browse", "ok", i.message)
            return f"{m} ({place(i)}), sent at {when}, was never delivered; {kept.get('broker', 'a broker')} still holds it in its {kept.get('value', '')} store"
        case "phantom":
            return f"{m} ({place(i)}) was delivered by {broker} to session {session} at {when}, but nobody ever sent it"
        case "corrupted" if i.message is None:
            return (
                f"{broker} delivered a body that cannot be read to session {session} at {when} ({place(i)})"
            )
        case "corrupted":
            return f"{m} ({place(i)}) was delivered by {broker} at {when} with other contents than were sent"
        case "aborted-delivery":
            return f"{m} ({place(i)}) was delivered by {broker} at {when} although its send failed or was rolled back"
        case "duplicate":
            return f"{m} ({place(i)}) was delivered again by {broker} to session {session} at {when}, after {previous}"
        case "unflagged-redelivery":
            return f"{m} ({place(i)}) was delivered again by {broker} to session {session} at {when} without the redelivered mark, after {previous}"
        case "double-delivery":
            return f"{m} ({place(i)}) was held by two sessions at once: {previous}, and session {session} at {broker} got it at {when}"
        case "group-split":
            return f"{place(i)} was held by two sessions at once: {previous} and had not let go when session {session} at {broker} got message {at.get('message')} at {when}"
        case "redelivery":
            return f"{m} ({place(i)}) was delivered more than once, first by {broker} to session {session} at {when}, though the guarantee allows one delivery"
        case "reordered":
            return f"{m} ({place(i)}, producer {at.get('producer')}, number {at.get('sequence')}) was first delivered at {when}, after number {before.get('sequence')} of the same producer (message {before.get('message')})"
        case "reordered-realtime":
            return f"{m} ({place(i)}) was sent for certain at {seconds(sent.get('time'))}, before message {before.get('message')} was, yet was first delivered after it, at {when}"
        case "reordered-session":
            return f"session {session} at {broker} got {m} ({place(i)}, producer {at.get('producer')}, number {at.get('sequence')}) at {when}, after number {before.get('sequence')} of the same producer"
        case "split-brain":
            return _split_brain(i, details)
        case "double-takeover":
            return _double_takeover(i, details)
        case "zombie":
            what = f"{at.get('f', 'an operation')} of {m if i.message is not None else 'a client'}"
            return f"{i.key} acknowledged {what} at {when}, asked after {_fenced(details)}"
        case "diverged":
            return _diverged(i, details)
        case "unavailable":
            during = details.get("faults") or "no fault"
            return f"{i.key}: nothing succeeded from {seconds(details.get('begin_ns'))} to {seconds(details.get('end_ns'))} with {during} in force"
        case "not-recovered":
            return f"after everything was healed and the recovery bound had passed, operations still did not succeed (seen at {when})"
    return f"{i.name} at row {i.index}"


def _double_takeover(i: Instance, details: Mapping[str, Any]) -> str:
    node_id, first, second = (i.key or "? ? ?").split(" ")[:3]
    taken = details.get("takeovers")
    if not taken:
        return f"{first} and {second} both completed a takeover of node {node_id} without a release between"
    told = " and ".join(
        f"{one['broker']} ({number(one['life'])}, certain from {seconds(one['certain_ns'])} on)"
        for one in taken
    )
    if details.get("same_life"):
        why = "both were given one number, and a release would have changed it"
    else:
        why = f"both were certainly live with its data from {seconds(details.get('begin_ns'))} to {seconds(details.get('end_ns'))}"
    return f"node {node_id} was taken over twice without a release between, by {told}: {why}"


def number(life: int | None) -> str:
    """Of a life or a takeover."""
    return "number not told" if life is None else f"number {life}"


def _fenced(details: Mapping[str, Any]) -> str:
    """What had replaced a zombie, and how it is known."""
    by = details.get("fenced")
    if not by:
        return "another broker was certainly live in its place"
    what = "had completed the takeover of" if by["how"] == "takeover" else "was live as"
    lives = "" if by["life"] is None else f"; number {by['life']}"
    if lives and by["own_life"] is not None:
        lives += f" fences its own, {by['own_life']}"
    return f"{by['by']} certainly {what} node {by['node_id']} (so since a moment between {seconds(by['low_ns'])} and {seconds(by['high_ns'])}{lives})"


def _diverged(i: Instance, details: Mapping[str, Any]) -> str:
    held = details.get("held")
    if not held:
        return f"brokers disagree about {i.key} after recovery"
    told = " and ".join(
        f"{broker} knows nothing of it" if value is None else f'{broker} says "{value}"'
        for broker, value in held.items()
    )
    return f"after recovery, from {seconds(details.get('begin_ns'))} to {seconds(details.get('end_ns'))}, brokers disagree about {details['kind']} {details['key']}: {told}"


def _split_brain(i: Instance, details: Mapping[str, Any]) -> str:
    node_id, first, second = (i.key or "? ? ?").split(" ")[:3]
    text = f"{first} and {second} were live under one node ID ({node_id}) from {seconds(details.get('begin_ns'))} to {seconds(details.get('end_ns'))}"
    if details.get("both_acknowledged"):
        counts = " and ".join(f"{n} by {broker}" for broker, n in details["acknowledged"].items())
        return f"{text}, and both acknowledged sends meanwhile: {counts}"
    return text
