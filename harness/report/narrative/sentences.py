"""The words of one step: a few for the arrow, a sentence for the reader.

Kept apart from the choice of steps so that a change of wording can never change what is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from checkers.asked import selector_of
from checkers.schema import HARNESS, MONITOR, NEMESIS, TOPIC, json_object
from checkers.views import CLIENTS
from harness.report.narrative.cluster_state import HEAL, SILENT, Standing, break_of
from harness.report.narrative.excerpt import Row
from harness.report.narrative.naming import ADMINISTRATOR, Names
from harness.report.narrative.subscriptions import selector_words

_PHASES: Final = {
    "load": "The load begins.",
    "heal": "The load ends, and every fault is healed.",
    "recovered": "Operations succeed again: the cluster has recovered.",
    "not-recovered": "The recovery bound has passed, and operations still do not succeed.",
    "drain": "The consumers begin to empty all queues.",
    "browse": "The queues have been drained; the stores of all brokers are read.",
    "end": "The test ends.",
}
_IMPORTED_PHASES: Final = {
    "drain": "The history ends.",
    "drained": "Everything that was left had been received, as the history says.",
    "browse": "So no store holds a message any more.",
}
"""The phases of a history of another harness that ends with empty queues."""
_ERROR_MAX: Final = 160
_NODE_ID: Final = re.compile("(?=.*[0-9])[0-9a-f-]{9,}")
_ROLES: Final = {
    "live": "serves clients",
    "backup": "copies its live broker",
    "synchronizing": "receives a copy and is not up to date yet",
    "voting": "asks for a vote and answers no client",
    "starting": "is starting",
    "stopping": "is stopping",
    "stopped": "has no process",
}

_OPERATIONS: Final = {
    "send": ("sends {m}{where}{part}", "the send of {m}{part}", "send {m}"),
    "ack": ("acknowledges {m}{part}", "the acknowledgement of {m}{part}", "ack {m}"),
    "nack": ("refuses {m}{part}", "the refusal of {m}{part}", "nack {m}"),
    "begin": ("begins transaction {number}", "the begin of transaction {number}", "begin t{number}"),
    "commit": ("commits transaction {number}", "the commit of transaction {number}", "commit t{number}"),
    "abort": ("rolls back transaction {number}", "the roll-back of transaction {number}", "abort t{number}"),
    "subscribe": ("subscribes to {queue}{wish}", "the subscription to {queue}", "subscribe {called}"),
    "unsubscribe": (
        "unsubscribes from {queue}",
        "the end of the subscription to {queue}",
        "unsubscribe {called}",
    ),
    "create": ("creates queue {queue}", "the creation of queue {queue}", "create {called}"),
    "delete": (
        "deletes queue {queue} with its messages",
        "the deletion of queue {queue}",
        "delete {called}",
    ),
    "drop": ("drops its subscription to {queue}", "the drop of {queue}", "drop {called}"),
}


def phrase(rows: Sequence[Row], names: Names, standing: Standing) -> tuple[str, str]:
    """Return (label, sentence) of one row, or of several rows that belong together.

    These are a question with its answer, or a fault from its request to its observed effect.
    """
    first = rows[0]
    if first["process"] == MONITOR:
        return _of_monitor(first, standing)
    if first["process"] == NEMESIS:
        return _of_nemesis(rows)
    if first["process"] == HARNESS and first["f"] != "browse":
        return _of_harness(first, standing)
    return _of_client(rows, names)


def _of_monitor(row: Row, standing: Standing) -> tuple[str, str]:
    broker = row.get("broker", "a broker")
    low, high = row.get("time_low", row["time"]), row.get("time_high", row["time"])
    between = f"the change lies between {standing.seconds(low)} and {standing.seconds(high)}"
    if row["f"] == "replication":
        if row.get("value") == "unreplicated":
            return "no backup", f"{broker} has no up-to-date backup from here on ({between})."
        return "replicated", f"{broker} has an up-to-date backup from here on ({between})."
    if row["f"] == "takeover":
        number = f", number {row['value']}" if "value" in row else ""
        node = str(row.get("node_id", "a node"))[:8]
        return (
            "takeover",
            (
                f"{broker} has completed the takeover of node {node}{number} (it was complete between "
                f"{standing.seconds(low)} and {standing.seconds(high)})."
            ),
        )
    if row["f"] == "view-change":
        subject, belief = _belief(row)
        return subject, f"Asked about {subject}, {broker} {belief} from here on ({between})."
    role = str(row.get("role"))
    if standing.passed_unseen(row):
        return "another role", f"{broker} had another role for a moment, which was not seen ({between})."
    if role == SILENT:
        return "silent", f"{broker} does not answer any more, so its role is unknown ({between})."
    means = f": it {_ROLES[role]}" if role in _ROLES else ""
    return role, f"{broker} is seen {role}{means} ({between})."


def _of_nemesis(rows: Sequence[Row]) -> tuple[str, str]:
    fault = break_of(rows)
    why = because(rows[-1])
    if rows[0]["f"].startswith(HEAL) and (why or (fault.observed and not fault.bit)):
        return (
            f"{fault.words} not healed",
            (
                f"The fault {fault.words} is to be healed, but was not seen "
                f"healed{_observation(fault.observed)}{why}."
            ),
        )
    if rows[0]["f"].startswith(HEAL):
        return (
            f"{fault.words} healed",
            f"The fault {fault.words} is healed{_observation(fault.observed)}.",
        )
    if not fault.found_target:
        return fault.words, f"The fault {fault.words} found no target{why}."
    effect = "it took effect" if fault.bit else "no effect was seen"
    return fault.words, f"The fault {fault.words} begins; {effect}{_observation(fault.observed)}{why}."


def _observation(observed: str) -> str:
    return f" ({observed})" if observed else ""


def _of_harness(row: Row, standing: Standing) -> tuple[str, str]:
    if row["f"] == "restart":
        broker = row.get("broker", "A broker")
        return "restarted", f"{broker} had ended by itself and is started again."
    if row["f"] == "view":
        return _of_view(row, standing)
    value = str(row.get("value", row["f"]))
    if standing.is_drained and value in _IMPORTED_PHASES:
        return value, _IMPORTED_PHASES[value]
    return value, _PHASES.get(value, f"{value}.")


def thing(kind: str, key: str) -> str:
    """Return what a view describes; a node ID is shortened to as much as distinguishes it."""
    return f"{kind} {key[:8] if _NODE_ID.fullmatch(key) else key}"


def _belief(row: Row) -> tuple[str, str]:
    """Return what a view is about, and in words what its broker answers."""
    view = json.loads(row["value"])
    belief = "does not know it" if view["value"] is None else f'answers "{view["value"]}"'
    return thing(view["kind"], view["key"]), belief


def _of_view(row: Row, standing: Standing) -> tuple[str, str]:
    broker = row.get("broker", "a broker")
    if row["type"] != "ok":
        return "not asked", f"{broker} could not be asked{_why(row)}."
    subject, belief = _belief(row)
    if broker == CLIENTS:
        return subject, f"Clients were answered that {subject} is {json.loads(row['value'])['value']}."
    low, high = standing.seconds(row.get("time_low")), standing.seconds(row.get("time_high"))
    span = f" (every time from {low} to {high})" if row.get("time_low", 0) < row.get("time_high", 0) else ""
    return f"{subject}?", f"Asked about {subject}, {broker} {belief}{span}."


def _of_client(rows: Sequence[Row], names: Names) -> tuple[str, str]:
    first, last = rows[0], rows[-1]
    client_name = subject(names.client(first))
    broker = last.get("broker") or names.broker_asked(first)
    at = broker or "a broker"
    m = names.message(first.get("message"))
    match first["f"]:
        case "deliver":
            of_subscription = f" of subscription {first['subscription']}" if "subscription" in first else ""
            return f"deliver {m}", f"{at} delivers {m} to {client_name}{of_subscription}{_marks(first)}."
        case "browse":
            return _of_store(first, m, at)
        case "disconnect":
            return (
                "session ends",
                f"{capital(client_name)} ends: {shortened(first.get('error') or 'its connection is gone')}.",
            )
    verb, noun, label = _operation(first, m)
    if len(rows) > 1:
        answer = _answer(last, at)
        return (
            label,
            f"{capital(client_name)} {verb}; {answer[0]} {_passed(last['time'] - first['time'])}{answer[1]}.",
        )
    match first["type"]:
        case "invoke":
            to = f" to {broker}" if first["f"] == "send" and broker else ""
            return label, f"{capital(client_name)} {verb}{to}."
        case "ok" if first["f"] == "send":
            return f"receipt {m}", f"{at} acknowledges {m} to {client_name}."
        case "ok":
            return f"ok {label}", f"{at} confirms {noun} to {client_name}."
        case "fail":
            return f"failed {label}", f"{capital(noun)} by {client_name} fails for certain{_why(first)}."
    return f"unknown {label}", f"{capital(client_name)} does not learn the outcome of {noun}{_why(first)}."


def subject(client: str) -> str:
    """Return a client as the subject of a sentence: ``producer 5``, ``the administrator``."""
    return f"the {client}" if client == ADMINISTRATOR else client


def _operation(row: Row, m: str) -> tuple[str, str, str]:
    """Return what a client does as a verb, as a noun, and as a label for the arrow."""
    selector = selector_words(selector_of(row.get("value"))) if row["f"] == "subscribe" else ""
    words = {
        "m": m,
        "where": _where(row),
        "part": f" in transaction {row['transaction']}" if "transaction" in row else "",
        "number": row.get("transaction", "?"),
        "queue": _subscribed(row),
        "called": row.get("subscription") or row.get("queue", "a queue"),
        "wish": f", for {selector} only" if selector else "",
        "f": row["f"],
    }
    if row["f"] == "drop" and "subscription" not in row:
        return f"ends its connection, and {words['queue']} with it", f"the end of {words['queue']}", "end"
    verb, noun, label = _OPERATIONS.get(row["f"], ("asks for {f}", "the {f}", "{f}"))
    return verb.format(**words), noun.format(**words), label.format(**words)


def _subscribed(row: Row) -> str:
    """Return a queue, or a topic and its subscription."""
    queue = str(row.get("queue", "a queue"))
    if "subscription" not in row:
        return queue
    return f"topic {queue.removeprefix(TOPIC)} as {row['subscription']}"


def _of_store(row: Row, m: str, at: str) -> tuple[str, str]:
    if "message" in row:
        return f"has {m}", f"At the end {at} still holds {m} in its {row.get('value', 'main')} store."
    if row["type"] == "ok":
        return "looked into", f"All stores of {at} have been looked into."
    return "not looked into", f"The stores of {at} could not be read{_why(row)}."


def _answer(row: Row, at: str) -> tuple[str, str]:
    """Return what was answered, as words before and after the time that it took."""
    if row["type"] == "ok":
        return f"{at} {'acknowledges it' if row['f'] == 'send' else 'confirms that'}", ""
    if row["type"] == "fail":
        return "it fails for certain", _why(row)
    return "the client gives up", f" without knowing the outcome{_why(row)}"


def _why(row: Row) -> str:
    return f": {shortened(row['error'])}" if row.get("error") else ""


def _passed(ns: int) -> str:
    if ns < 50_000:
        return "at once"
    return f"{ns / 1e6:.1f} ms later" if ns < 1_000_000_000 else f"{ns / 1e9:.3f} s later"


def _where(row: Row) -> str:
    group = f", group {row['group']}" if "group" in row else ""
    amount = f"; {worth(row)}" if worth(row) else ""
    return f" ({place_named(row['queue'])}{group}{amount})" if "queue" in row else ""


def worth(row: Row) -> str:
    """Return the amount that a send's message stands for: ``account a3: 70``.

    Empty for other messages.
    """
    value = json_object(row.get("value")) or {}
    if not isinstance(value.get("amount"), int):
        return ""
    whose = f"account {value['account']}" if value.get("account") else "amount"
    return f"{whose}: {value['amount']:,}"


def place_named(queue: str) -> str:
    """Return ``queue q0`` or ``topic news``."""
    return f"topic {queue.removeprefix(TOPIC)}" if queue.startswith(TOPIC) else f"queue {queue}"


def _marks(row: Row) -> str:
    marks = []
    if row.get("redelivered"):
        marks.append("marked redelivered")
    if row.get("delivery_count", 1) > 1:
        marks.append(f"delivery count {row['delivery_count']}")
    if row.get("error"):
        marks.append(shortened(row["error"]))
    return f" ({', '.join(marks)})" if marks else ""


def because(row: Row) -> str:
    """Return in brackets what a row says went wrong; nothing if nothing did."""
    return f" ({shortened(row['error'])})" if row.get("error") else ""


def shortened(error: object) -> str:
    """Return what a broker said, shortened to fit into a sentence."""
    text = " ".join(str(error).split())
    return text if len(text) <= _ERROR_MAX else f"{text[: _ERROR_MAX - 1]}…"


def capital(text: str) -> str:
    """Return a text as it stands at the begin of a sentence.

    A broker keeps its name as it is written everywhere else: "a1".
    """
    head = text.split(" ", maxsplit=1)[0]
    return text if any(letter.isdigit() for letter in head) else text[:1].upper() + text[1:]
