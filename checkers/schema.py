"""The columns of a history, which checkers, recorder and readers share.

Why columns and not records: histories are enormous relative to the tests that make them, and a
verdict reads a few columns of all rows. Every event is one row; an operation is an ``invoke`` row
and at most one completion (``ok``, ``fail``, ``info``) by the same process. Rows are ordered by
``index``, dense from 0.

Processes: clients are >= 0; ``NEMESIS`` (-1) records faults, ``MONITOR`` (-2) broker roles,
``HARNESS`` (-3) phases and the contents of the stores at the end.

Operations ``f`` of clients
    send          queue, group, message, producer, sequence, digest; broker on completion;
                  transaction if in one
    ack, nack     queue, group, message, session, producer, sequence; broker on completion;
                  transaction if in one
    deliver       one ``ok`` row without invocation: queue, group, message, producer, sequence,
                  session, broker, redelivered, delivery_count, digest (of the body that arrived). A
                  body that cannot be read has message null and ``error`` set. time_low (ns): the
                  client asked for the delivery at that time, and the broker chose it only after
                  that
    begin, commit, abort   transaction, broker on completion
    subscribe     queue, session, broker; ``ok`` begins the session
    unsubscribe   queue, session, broker; ``ok`` ends it
    drop          queue (a topic), subscription, broker: a request to end the subscription of that
                  name, with the messages that wait for it. If it ends with its connection,
                  ``info`` if that is lost. For a temporary queue, without subscription: its owner
                  ends its connection; ``ok`` if that was answered, ``info`` if it was lost
    create, delete   queue, broker on completion: a request of an administrator to make a queue
                  last, or to end it with the messages that wait there, at all brokers that the
                  queue's clients use. A ``create`` is ``ok`` if the queue exists, a ``delete``
                  if it existed and is gone (``checkers.deletions``)
    disconnect    ``info``, one row for each session: the client noticed or caused the end of the
                  connection; session, broker, error
    connect       broker on completion; a failed connect is ``fail``
    timeout       ``info``, one row without invocation: the broker took a message back because its
                  acknowledgement was late; queue, group, message, producer, sequence, and the
                  session that had it. The row is written when the client knows, so the broker did
                  it earlier. It ends neither the process nor the session
    receive       ``info``, one row without invocation: a client had asked for one message, which
                  counts as acknowledged when it is handed out, and never heard whether it got one;
                  queue. It may have taken any one message of that queue, so as many messages that
                  are missing there are not certainly lost. At the end of the history, each request
                  that still waits for its answer has such a row
    state         ``info``, one row without invocation: the connection of a client reached another
                  state; broker, error (why), value = the state: "lost", "failed", "reached",
                  "connected", "recovering", "recovered", "given-up" or "closed". The process stands
                  for the client, and does nothing else. Only with ``client-states``; no rule judges
                  these rows
Operations of the harness
    phase         value: "load", "heal", "recovered", "not-recovered", "drain", "browse", "end".
                  "drained" in histories of other harnesses: every message was received in the end,
                  which counts as a reading of every store that found nothing more
    restart       broker: it had ended by itself, when no fault was in force, and was started again,
                  as a service manager would do
    browse        ``ok``, one row for each message found in a store: queue, group, message,
                  producer, sequence, digest, broker, value = the store ("main", "dead-letter",
                  "expired", "store-and-forward").
                  ``info`` without message: that broker's stores could not be read (error).
                  ``ok`` without queue: that broker's stores were read completely, and this reading
                  ends here. The stores of brokers with two copies of a message, or with a message
                  that another broker has, too, are read once more.
                  For a main store, queue and group are those that the broker tells, else those in
                  the body. For a dead letter or an expired message, the queue is its former queue,
                  if the broker tells it.
                  digest is null if the body was cut and its digest is not known. A body that cannot
                  be read has a digest and no message
    view          an answer of a live broker about the cluster, when that has recovered and had time
                  to agree: broker, time_low, time_high, value = JSON {"kind", "key", "value"}.
                  For the kinds "members" and "topology" the key is a node ID, the value the broker
                  that is live with it; for other kinds the value is what brokers must agree on (the
                  owner of a group).
                  For "subscription" the key is a topic and a subscription, with " > " between, the
                  value "there" or "gone": as clients were answered (broker "clients"), and as
                  brokers had it before the drain.
                  For "queue" the key is a queue that an administrator creates and deletes, the
                  value "there" or "gone", as for a subscription.
                  For "destination" the key is a queue and the pair that holds it, the value the
                  amount of its messages, with a checksum, or "nothing": what its live holds, and
                  what its backup would hold if it took over. Only for a live whose receipts wait
                  for that backup, and while both say that they have the same last change.
                  ``ok``: the broker gave this answer, and no other, to every question, from one
                  that was answered by time_low to one that was asked at time_high. So time_low is
                  after time_high if it was asked once. A null value: the broker knows nothing of
                  what others know. ``info``: the broker could not be asked (error)
Operations of the monitor
    role          broker, node_id, role, time_low, time_high: the change *to* ``role`` happened
                  within [time_low, time_high] (ns). Role "unreachable" means that the broker did
                  not answer: no claim is made until the next row. value, for a live broker that
                  tells it: the number of its life, which grows with each life and each takeover of
                  that node (activation, life of a shared store, epoch in a database). A takeover
                  with a higher number fences it: after that it cannot have stored anything
    takeover      broker, node_id, value, time_low, time_high: within [time_low, time_high] that
                  broker completed a takeover of that node's data; value is the number of the
                  takeover in the same count. Only from brokers that tell it
    replication     broker, node_id, value "replicated" or "unreplicated", time_low, time_high: from
                    within this interval on, that live broker had, or had not, an up-to-date backup.
                    Only from brokers that tell it; a live broker without a row makes no claim
    view-change   broker, value = JSON {"kind", "key", "value"}, time_low, time_high: within this
                  interval the broker changed what it believes about the cluster; null: it knows
                  nothing of that any more. Kinds as in a view of the harness, and "discovery": the
                  key is an address, the value the node ID that the broker hears there. It may
                  rightly differ from what others believe, so no rule judges it. Only with
                  ``watch-views``,
                  from the load to the recovery
Operations of the nemesis
    the fault's kind (``partition``, ``kill`` ...), ``invoke`` when asked for and ``info`` when it
    was seen to begin; then ``heal:<kind>`` in the same way. value is JSON: {"label", "shape",
    "target", "links", "nodes", "observed", "bit"}.

``time`` is nanoseconds since the start of the test on the harness' monotonic clock. ``message`` is
a signed 64-bit id unique in the history. ``sequence`` counts a producer's sends within one group
(or within the queue if the message has no group), from 0. ``digest`` is the CRC-32C of the
payload. ``headers`` is a digest of the application's own headers: in a send of those that the
producer set, in a deliver or browse of the same names as they arrived; null if they were not read.

``connection`` numbers the connections of clients to brokers, one number for each that was made,
unique in the history. Why: a process outlives its connections, and a broker that answers in order
does so only on one connection. The column is set on the ``ok`` of a connect and on every row of a
client that happened over a connection. It is null if there was no connection, and in older
histories.
A queue whose name begins with ``/topic/`` is a topic. ``subscription`` is the name of one of its
subscriptions, in every row of a consumer of it: subscribe, unsubscribe, deliver, ack, nack, and
browse of messages that are stored for it. A queue whose name begins with ``/temp-queue/`` is a
temporary one: its name is unique in the history, its owner is the connection of its first
subscribe, and it lives as long as that connection (``checkers.temporaries``).
``value`` of a send or a subscribe may be a JSON object with options (``checkers.asked``): of a
subscribe a ``selector``, of a send ``properties``, ``priority``, ``expires`` and ``delay`` (each
[low, high] in ns), ``reply_to``, ``amount``, ``close``. Otherwise ``value`` of a send or a delivery
is the name of its message in a history of another harness, if that is not a number of 64 bits.

What a history must be before it is judged
    columns       of the types below; texts plain or dictionary-encoded. ``connection``,
                  ``subscription`` and ``headers`` may be missing. A history of another harness may
                  lack more, if each of its files says so: the key-value metadata
                  ``jepsen-run-columns`` of the Parquet file names the columns that it has, with
                  commas between. It must have those of ``ALWAYS``. Rules that need others are not
                  judged, and the verdict says so
    index         every number from 0 to the number of rows minus 1, once. The rows that a killed
                  harness leaves end early, and are a history; rows that are cut out of the middle
                  are noticed. Below 2^32 - 1
    time          never goes back from one index to the next
    words         ``type`` and ``f`` are those above; operations of the processes below 0 and of
                  clients are never mixed
    not null      index, time, process, type, f; queue and message of a send, and producer if it
                  has a sequence; queue and session of ack, nack, deliver and timeout, and
                  message of a timeout; session of subscribe,
                  unsubscribe and disconnect; transaction of begin, commit and abort; queue of
                  create and delete, which is neither a topic nor temporary; queue and
                  subscription of a drop of a topic; subscription of every row of a topic's
                  consumer; broker, role,
                  time_low and time_high of a role; broker, node_id and both times of a takeover;
                  broker, value and both times of a replication; value of a phase; broker, value and
                  both times of a view that is ``ok``, and of a view-change; value of a state;
                  broker of a browse that is ``ok`` and has no queue. ``message`` is null in
                  deliver, browse, ack and nack of a body that could not be read
    JSON          in the value of a fault's rows (an object with a text "label"), of a view and of
                  a view-change (an object with texts "kind" and "key", and "value", a text or null)
    pairs         one invocation and at most one completion after it, by the same process, for send,
                  ack and nack (of a message), subscribe and unsubscribe (of a session), begin,
                  commit and abort (of a transaction), drop (of a subscription, or a queue),
                  create and delete (of a queue) and connect; the rows of a fault by its label.
                  All others have no invocation
    files         ``part-NNNNN.parquet`` have the rows of send, ack, nack, deliver, timeout and
                  browse that name a queue, all of one queue and group in one file, and those
                  without a group all of one queue and producer (none counts as 0);
                  ``control.parquet`` has the others. Files of other names may have any rows
A history that breaks this is no finding about a broker: one line names file, row and cause, the
exit status is 254, and the other runs of a batch are judged. If a row of the monitor, the nemesis
or the harness makes no sense, the rules that need such rows are not judged. Findings that other
rows prove stand, and the exit status is 1.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

SCHEMA_VERSION: Final = 1
"""The version of the JSON schemas of rows and events; it grows if readers must change."""

NEMESIS: Final = -1
MONITOR: Final = -2
HARNESS: Final = -3

TYPES: Final = ("invoke", "ok", "fail", "info")

OF_SESSIONS: Final = ("subscribe", "unsubscribe")
"""The operations of clients that are told apart, within one process, by their session."""
OF_QUEUES: Final = ("create", "delete")
"""The operations of an administrator on a queue; within one process, queues tell them apart."""
OF_TRANSACTIONS: Final = ("begin", "commit", "abort")
"""The operations of clients that are told apart, within one process, by their transaction."""

TOPIC: Final = "/topic/"
"""The beginning of the name of a topic."""
TEMPORARY: Final = "/temp-queue/"
"""The beginning of the name of a temporary queue."""
SELECTORS_MOST: Final = 62
"""The most different selectors of a queue whose order is judged; each is a bit of a number."""

KINDS: Final = {
    "index": "int64",
    "time": "int64",
    "process": "int32",
    "type": "code",
    "f": "code",
    "queue": "code",
    "group": "code",
    "message": "int64",
    "producer": "int32",
    "sequence": "int64",
    "transaction": "int64",
    "session": "int32",
    "connection": "int32",
    "subscription": "code",
    "broker": "code",
    "redelivered": "bool",
    "delivery_count": "int32",
    "digest": "int64",
    "headers": "int64",
    "node_id": "code",
    "role": "code",
    "time_low": "int64",
    "time_high": "int64",
    "error": "code",
    "value": "text",
}
"""The kind of each column, in their order; a code is a text with few different values.

Their Arrow types are in ``checkers.arrow_schema``, which takes 0.15 s to import.
"""

COLUMNS: Final = tuple(KINDS)

NEVER_NULL: Final = ("index", "time", "process", "type", "f")

ADDED: Final = ("connection", "subscription", "headers")
"""The columns that older histories lack, in the order in which they were added.

Such histories are judged without them: a column that a table lacks reads as null throughout.
"""

ALWAYS: Final = ("index", "time", "process", "type", "f", "queue", "message")
"""The columns without which a history cannot be judged."""

DECLARED: Final = b"jepsen-run-columns"
"""The metadata key under which a file of another harness declares the columns that it has."""


@functools.lru_cache(maxsize=1 << 16)
def json_object(text: str | None) -> Mapping[str, Any] | None:
    """Return the JSON object in the ``value`` of a row; None if it has none.

    The results are cached, because every rule reads the same values again.
    """
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
