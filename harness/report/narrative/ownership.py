"""The stories of ownership: which broker was live with whose data.

Two brokers were live at once, or two took over one node's data. A broker did not know that it had
been replaced, or brokers do not agree.

Why together: all rest on what the monitor saw and on what brokers reported of themselves, and each
must say how it is known.
"""

from __future__ import annotations

from typing import Any

from harness.report.narrative.cluster_state import moment
from harness.report.narrative.excerpt import Row
from harness.report.narrative.fragments import Clauses
from harness.report.narrative.sentences import thing


def split_brain(of: Clauses) -> list[str]:
    """Tell of two live brokers under one node ID: for how long, and what both acknowledged."""
    details = of.story.finding.details
    node_id, *pair = str(of.example.get("key", "?")).split(" ")[:3]
    begin, end = details.get("begin_ns"), details.get("end_ns")
    if begin is None or end is None:
        return [of.story.finding.sentence]
    told = [of.led_to(begin, "What led to it")]
    standing = " and ".join(of.standing.role_since(broker, begin) for broker in pair)
    told.append(
        f"For {of.span(begin, end)}, both were live for certain under node ID {node_id[:8]}: "
        f"{standing}{of.force(begin)}."
    )
    told += _both_sides(of, details, begin)
    return told


def _both_sides(of: Clauses, details: dict[str, Any], begin: int) -> list[str]:
    counts = details.get("acknowledged") or {}
    if not counts:
        return []
    parts = []
    for broker, count in counts.items():
        oks = [row for row in of.rows("send", "ok") if row.get("broker") == broker and row["time"] > begin]
        first = f" (the first, {of.names.message(oks[0].get('message'))}, at {of.at(oks[0])})" if oks else ""
        parts.append(f"{broker} acknowledged {_counted(count, 'send')}{first}")
    both = ": two histories, of which one must be thrown away" if details.get("both_acknowledged") else ""
    return [f"In that time {' and '.join(parts)}{both}."]


def zombie(of: Clauses) -> list[str]:
    """Tell of a broker that answered or delivered although it had been replaced.

    The story says which broker replaced it, how that is known, and how many answers there were.
    """
    answer = of.completing()
    if answer is None:
        return []
    broker = answer.get("broker", "a broker")
    asked = _asked(of, answer)
    told = [of.led_to(answer["time"], "What led to it"), _fenced(of, broker, asked or answer)]
    if answer["f"] == "deliver":
        told += [
            of.sent(answer.get("message")),
            f"Nevertheless {of.delivered(answer)}{of.force(answer['time'])}.",
        ]
    else:
        told.append(_answered(of, asked, answer))
    count = of.story.finding.count
    if count > 1:
        told.append(f"In all there were {count} such answers and deliveries.")
    return told


def _asked(of: Clauses, answer: Row) -> Row | None:
    """Return the question that the broker answered; for a delivery, the message's first send."""
    if answer["f"] == "deliver":
        return of.one("send", "invoke", answer.get("message"))
    same = ("process", "f", "message")
    rows = (*of.story.finding.witness.rows, *of.story.rows)
    return next(
        (
            row
            for row in reversed(rows)
            if row["type"] == "invoke"
            and row["index"] < answer["index"]
            and all(row.get(name) == answer.get(name) for name in same)
        ),
        None,
    )


def _answered(of: Clauses, asked: Row | None, answer: Row) -> str:
    question = "" if asked is None else f" at {of.at(asked)}"
    m = of.named(answer) if "message" in answer else ""
    verb = {"send": "sent", "ack": "acknowledged", "nack": "refused"}.get(
        answer["f"], f"asked for {answer['f']}"
    )
    return (
        f"Nevertheless, when {of.names.client(answer)} {verb}{f' {m}' if m else ''}{question}, "
        f"{answer.get('broker', 'a broker')} answered ok at {of.at(answer)}{of.force(answer['time'])}."
    )


def _fenced(of: Clauses, broker: str, asked: Row) -> str:
    """Tell what had replaced a broker before it was asked.

    The sentence has the numbers that decide between the two brokers.
    """
    told = of.story.finding.details.get("fenced")
    if told is None:
        successor = of.standing.replaced(broker, asked["time"])
        if successor is None:
            return ""
        return (
            f"From {of.standing.seconds(moment(successor))} on {successor['broker']} was certainly "
            f"live in the place of {broker}."
        )
    since, by = of.standing.seconds(told["high_ns"]), told["by"]
    if told["how"] == "takeover":
        said = (
            f"From {since} on {by} had certainly completed the takeover of {broker} (node "
            f"{told['node_id'][:8]})"
        )
    else:
        said = f"From {since} on {by} was certainly live in the place of {broker}"
    if told["life"] is not None and told["own_life"] is not None:
        said += f", under number {told['life']} against its {told['own_life']}"
    return f"{said}."


def double_takeover(of: Clauses) -> list[str]:
    """Tell of two takeovers of one node's data.

    The story says when each was complete, under which number, and why no release can lie between.
    """
    details = of.story.finding.details
    taken = details.get("takeovers")
    if not taken:
        return [of.story.finding.sentence]
    first, second = taken
    node = str(details.get("node_id", "?"))[:8]
    told = [of.led_to(max(first["certain_ns"], second["certain_ns"]), "What led to it")]
    told += [
        f"From {of.standing.seconds(one['certain_ns'])} on {one['broker']} had certainly completed a "
        f"takeover of the data of node {node}{_number(one)}."
        for one in taken
    ]
    if details.get("same_life"):
        told.append(
            "Both were given one number, and a release between them would have given the second a higher one."
        )
    else:
        begin, end = details["begin_ns"], details["end_ns"]
        told.append(
            f"Both were certainly live with these data from {of.standing.seconds(begin)} to "
            f"{of.standing.seconds(end)}: {first['broker']} had not let go of them."
        )
    return told


def _number(one: dict[str, Any]) -> str:
    return "" if one["life"] is None else f" (number {one['life']})"


def diverged(of: Clauses) -> list[str]:
    """Tell what brokers held to be true of one thing, and for how long.

    Each broker was asked repeatedly.
    """
    details = of.story.finding.details
    held = details.get("held")
    if not held:
        return [of.story.finding.sentence]
    recovered = next(iter(of.shown("phase", value="recovered")), None)
    told = [] if recovered is None else [f"The cluster had recovered at {of.at(recovered)}."]
    sides = " and ".join(
        f"{broker} knew nothing of it" if value is None else f"{broker} took it to be {value}"
        for broker, value in held.items()
    )
    begin, end = of.standing.seconds(details.get("begin_ns")), of.standing.seconds(details.get("end_ns"))
    told.append(
        f"Asked about {thing(details['kind'], details['key'])} again and again from {begin} to "
        f"{end}, {sides}."
    )
    return told


def _counted(number: int, thing: str) -> str:
    return f"{number or 'no'} {thing}{'s' if number > 1 else ''}"
