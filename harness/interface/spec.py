"""The spec of a test: everything that decides it, each field with its description.

``harness.history.spec`` reads and checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from harness.interface.field import Field

NO_MASTER: Final = "none"
"""The ``master`` of a conventional cluster without a master broker."""
OWN: Final = "own"
"""The system that a spec means if it names none."""

IMPORTED: Final = "imported"
"""The system, policy, workload and environment of an imported history."""

LARGEST_BODY: Final = 8 * 1024 * 1024
"""The largest body of a message (bytes)."""
SHORTEST_FAULT_S: Final = 0.001
"""The shortest duration of a fault (s): times of faults have no more digits.

Shorter faults without peace between them would be without number.
"""


class BroughtHistory(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The origin of an imported history, which another harness recorded.

    ``drained``: everything was received in the end. ``fifo``: queues without groups were promised
    to be in order. ``ack_wait_s``: the seconds without an acknowledgement after which a broker
    takes a message back. ``not_judged``: rules of which the history says too little, each with the
    reason.
    """

    file: str
    format: str
    drained: bool = False
    fifo: bool = False
    ack_wait_s: float | None = None
    not_judged: dict[str, str] = msgspec.field(default_factory=dict)


class TestSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """Everything that decides a test.

    It is stored in ``spec.json``, and ``--spec`` reads it back. A field that is not there has its
    default.
    """

    __test__ = False  # not a pytest class

    def __post_init__(self) -> None:
        """Make each value that equals its default the default itself.

        Only what is the same object is left out of the JSON, and a value that was read or pickled
        is another one.
        """
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value is not default and type(value) is type(default) and value == default:
                msgspec.structs.force_setattr(self, name, default)

    name: Annotated[str, Field("Name of the test in the store", "--name", "from policy and nemesis")]
    system: Annotated[str, Field("Brokers under test", "--system")] = OWN
    policy: Annotated[
        str,
        Field(
            "High-availability policy of the brokers",
            "--policy",
            "replication, or the only policy of the system",
        ),
    ] = "replication"
    pairs: Annotated[int, Field("Live-backup pairs", "--pairs", least=1, most=26)] = 3
    master: Annotated[
        str,
        Field(
            "Node whose broker is the master broker of a conventional cluster, or none",
            "--master",
            "its first node",
        ),
    ] = ""
    environment: Annotated[
        str,
        Field(
            "Where the brokers run; auto is docker if a Docker engine answers, else local",
            "--environment",
        ),
    ] = "auto"
    hosts: Annotated[
        tuple[str, ...],
        Field(
            "Machines for --environment ssh: one hosts.toml, or one USER@ADDRESS for each --host",
            "--host",
            "none",
        ),
    ] = ()
    workload: Annotated[
        str,
        Field(
            "What the clients do: a workload, several separated by commas, each with a weight if wanted"
            " (bank:2,queue), or mixed",
            "--workload",
        ),
    ] = "groups"
    nemeses: Annotated[
        tuple[str, ...],
        Field(
            "What breaks the cluster: names separated by commas, for example partition,kill",
            "--nemesis",
            "none",
        ),
    ] = ()
    seed: Annotated[
        int,
        Field(
            "Seed; repeats the choices of an earlier run",
            "--seed",
            "drawn and printed",
            least=0,
        ),
    ] = 0
    time_limit_s: Annotated[float, Field("Seconds of load and faults", "--time-limit", above=0)] = 40.0
    rate: Annotated[
        float,
        Field(
            "Sends per second of all producers together; 0 means as fast as possible",
            "--rate",
            least=0,
        ),
    ] = 200.0
    producers: Annotated[int, Field("Number of producers", "--producers", least=1)] = 6
    consumers: Annotated[int, Field("Number of consumers", "--consumers", least=1)] = 6
    produce_at: Annotated[
        tuple[str, ...],
        Field("Nodes at which producers send, separated by commas", "--produce-at", "those of every pair"),
    ] = ()
    consume_at: Annotated[
        tuple[str, ...],
        Field("Nodes at which consumers attach, separated by commas", "--consume-at", "those of every pair"),
    ] = ()
    drain_at: Annotated[
        tuple[str, ...],
        Field(
            "Nodes at which the drain consumes what is left, separated by commas",
            "--drain-at",
            "every broker",
        ),
    ] = ()
    client_brokers: Annotated[
        tuple[str, ...],
        Field(
            "Nodes whose addresses every client knows at its start, separated by commas; a client may later "
            "use any broker",
            "--client-brokers",
            "the nodes of the client's pair; a client uses no others",
        ),
    ] = ()
    client_order: Annotated[
        str,
        Field(
            "Order in which new clients try client-brokers: PRIORITY (as listed), RANDOM or ROUND_ROBIN",
            "--client-order",
        ),
    ] = "PRIORITY"
    client_attempts: Annotated[
        int,
        Field(
            "Further attempts of a client at a broker, half a second apart, before it tries the next one",
            "--client-attempts",
            least=0,
        ),
    ] = 0
    client_iterations: Annotated[
        int,
        Field(
            "Rounds of a client over client-brokers before it gives up",
            "--client-iterations",
            "0: until a broker accepts it",
            least=0,
        ),
    ] = 0
    client_interval_s: Annotated[
        float | None,
        Field(
            "Seconds before a client tries a broker again, and before a further round over client-brokers",
            "--client-interval",
            "0.5, and 0.05 to 0.2 before a round",
            above=0,
        ),
    ] = None
    client_states: Annotated[
        bool,
        Field(
            "Record each state of the connections of clients, such as lost and recovered",
            "--client-states",
        ),
    ] = False
    client_handler: Annotated[
        str,
        Field(
            "Node that each client's failure handler chooses when the client loses its broker",
            "--client-handler",
            "no handler",
        ),
    ] = ""
    client_feed: Annotated[
        bool,
        Field(
            "Clients learn from their broker which brokers are live, where brokers tell that",
            "--client-feed/--no-client-feed",
            "client-feed",
        ),
    ] = True
    groups: Annotated[int, Field("Number of message groups", "--groups", least=1, drawn=(1, 3, 24))] = 12
    queues: Annotated[
        int,
        Field(
            "Number of queues; for workloads subscriptions and destinations, of each pair",
            "--queues",
            least=1,
            drawn=(3, 6),
            drawn_share=0.3,
        ),
    ] = 1
    payload_bytes: Annotated[
        int, Field("Bytes of each body", least=0, most=LARGEST_BODY, drawn=(8, 512, 4096))
    ] = 32
    large_message_share: Annotated[
        float,
        Field(
            "Share of the messages, 0 to 1, with a body of large-message-bytes (150,000)",
            "--large-message-share",
            least=0,
            most=1,
            drawn=(0.02, 0.1),
            drawn_share=0.15,
        ),
    ] = 0.0
    large_message_bytes: Annotated[
        int,
        Field(
            "Bytes of a large body; the default is above min-large-message-size of the brokers",
            least=0,
            most=LARGEST_BODY,
        ),
    ] = 150_000
    hold_s: Annotated[
        float | None,
        Field(
            "Seconds from a delivery to its acknowledgement",
            "--hold",
            "0.02, and 0 at full speed",
            least=0,
            drawn=(0.0, 0.1, 0.5),
        ),
    ] = None
    prefetch: Annotated[
        int | None,
        Field(
            "Number of messages that a consumer may hold without acknowledging them",
            "--prefetch",
            "100",
            least=1,
            drawn=(1, 2, 10, 1000),
        ),
    ] = None
    churn: Annotated[
        float,
        Field(
            "Factor for how often subscriptions and queues are left, deleted and created again",
            "--churn",
            above=0,
            most=100,
            drawn=(2.0, 4.0),
            drawn_share=0.3,
        ),
    ] = 1.0
    send_again: Annotated[
        bool,
        Field(
            "Repeat a send that got no answer, with an ID that lets the brokers accept the message only once",
            "--send-again",
            drawn=(True,),
            drawn_share=0.15,
        ),
    ] = False
    reuse_transactions: Annotated[
        bool,
        Field(
            "All clients give all their transactions the same name",
            "--reuse-transactions",
            drawn=(True,),
            drawn_share=0.3,
        ),
    ] = False
    close_groups: Annotated[
        bool,
        Field(
            "In workload groups, some messages close their group (JMSXGroupSeq -1)",
            "--close-groups",
            drawn=(True,),
            drawn_share=0.3,
        ),
    ] = False
    change_selectors: Annotated[
        bool,
        Field(
            "Durable subscriptions are sometimes created again with another selector",
            "--change-selectors",
            drawn=(True,),
            drawn_share=0.3,
        ),
    ] = False
    share_topics: Annotated[
        bool,
        Field(
            "Subscribers are at another pair than the producers of their topic, where brokers share topics",
            "--share-topics",
            drawn=(True,),
            drawn_share=0.6,
        ),
    ] = False
    share_replies: Annotated[
        bool,
        Field(
            "Responders are at another pair than the requesters, where brokers forward replies",
            "--share-replies",
            drawn=(True,),
            drawn_share=0.6,
        ),
    ] = False
    guarantee: Annotated[
        str,
        Field(
            "What the brokers promise: at-most-once, at-least-once or exactly-once",
            "--guarantee",
        ),
    ] = "at-least-once"
    ordered: Annotated[
        bool,
        Field(
            "Whether the brokers promise the order within a group",
            "--ordered/--unordered",
            "ordered",
        ),
    ] = True
    interval_s: Annotated[
        float,
        Field("Seconds from the end of a fault to the start of the next", "--interval", least=0),
    ] = 8.0
    duration_s: Annotated[
        float, Field("Seconds that a fault lasts", "--duration", least=SHORTEST_FAULT_S)
    ] = 6.0
    shapes: Annotated[
        tuple[str, ...],
        Field(
            "Shapes of partitions, separated by commas",
            "--shape",
            "all that are possible with these brokers",
        ),
    ] = ()
    targets: Annotated[
        tuple[str, ...],
        Field(
            "Targets of node faults, separated by commas: names of nodes (a1), or live, lives, backup, "
            "backups, one, minority, majority, all, master-broker",
            "--target",
            "each fault's default",
        ),
    ] = ()
    operation_timeout_s: Annotated[
        float, Field("Seconds that a client waits for an answer", above=0, drawn=(1.0, 2.5))
    ] = 5.0
    unavailable_bound_s: Annotated[
        float,
        Field(
            "Seconds without a successful operation after which a queue or client counts as unavailable",
            above=0,
        ),
    ] = 20.0
    recovery_bound_s: Annotated[
        float,
        Field(
            "Seconds after the end of a fault in which it may still explain that nothing succeeds", above=0
        ),
    ] = 30.0
    quiet_period_s: Annotated[
        float, Field("Seconds without any delivery after which the drain ends", above=0)
    ] = 0.5
    compare_backups: Annotated[
        bool,
        Field(
            "Before the drain, compare the queues of each live broker with those of its backup",
            "--compare-backups",
            drawn=(True,),
            drawn_share=0.3,
        ),
    ] = False
    select_by_pair: Annotated[
        bool,
        Field(
            "All consumers of one pair select the same messages of queues, also in a drain with drain-at; "
            "the consumers of the next pair select the others",
            "--select-by-pair",
        ),
    ] = False
    chain: Annotated[
        bool,
        Field(
            "The brokers of each pair are linked with those of the previous and the next pair only",
            "--chain",
            drawn=(True,),
        ),
    ] = False
    watch_views: Annotated[
        bool,
        Field(
            "Ask live brokers once a second what they believe about the cluster, and record the changes",
            "--watch-views",
        ),
    ] = False
    attached: Annotated[
        dict[str, Any] | None,
        Field("The attached cluster as its file describes it, without secrets"),
    ] = None
    imported: Annotated[
        BroughtHistory | None,
        Field("The origin of an imported history; such a test cannot be run again"),
    ] = None
    properties: Annotated[
        dict[str, dict[str, Any]],
        Field(
            'Broker properties by their documented names, for each node or "*":'
            ' {"*": {"ha-policy.replication.slave.vote-retries": 3}}',
        ),
    ] = msgspec.field(default_factory=dict)


_DEFAULTS: Final = {
    field.name: field.default
    for field in msgspec.structs.fields(TestSpec)
    if field.default is not msgspec.NODEFAULT
}


def _described() -> dict[str, Field]:
    hints = get_type_hints(TestSpec, include_extras=True)
    return {name: hints[name].__metadata__[0] for name in TestSpec.__struct_fields__}


FIELDS: Final[Mapping[str, Field]] = _described()
"""The description of each field of ``TestSpec``, in their order."""
