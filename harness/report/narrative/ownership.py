"""The stories of ownership: which broker was live with whose data.

Two brokers were live at once, or two took over one node's data. A broker did not know that it had
been replaced, or brokers do not agree.

Why together: all rest on what the monitor saw and on what brokers reported of themselves, and each
must say how it is known.
"""

from __future__ import annotations

from typing import Any

from checkers.views import CLIENTS
from harness.report.narrative.cluster_state import moment
from harness.report.narrative.excerpt import Row
from harness.report.narrative.fragments import Clauses
from harness.report.narrative.sentences import capital, thing


def split_brain(clauses: Clauses) -> list[str]:
    """Tell of two live brokers under one node ID: for how long, and what both acknowledged."""
    details = clauses.story.finding.details
    node_id, *pair = str(clauses.example.get("key", "?")).split(" ")[:3]
    begin, end = details.get("begin_ns"), details.get("end_ns")
    if begin is None or end is None:
        return [clauses.story.finding.sentence]
    sentences = [clauses.led_to(begin, "What led to it")]
    standing = " and ".join(clauses.standing.role_since(broker, begin) for broker in pair)
    sentences.append(
        f"For {clauses.span(begin, end)}, both were live for certain under node ID {node_id[:8]}: "
        f"{standing}{clauses.force(begin)}."
    )
    sentences += _both_sides(clauses, details, begin)
    return sentences


def _both_sides(clauses: Clauses, details: dict[str, Any], begin: int) -> list[str]:
    counts = details.get("acknowledged") or {}
    if not counts:
        return []
    parts = []
    for broker, count in counts.items():
        oks = [
            row for row in clauses.rows("send", "ok") if row.get("broker") == broker and row["time"] > begin
        ]
        first = (
            f" (the first, {clauses.names.message(oks[0].get('message'))}, at {clauses.at(oks[0])})"
            if oks
            else ""
        )
        parts.append(f"{broker} acknowledged {_counted(count, 'send')}{first}")
    consequence = (
        ": two histories, of which one must be thrown away" if details.get("both_acknowledged") else ""
    )
    return [f"In that time {' and '.join(parts)}{consequence}."]


def zombie(clauses: Clauses) -> list[str]:
    """Tell of a broker that answered or delivered although it had been replaced.

    The story says which broker replaced it, how that is known, and how many answers there were.
    """
    answer = clauses.completing()
    if answer is None:
        return []
    broker = answer.get("broker", "a broker")
    question = _question(clauses, answer)
    sentences = [
        clauses.led_to(answer["time"], "What led to it"),
        _fenced(clauses, broker, question or answer),
    ]
    if answer["f"] == "deliver":
        sentences += [
            clauses.sent(answer.get("message")),
            f"Nevertheless {clauses.delivered(answer)}{clauses.force(answer['time'])}.",
        ]
    else:
        sentences.append(_answered(clauses, question, answer))
    count = clauses.story.finding.count
    if count > 1:
        sentences.append(f"In all there were {count} such answers and deliveries.")
    return sentences


def _question(clauses: Clauses, answer: Row) -> Row | None:
    """Return the question that the broker answered; for a delivery, the message's first send."""
    if answer["f"] == "deliver":
        return clauses.first_row("send", "invoke", answer.get("message"))
    same = ("process", "f", "message")
    rows = (*clauses.story.finding.witness.rows, *clauses.story.rows)
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


def _answered(clauses: Clauses, question: Row | None, answer: Row) -> str:
    moment = "" if question is None else f" at {clauses.at(question)}"
    m = clauses.named(answer) if "message" in answer else ""
    verb = {"send": "sent", "ack": "acknowledged", "nack": "refused"}.get(
        answer["f"], f"requested {answer['f']}"
    )
    return (
        f"Nevertheless, when {clauses.names.client(answer)} {verb}{f' {m}' if m else ''}{moment}, "
        f"{answer.get('broker', 'a broker')} answered ok at "
        f"{clauses.at(answer)}{clauses.force(answer['time'])}."
    )


