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
@options.spec_options()
@options.home()
@click.option(
    "--attach",
    "attach_file",
    type=click.Path(path_type=Path),
    help="TOML file of a running cluster; only your hooks break it.",
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
@options.spec_option("name")
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
