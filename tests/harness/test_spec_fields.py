"""The fields of a spec: each is described once, and everything that reads a field follows."""

from __future__ import annotations

import json
import pickle
import shlex
import subprocess
import sys
from typing import get_args, get_origin

import msgspec
import pytest
from mutants.changed import ROOT, Replacement, grow, variables

from harness.commands import cli
from harness.explore import swarm
from harness.explore.shrink import simpler
from harness.history import spec as specs
from harness.interface import FIELDS, TestSpec, UsageError
from harness.report import summary

SPEC = "harness/interface/spec.py"
ADDED = """    linger_s: Annotated[
        float, Field("Seconds for which a client lingers", "--linger", least=0.5, most=9, drawn=(2.5,))
    ] = 1.0
"""
BEFORE = "    seed: Annotated[\n"
ASKED = """
import json
import click, msgspec
from harness.commands import cli
from harness.claims.scenarios import named
from harness.claims.systems.results import fingerprint
from harness.explore import swarm
from harness.explore.shrink import simpler
from harness.explore.shrink.case import ShrinkCase
from harness.history import spec as specs
from harness.interface import Schedule, TestSpec, UsageError
from harness.report import summary
from pathlib import Path

test = cli.cli.commands["test"]
given = specs.build({"linger_s": 7.5, "seed": 3})
try:
    refused = specs.build({"linger_s": 10.0})
except UsageError as error:
    refused = str(error)
base = swarm.swarm(TestSpec(**{"name": "x", **swarm.DEFAULTS}))
case = ShrinkCase(given, Schedule())
form = simpler.form(case)
scenario = named("RP1")
longer = msgspec.structs.replace(scenario, spec=msgspec.structs.replace(scenario.spec, linger_s=7.5))
print(json.dumps({
    "help": " ".join(test.get_help(click.Context(test, info_name="test")).split()),
    "refused": refused,
    "repeat": summary.repeat_command(given, Path("x")),
    "stored": [json.loads(msgspec.json.encode(each)) for each in (given, specs.build({}))],
    "drawn": sorted({swarm.draw(base, str(number))[0].linger_s for number in range(40)}),
    "smallest": form.filled([0] * len(form.sizes)).spec.linger_s,
    "fingerprints": [fingerprint(scenario), fingerprint(longer)],
}))
"""
DRAWN = """
import msgspec, sys
from harness.explore import swarm
from harness.interface import TestSpec
base = swarm.swarm(TestSpec(**{"name": "x", **swarm.DEFAULTS}))
for number in range(40):
    spec, schedule = swarm.draw(base, str(number))
    fields = {name: value for name, value in msgspec.structs.asdict(spec).items() if name != "linger_s"}
    print(fields, schedule)
"""


