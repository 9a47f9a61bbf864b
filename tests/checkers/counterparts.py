"""What shows, in a history of the innocent cluster, that what a search can draw occurred in it.

Why a table: an option of a search that the innocent cluster never has can accuse an innocent broker
for as long as nobody compares the two. ``test_counterparts`` reads what a search draws from the
search itself; what is missing here fails it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from innocent_cluster.recording import Row

Event = Callable[[Sequence[Row]], bool]


def of_kind(*kinds: str) -> Event:
    """A fault of one of the kinds was seen to bite."""

    def occurred(rows: Sequence[Row]) -> bool:
        return any(row["f"] in kinds and value_of(row).get("bit") for row in rows)

    return occurred


def with_option(kind: str, option: str) -> Event:
    def occurred(rows: Sequence[Row]) -> bool:
        return any(row["f"] == kind and option in value_of(row).get("options", {}) for row in rows)

    return occurred


def with_shape(shape: str) -> Event:
    return lambda rows: any(row["process"] == -1 and value_of(row).get("shape") == shape for row in rows)


def of_queue(*names: str) -> Event:
    return lambda rows: any(
        (row["f"], row.get("queue")) in {("deliver", name) for name in names} for row in rows
    )


def found_no_target(rows: Sequence[Row]) -> bool:
    return any(row["process"] == -1 and value_of(row).get("bit") is False for row in rows)


def struck_several(rows: Sequence[Row]) -> bool:
    return any(row["process"] == -1 and len(value_of(row).get("nodes", ())) > 1 for row in rows)


def failed_over(rows: Sequence[Row]) -> bool:
    """Another broker became live under the same node ID, and delivers what the first one took."""
    lives: dict[str, set[str]] = defaultdict(set)
    takers: dict[int, str] = {}
    for row in rows:
        if row["f"] == "role" and row["role"] == "live":
            lives[row["node_id"]].add(row["broker"])
        elif row["f"] == "send" and row["type"] == "ok":
            takers.setdefault(row["message"], row["broker"])
        elif row["f"] == "deliver" and takers.get(row["message"], row["broker"]) != row["broker"]:
            return any(len(brokers) > 1 for brokers in lives.values())
    return False


def moved(rows: Sequence[Row]) -> bool:
    """A message was delivered by a broker of another pair than took it."""
    takers = {row["message"]: row["broker"] for row in rows if (row["f"], row["type"]) == ("send", "ok")}
    return any(
        row["f"] == "deliver" and takers.get(row["message"], row["broker"])[0] != row["broker"][0]
        for row in rows
    )


def joined(rows: Sequence[Row]) -> bool:
    """Several brokers that had never been live became live when others had taken messages."""
    held = {
        name
        for row in rows
        if row["f"] == "heal:late-start" and row["type"] == "invoke"
        for name in value_of(row)["nodes"]
    }
    lives: list[str] = []
    loaded = False
    for row in rows:
        loaded = loaded or (row["f"], row["type"]) == ("send", "ok")
        if row["f"] == "role" and row["role"] == "live" and row["broker"] in held:
            lives += [row["broker"]] if loaded else []
            held -= set() if loaded else {row["broker"]}
    return len({*lives}) > 1


def shared_replies(rows: Sequence[Row]) -> bool:
    """A temporary queue got a message that a broker of another pair had taken."""
    return moved(
        [row for row in rows if row["f"] == "send" or (row.get("queue") or "").startswith("/temp-queue/")]
    )


def shared_topics(rows: Sequence[Row]) -> bool:
    """A subscription got a message that a broker of another pair had taken."""
    return moved(
        [row for row in rows if row["f"] == "send" or (row.get("queue") or "").startswith("/topic/")]
    )


def clean_fail_over(rows: Sequence[Row]) -> bool:
    return failed_over(rows) and any(
        row["f"] in ("stop", "switch-over", "quiesce", "takeover") for row in rows
    )


def deleted(rows: Sequence[Row]) -> bool:
    """A queue was deleted with a message that was never delivered, and a later one was."""
    unread = {row["message"] for row in invoked(rows, "send")}
    unread -= {row.get("message") for row in rows if row["f"] in ("deliver", "browse")}
    waiting, ended = set(), set()
    for row in rows:
        queue, outcome = row.get("queue"), (row["f"], row["type"])
        if outcome == ("send", "ok") and row["message"] in unread:
            waiting.add(queue)
        elif outcome == ("delete", "ok") and queue in waiting:
            ended.add(queue)
        elif row["f"] == "deliver" and queue in ended:
            return True
    return False


def came_again(rows: Sequence[Row]) -> bool:
    """A message was delivered to two sessions, the first of which was lost."""
    lost, sessions = set(), defaultdict(set)
    for row in rows:
        if row["f"] == "disconnect":
            lost.add(row["session"])
        elif row["f"] == "deliver":
            if sessions[row["message"]] & lost - {row["session"]}:
                return True
            sessions[row["message"]].add(row["session"])
    return False


def sent_again(rows: Sequence[Row]) -> bool:
    return any(count > 1 for count in counted(row["message"] for row in invoked(rows, "send")).values())


def sent_again_elsewhere(rows: Sequence[Row]) -> bool:
    connections = defaultdict(set)
    for row in invoked(rows, "send"):
        connections[row["message"]].add(row["connection"])
    return any(len(some) > 1 for some in connections.values())


def timed_out(rows: Sequence[Row]) -> bool:
    return any(row.get("error") == "time-out" for row in rows)


def reused_connection(rows: Sequence[Row]) -> bool:
    """A transaction began where another had been rolled back, or its commit had failed."""
    ended = set()
    for row in rows:
        if (row["f"], row["type"]) in (("abort", "ok"), ("commit", "fail")):
            ended.add(row["connection"])
        elif (row["f"], row["type"]) == ("begin", "ok") and row["connection"] in ended:
            return True
    return False


def made_anew(rows: Sequence[Row]) -> bool:
    """A subscription was dropped, and subscribed to again under the same name."""
    dropped = set()
    for row in rows:
        name = row.get("queue"), row.get("subscription")
        if (row["f"], row["type"]) == ("drop", "ok"):
            dropped.add(name)
        elif (row["f"], row["type"]) == ("subscribe", "ok") and name in dropped:
            return True
    return False


def changed_selector(rows: Sequence[Row]) -> bool:
    wanted = defaultdict(set)
    for row in rows:
        if (row["f"], row["type"]) == ("subscribe", "invoke") and row.get("subscription"):
            wanted[row["queue"], row["subscription"]].add(row.get("value"))
    return any(len(some) > 1 for some in wanted.values())


def changed_durable_selector(rows: Sequence[Row]) -> bool:
    """A subscription was made again with another selector, and got something afterwards."""
    wanted: dict[tuple[str, str], str | None] = {}
    changed = set()
    for row in rows:
        name = row.get("queue"), row.get("subscription")
        if (row["f"], row["type"]) == ("subscribe", "ok") and name[1] is not None:
            if wanted.setdefault(name, row.get("value")) != row.get("value"):
                changed.add(name)
        elif row["f"] == "deliver" and name in changed:
            return True
    return False


def closed_group(rows: Sequence[Row]) -> bool:
    """A message that closes its group was delivered, and another session got a later one."""
    closing = {row["message"] for row in invoked(rows, "send") if value_of(row).get("close")}
    closed = {}
    for row in rows:
        if row["f"] == "deliver" and row.get("group") is not None:
            name = row["queue"], row["group"]
            if closed.get(name, row["session"]) != row["session"]:
                return True
            if row["message"] in closing:
                closed[name] = row["session"]
    return False


def held_several(rows: Sequence[Row]) -> bool:
    return most_held(rows) > 1


def held_one(rows: Sequence[Row]) -> bool:
    return most_held([row for row in rows if row["f"] != "subscribe"], until="drain") == 1


def most_held(rows: Sequence[Row], until: str | None = None) -> int:
    held, most = defaultdict(set), 0
    for row in rows:
        if row["f"] == "phase" and row["value"] == until:
            break
        if row["f"] == "deliver":
            held[row["session"]].add(row["message"])
            most = max(most, len(held[row["session"]]))
        elif row["f"] in ("ack", "nack") and row["type"] != "invoke":
            held[row["session"]].discard(row["message"])
    return most


def held_long(rows: Sequence[Row]) -> bool:
    read = {}
    for row in rows:
        if row["f"] == "deliver":
            read[row["message"], row["session"]] = row["time"]
        elif (row["f"], row["type"]) == ("ack", "invoke"):
            begun = read.get((row["message"], row["session"]), row["time"])
            if row["time"] - begun > 90_000_000:
                return True
    return False


def waited_in_numbers(rows: Sequence[Row]) -> bool:
    """More messages waited in a queue than a page of the innocent cluster takes."""
    waiting = defaultdict(set)
    for row in rows:
        if (row["f"], row["type"]) == ("send", "ok"):
            waiting[row["queue"]].add(row["message"])
            if len(waiting[row["queue"]]) > 5:
                return True
        elif row["f"] == "deliver":
            waiting[row["queue"]].discard(row["message"])
    return False


def large_bodies(rows: Sequence[Row]) -> bool:
    return any(row["f"] == "browse" and "message" in row and "digest" not in row for row in rows)


def found_expired(rows: Sequence[Row]) -> bool:
    return any(row["f"] == "browse" and row.get("value") == "expired" for row in rows)


def dropped_expired(rows: Sequence[Row]) -> bool:
    """What expired is nowhere."""
    sent = {row["message"]: value_of(row).get("expires") for row in rows if row["f"] == "send"}
    gone = {message for message, expires in sent.items() if expires and expires[0] < rows[-1]["time"]}
    return bool(gone - {row.get("message") for row in rows if row["f"] in ("deliver", "browse")})


def died(rows: Sequence[Row]) -> bool:
    return any(row["f"] == "browse" and row.get("value") == "dead-letter" for row in rows)


def waited_again(rows: Sequence[Row]) -> bool:
    """A message that was refused came again only after a while."""
    refused = {}
    for row in rows:
        if (row["f"], row["type"]) == ("nack", "ok"):
            refused[row["message"]] = row["time"]
        elif row["f"] == "deliver" and row["time"] - refused.get(row["message"], row["time"]) > 600_000_000:
            return True
    return False


def compared(rows: Sequence[Row]) -> bool:
    return any(row["f"] == "view" and value_of(row).get("kind") == "destination" for row in rows)


def several_queues(rows: Sequence[Row]) -> bool:
    return len({row["queue"] for row in invoked(rows, "send")}) > 2


def groups_in_numbers(rows: Sequence[Row]) -> bool:
    return len({row.get("group") for row in invoked(rows, "send")} - {None}) > 2


def bodies(rows: Sequence[Row]) -> bool:
    return any(row["f"] == "deliver" and "digest" in row for row in rows)


def mixture(rows: Sequence[Row]) -> bool:
    return several_queues(rows) and any(row["f"] == "commit" for row in rows)


def value_of(row: Row) -> Mapping[str, Any]:
    return json.loads(row["value"]) if str(row.get("value", "")).startswith("{") else {}


def invoked(rows: Sequence[Row], f: str) -> Iterable[Row]:
    return (row for row in rows if (row["f"], row["type"]) == (f, "invoke"))


def counted(items: Iterable[Any]) -> dict[Any, int]:
    counts: dict[Any, int] = defaultdict(int)
    for item in items:
        counts[item] += 1
    return counts


FAULTS = (
    "partition",
    "kill",
    "pause",
    "stop",
    "slow",
    "stall",
    "late-start",
    "leave",
    "power-loss",
    "disk-slow",
    "disk-stall",
    "clock-skew",
    "clock-step",
    "clock-strobe",
    "nfs-stall",
    "nfs-disconnect",
    "nfs-restart",
    "database-stall",
    "database-restart",
    "database-disconnect",
    "takeover",
    "quiesce",
    "switch-over",
    "administer",
)
SHAPES = (
    "isolate-live",
    "isolate-backup",
    "pair-link",
    "halves",
    "majorities-ring",
    "bridge",
    "one-way",
    "random",
)
FAULT_OPTIONS = (
    "slow.delay_ms",
    "slow.jitter_ms",
    "slow.rate_bytes_s",
    "disk-slow.delay_ms",
    "disk-slow.jitter_ms",
    "clock-skew.skew_ms",
    "clock-step.step_ms",
    "clock-strobe.step_ms",
    "clock-strobe.period_ms",
    "stop.failover",
    "database-disconnect.chance",
    "database-disconnect.committed",
    "administer.command",
)
FAILS_OVER = (
    "ha-policy.replication.quorum-vote-wait",
    "ha-policy.replication.retry-replication-wait",
    "ha-policy.replication.replication-patience",
    "ha-policy.replication.vote-retries",
    "ha-policy.replication.vote-retry-wait",
    "ha-policy.ha-database.takeover-wait",
    "ha-policy.ha-database.monitor-interval",
    "database-store.network-timeout",
    "database-store.lock-expiration",
    "database-store.journal-sync-period",
    "ha-policy.multi-instance.lock-expiration",
    "ha-policy.multi-instance.lock-poll-period",
    "journal.segment-size",
    "journal.compact-min-files",
)

COUNTERPARTS: dict[str, Event] = {
    "field seed": bodies,
    "field nemeses": of_kind(*FAULTS),
    "field interval_s": of_kind(*FAULTS),
    "field duration_s": of_kind(*FAULTS),
    "field targets": found_no_target,
    "field properties": failed_over,
    "field workload": mixture,
    "field queues": several_queues,
    "field groups": groups_in_numbers,
    "field payload_bytes": bodies,
    "field large_message_share": large_bodies,
    "field prefetch": held_several,
    "field hold_s": held_long,
    "field churn": made_anew,
    "field send_again": sent_again_elsewhere,
    "field reuse_transactions": reused_connection,
    "field close_groups": closed_group,
    "field change_selectors": changed_durable_selector,
    "field share_topics": shared_topics,
    "field share_replies": shared_replies,
    "field operation_timeout_s": timed_out,
    "field compare_backups": compared,
    "field chain": moved,
    **{f"fault {kind}": of_kind(kind) for kind in FAULTS},
    **{f"option {one}": with_option(*one.split(".")) for one in FAULT_OPTIONS},
    **{f"shape {shape}": with_shape(shape) for shape in SHAPES},
    "target live": failed_over,
    "target backup": found_no_target,
    "target lives": struck_several,
    "target backups": struck_several,
    "target one": of_kind(*FAULTS),
    "target minority": of_kind(*FAULTS),
    "target of several names": joined,
    "target all": struck_several,
    "workload queue": of_queue("q"),
    "workload groups": groups_in_numbers,
    "workload subscriptions": changed_selector,
    "workload transactions": reused_connection,
    "workload refusals": died,
    "workload request-reply": of_queue(*(f"/temp-queue/{number}" for number in range(1, 9))),
    "workload selectors": changed_selector,
    "workload bank": of_queue("bank"),
    "workload destinations": deleted,
    **{f"property {name}": failed_over for name in FAILS_OVER},
    "property ha-policy.multi-instance.failover-on-shutdown": clean_fail_over,
    "property cluster.connection-ttl": came_again,
    "property cluster.call-timeout": came_again,
    "property cluster.retry-interval": came_again,
    "property cluster.max-hops": moved,
    "property address-settings.#.redistribution-delay": moved,
    "property address-settings.#.max-delivery-attempts": died,
    "property address-settings.#.redelivery-delay": waited_again,
    "property address-settings.#.expiry-address": dropped_expired,
    "property broker.message-expiry-scan-period": found_expired,
    "property address-settings.#.max-size-bytes": waited_in_numbers,
    "property address-settings.#.page-size-bytes": waited_in_numbers,
}
"""What a search draws -> the event that shows that it occurred."""