def _fenced(clauses: Clauses, broker: str, question: Row) -> str:
    """Tell what had replaced a broker before it was asked.

    The sentence has the numbers that decide between the two brokers.
    """
    fenced = clauses.story.finding.details.get("fenced")
    if fenced is None:
        successor = clauses.standing.replaced(broker, question["time"])
        if successor is None:
            return ""
        return (
            f"From {clauses.standing.seconds(moment(successor))} on {successor['broker']} was certainly "
            f"live in the place of {broker}."
        )
    since, by = clauses.standing.seconds(fenced["high_ns"]), fenced["by"]
    if fenced["how"] == "takeover":
        clause = (
            f"From {since} on {by} had certainly completed the takeover of {broker} (node "
            f"{fenced['node_id'][:8]})"
        )
    else:
        clause = f"From {since} on {by} was certainly live in the place of {broker}"
    if fenced["life"] is not None and fenced["own_life"] is not None:
        clause += f", with number {fenced['life']}; {broker} had number {fenced['own_life']}"
    return f"{clause}."


def double_takeover(clauses: Clauses) -> list[str]:
    """Tell of two takeovers of one node's data.

    The story says when each was complete, under which number, and why no release can lie between.
    """
    details = clauses.story.finding.details
    taken = details.get("takeovers")
    if not taken:
        return [clauses.story.finding.sentence]
    first, second = taken
    node = str(details.get("node_id", "?"))[:8]
    sentences = [clauses.led_to(max(first["certain_ns"], second["certain_ns"]), "What led to it")]
    sentences += [
        f"From {clauses.standing.seconds(takeover['certain_ns'])} on {takeover['broker']} had "
        "certainly completed a "
        f"takeover of the data of node {node}{_number(takeover)}."
        for takeover in taken
    ]
    if details.get("same_life"):
        sentences.append(
            "Both have the same number; a release between them would have given the second a higher one."
        )
    else:
        begin, end = details["begin_ns"], details["end_ns"]
        sentences.append(
            f"Both were certainly live with these data from {clauses.standing.seconds(begin)} to "
            f"{clauses.standing.seconds(end)}: {first['broker']} had not released them."
        )
    return sentences


def _number(takeover: dict[str, Any]) -> str:
    return "" if takeover["life"] is None else f" (number {takeover['life']})"


def diverged(clauses: Clauses) -> list[str]:
    """Tell what brokers held to be true of one thing, and for how long.

    Each broker was asked repeatedly.
    """
    details = clauses.story.finding.details
    answers = details.get("held")
    if not answers:
        return [clauses.story.finding.sentence]
    subject = thing(details["kind"], details["key"])
    sentences = [_last_answered(clauses, subject, answers[CLIENTS])] if CLIENTS in answers else []
    recovered = next(iter(clauses.shown_rows("phase", value="recovered")), None)
    if recovered is not None:
        sentences.append(f"The cluster had recovered at {clauses.at(recovered)}.")
    sides = " and ".join(
        f"{broker} did not know it" if value is None else f'{broker} answered "{value}"'
        for broker, value in answers.items()
        if broker != CLIENTS
    )
    begin, end = (
        clauses.standing.seconds(details.get("begin_ns")),
        clauses.standing.seconds(details.get("end_ns")),
    )
    sentences.append(f"Asked repeatedly about {subject} from {begin} to {end}, {sides}.")
    return sentences


def _last_answered(clauses: Clauses, subject: str, answer: str | None) -> str:
    """Return what clients were answered last about a queue or a subscription."""
    changes = [*clauses.rows("create", "ok"), *clauses.rows("delete", "ok")]
    if not changes:
        return f"Clients had been answered that {subject} was {answer}."
    last = max(changes, key=lambda row: int(row["index"]))
    noun = "creation" if last["f"] == "create" else "deletion"
    broker = capital(clauses.broker_as_seen(last))
    return f"{broker} had confirmed the {noun} of {subject} at {clauses.at(last)}."


def _counted(number: int, thing: str) -> str:
    return f"{number or 'no'} {thing}{'s' if number > 1 else ''}"