def printed(script, *places):
    return subprocess.run(
        [sys.executable, "-P", "-c", script],
        env=variables(*places, ROOT), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.fixture(scope="module")
def wider(tmp_path_factory):
    """The packages with a field more, added where the others are declared and nowhere else."""
    return grow(tmp_path_factory.mktemp("wider"), [Replacement(SPEC, BEFORE, ADDED + BEFORE)])


@pytest.mark.slow
def test_a_field_that_is_declared_is_known_to_everything_that_reads_fields(wider):
    told = json.loads(printed(ASKED, wider))
    assert "--linger NUMBER Seconds for which a client lingers [1]." in told["help"]
    assert told["refused"] == "--linger is 10.0: it must be at most 9"
    assert told["repeat"] == "jepsen-run --policy replication --linger 7.5 --seed 3"
    assert [stored.get("linger-s") for stored in told["stored"]] == [7.5, None]
    assert told["drawn"] == [1.0, 2.5]
    assert told["smallest"] == 1.0
    from harness.claims.scenarios import named
    from harness.claims.systems.results import fingerprint

    as_today, changed = told["fingerprints"]
    assert as_today == fingerprint(named("RP1")) != changed


@pytest.mark.slow
def test_a_new_field_changes_nothing_else_that_is_drawn(wider):
    assert printed(DRAWN, wider) == printed(DRAWN)


def other(name):
    """A value of a field that is not its default and keeps its limits."""
    field = next(field for field in msgspec.structs.fields(TestSpec) if field.name == name)
    kind = get_args(field.type)[0]
    if name in ("guarantee", "client_order"):
        return {"guarantee": "exactly-once", "client_order": "RANDOM"}[name]
    if get_origin(kind) is tuple:
        return ("user@here", "user@there") if name == "hosts" else ("kill", "pause")
    if kind is bool:
        return not field.default
    if kind is str:
        return "other"
    drawn = FIELDS[name].drawn
    return drawn[-1] if drawn else (field.default or 0) + 1


def test_a_file_of_machines_is_repeated_by_the_option_that_names_a_file(tmp_path):
    line = summary.repeat_command(specs.build({"environment": "ssh", "hosts": ("hosts.toml",)}), tmp_path)
    assert "--hosts hosts.toml" in line
    line = summary.repeat_command(specs.build({"environment": "ssh", "hosts": ("me@a", "me@b")}), tmp_path)
    assert "--host me@a --host me@b" in line


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.flag])
def test_what_an_option_gives_is_repeated_by_that_option(name, tmp_path):
    spec = specs.build({"seed": 9, name: other(name)})
    words = shlex.split(summary.repeat_command(spec, tmp_path))[1:]
    assert "--spec" not in words
    with cli.cli.commands["test"].make_context("test", words) as context:
        given = {field: context.params[field] for field in FIELDS if field in context.params}
    assert specs.build(given) == spec


@pytest.mark.parametrize(
    "name", [name for name, field in FIELDS.items() if not field.flag and name != "imported"]
)
def test_what_has_no_option_is_repeated_from_the_stored_spec(name, tmp_path):
    values = {"attached": {"name": "here"}, "properties": {"*": {"x": 1}}}
    value = values[name] if name in values else other(name)
    line = summary.repeat_command(specs.build({"seed": 4, name: value}), tmp_path)
    by_option = "--set '*:x=1'" if name == "properties" else f"--spec {tmp_path}/spec.json"
    assert by_option in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name, field in FIELDS.items()
        for value in (
            *([field.least - 1] if field.least is not None else []),
            *([field.most + 1] if field.most is not None else []),
            *([field.above] if field.above is not None else []),
        )
    ],
)
def test_a_number_beyond_its_limit_is_refused(name, value):
    with pytest.raises(UsageError, match="it must be (at least|at most|more than) "):
        specs.build({name: value})


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_described_in_plain_words(name):
    field = FIELDS[name]
    assert field.meaning[0].isupper()
    assert not field.meaning.endswith(".")


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.drawn])
def test_what_is_drawn_keeps_the_limits(name):
    for value in FIELDS[name].drawn:
        assert getattr(specs.build({name: value}), name) == value


def test_shrinking_and_drawing_name_only_fields_that_there_are():
    assert set(FIELDS) >= simpler.NOT_RESET
    drawn = {name for name, field in FIELDS.items() if field.drawn}
    assert drawn >= {*swarm._SHARED_CHANCE, *swarm._DRAWN_IF_POSSIBLE}


def test_a_spec_that_spells_out_every_default_is_the_same_spec(tmp_path):
    """As all files were before the defaults were left out."""
    short = specs.build({"seed": 7, "rate": 12.0})
    everything = {field.encode_name: getattr(short, field.name) for field in msgspec.structs.fields(TestSpec)}
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(everything))
    read = specs.load(tmp_path)
    assert read == short
    for each in (short, read, pickle.loads(pickle.dumps(read)), msgspec.structs.replace(read, pairs=3)):  # noqa: S301 - bytes of its own
        assert json.loads(msgspec.json.encode(each)) == {"name": "replication", "seed": 7, "rate": 12.0}
