"""The command line of ``jepsen-run test``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.history import spec as specs
from harness.history.known import KnownFinding
from harness.interface import OWN, TestSpec, UsageError
from harness.systems import registry as systems


@click.command("test", context_settings=options.CONTEXT)
@options.system()
@options.policy()
@options.listed(
    "--nemesis",
    "nemeses",
    "What breaks the cluster: names separated by commas, for example partition,kill [none].",
)
@click.option("--workload", help="What the clients do [groups].")
@click.option(
    "--environment",
    help="Where the brokers run; auto is docker if a Docker engine answers, else local [auto].",
)
@options.hosts()
@click.option(
    "--attach",
    "attach_file",
    type=click.Path(path_type=Path),
    help="TOML file of a running cluster; only your hooks break it.",
)
@click.option("--pairs", type=int, help="Live-backup pairs [3].")
@click.option("--time-limit", "time_limit_s", type=options.NUMBER, help="Seconds of load and faults [40].")
@click.option(
    "--rate",
    type=options.NUMBER,
    help="Sends per second of all producers together; 0 means as fast as possible [200].",
)
@click.option("--producers", type=int, help="Number of producers [6].")
@click.option("--consumers", type=int, help="Number of consumers [6].")
@click.option("--groups", type=int, help="Number of message groups [12].")
@click.option(
    "--queues", type=int, help="Number of queues; for workload subscriptions, topics of each pair [1]."
)
@click.option(
    "--churn",
    type=options.NUMBER,
    help="Factor for how often subscriptions are left, deleted and created again [1].",
)
@click.option(
    "--send-again",
    is_flag=True,
    default=None,
    help="Repeat a send that got no answer, with an ID that lets the brokers accept the message only once.",
)
@click.option(
    "--reuse-transactions",
    is_flag=True,
    default=None,
    help="All clients give all their transactions the same name.",
)
@click.option(
    "--close-groups",
    is_flag=True,
    default=None,
    help="In workload groups, some messages close their group (JMSXGroupSeq -1).",
)
@click.option(
    "--change-selectors",
    is_flag=True,
    default=None,
    help="Durable subscriptions are sometimes created again with another selector.",
)
@click.option(
    "--large-message-share",
    type=options.NUMBER,
    help="Share of the messages, 0 to 1, with a body of 150,000 bytes [0].",
)
@click.option(
    "--hold", "hold_s", type=options.NUMBER, help="Seconds from a delivery to its acknowledgement [0.02]."
)
@click.option(
    "--prefetch",
    type=int,
    help="Number of messages that a consumer may hold without acknowledging them [100].",
)
@options.listed(
    "--shape",
    "shapes",
    "Shapes of partitions, separated by commas [all that are possible with these brokers].",
)
@options.listed(
    "--target",
    "targets",
    "Targets of node faults, separated by commas: live, backup, one, minority, majority, all.",
)
@click.option("--interval", "interval_s", type=options.NUMBER, help="Seconds between faults [8].")
@click.option("--duration", "duration_s", type=options.NUMBER, help="Seconds a fault lasts [6].")
@click.option("--seed", type=int, help="Seed; repeats the choices of an earlier run [drawn and printed].")
@click.option(
    "--guarantee",
    help="What the brokers promise: at-most-once, at-least-once or exactly-once [at-least-once].",
)
@options.ordered()
@click.option(
    "--compare-backups",
    is_flag=True,
    default=None,
    help="Before the drain, compare the queues of each live broker with those of its backup.",
)
@click.option(
    "--schedule",
    "schedule_file",
    type=click.Path(path_type=Path),
    help="Faults from a file (schedule.json of an earlier run) instead of drawn ones.",
)
@click.option(
    "--spec",
    "spec_file",
    type=click.Path(path_type=Path),
    help="Test from a file (spec.json of an earlier run); other options override it.",
)
@options.settings()
@options.known()
@options.store()
@options.spark_master()
@options.as_json("Print one JSON document on standard output and everything else on standard error.")
@click.option("--name", help="Name of the test in the store [from policy and nemesis].")
@options.volume()
def test_command(
    settings: tuple[str, ...],
    spec_file: Path | None,
    schedule_file: Path | None,
    root: Path,
    spark_master: str | None,
    as_json: bool,
    accepted: tuple[KnownFinding, ...] | None,
    attach_file: Path | None,
    **fields: Any,
) -> int:
    """Deploy a cluster, load it, break it, and judge what happened."""
    from harness.run import attaching, session  # noqa: PLC0415 - import every part; "list" and errors of usage need none

    if attach_file is not None:
        fields = attaching.attached(attach_file, fields, settings)
    base = specs.load(spec_file) if spec_file is not None else None
    if fields["policy"] is None and base is None:
        fields["policy"] = systems.usual_policy(fields["system"] or OWN)
    if fields["seed"] is None and base is None:
        fields["seed"] = random.SystemRandom().randrange(2**31)
    spec = specs.with_settings(specs.build(fields, base), settings)
    if schedule_file is None:
        _check_taken(spec, fields)
    return session.run(
        spec,
        schedule_file,
        root,
        spark_master=spark_master,
        as_json=as_json,
        entries=accepted,
        nemeses=fields["nemeses"] or (),
    )


def _check_taken(spec: TestSpec, fields: Mapping[str, Any]) -> None:
    """Raise UsageError for shapes or targets that were given but that no nemesis takes."""
    from nemesis import registry as kinds  # noqa: PLC0415 - as above

    for name in spec.nemeses:
        kinds.get(name)
    for option, field, takes in (
        ("--shape", "shapes", {name for name, kind in kinds.KINDS.items() if kind.shapes}),
        ("--target", "targets", {name for name, kind in kinds.KINDS.items() if kind.targets}),
    ):
        if fields[field] and not takes.intersection(spec.nemeses):
            tested = f"--nemesis {','.join(spec.nemeses)}" if spec.nemeses else "a test without --nemesis"
            raise UsageError(
                f'{option} {",".join(fields[field])}: {tested} has no {field}: see "jepsen-run list"'
            )
