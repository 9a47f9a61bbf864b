"""The published schemas are of what is stored, and a version keeps its promise."""

import copy
import json
import sys
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest
from published_schemas import SCHEMAS, published, strict

from checkers.arrow_schema import SCHEMA
from checkers.verdict import Verdict
from harness.commands import cli
from harness.history import store

ROOT = Path(__file__).parents[2]
SPLIT_BRAIN = (
    "--environment simulation --policy replication --pairs 1 --nemesis partition --shape pair-link "
    "--time-limit 8 --rate 20 --seed 1"
)


@pytest.fixture(scope="module")
def maker():
    sys.path.insert(0, str(ROOT / "docs"))
    yield import_module("schemas")
    sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A simulated run with findings of several kinds."""
    root = tmp_path_factory.mktemp("store")
    assert cli.run([*SPLIT_BRAIN.split(), "--store", str(root), "--json"]) == 1
    return (root / store.LATEST).resolve()


@pytest.mark.parametrize("name", ["findings", "run"])
def test_what_a_run_writes_has_every_published_field_and_no_other(run, name):
    """And each of them is looked at: no field can be lost, renamed or of another type."""
    written = json.loads((run / f"{name}.json").read_text())
    published(name).validate(written)
    strict(name).validate(written)
    for field in written:
        changed = {(f"{key}2" if key == field else key): value for key, value in written.items()}
        with pytest.raises(jsonschema.ValidationError):
            strict(name).validate(changed)
        with pytest.raises(jsonschema.ValidationError):
            published(name).validate({**written, field: [[]]})


def test_every_row_of_a_history_is_as_published(run):
    import pyarrow.parquet as pq

    rows = 0
    for part in (run / store.HISTORY).glob("*.parquet"):
        table = pq.read_table(part)
        columns = published("history").schema["properties"]
        assert {f"Arrow: {field.type}" for field in table.schema} == {c["$comment"] for c in columns.values()}
        for row in table.to_pylist():
            published("history").validate({name: value for name, value in row.items() if value is not None})
            rows += 1
    assert rows > 500
    assert [*columns] == SCHEMA.names


def test_the_examples_of_events_are_as_published():
    page = (ROOT / "docs/how-to/check-from-python.md").read_text(encoding="utf-8")
    (events,) = (part for part in page.split("\n\n") if part.startswith("events = "))
    given = {}
    exec(events.partition("verdict =")[0], given)  # noqa: S102 - our own page
    for event in given["events"]:
        published("events").validate(event)
        with pytest.raises(jsonschema.ValidationError):
            published("events").validate({**event, "mesage": 1})


def test_a_reader_refuses_a_version_that_it_does_not_know():
    verdict = json.loads(Verdict(valid=True).to_json())
    assert verdict["schema_version"] == 1
    with pytest.raises(ValueError, match="schema_version"):
        Verdict.from_json(json.dumps({**verdict, "schema_version": 2}))
    del verdict["schema_version"]  # a file of before there were versions
    assert Verdict.from_json(json.dumps(verdict)) == Verdict(valid=True)


def test_the_wheel_has_the_schemas_that_are_published():
    texts = {path.name: path.read_text() for path in SCHEMAS.iterdir()}
    assert {path.name: path.read_text() for path in (ROOT / "harness/history/schemas").iterdir()} == texts
    assert {name.partition(".")[0] for name in texts} == {"findings", "run", "history", "events"}
    for name, text in texts.items():
        schema = json.loads(text)
        jsonschema.Draft202012Validator.check_schema(schema)
        assert name == "{2}.v{3}.json".format(*schema["$id"].split(":"))


def changes(schema):
    """Changes that a version does not allow, each with what is said of it."""
    properties = schema["properties"]
    del properties["reasons"]
    yield "/properties/reasons is gone"
    properties["valid"] = {"type": "boolean"}
    yield "/properties/valid/anyOf is gone"
    schema["$defs"]["Finding"]["properties"]["severity"]["enum"].append("fatal")
    yield "/$defs/Finding/properties/severity/enum was "
    schema["required"].append("findings")
    yield '/required was ["valid"] and is ["valid", "findings"]'
    properties["ordered"]["const"] = True
    yield "/properties/ordered/const is new"


def test_within_a_version_fields_are_only_added(maker):
    old = published("findings").schema
    added = copy.deepcopy(old)
    added["properties"]["host"] = {"type": "string", "default": ""}
    added["$defs"]["Host"] = {"type": "object"}
    added["properties"]["reasons"] |= {"description": "why", "default": ["none"]}
    assert [*maker.broken_promises(old, added)] == []
    for number, _ in enumerate(changes(copy.deepcopy(old))):
        changed = copy.deepcopy(old)
        made = changes(changed)
        told = [next(made) for _ in range(number + 1)][-1]
        broken = [*maker.broken_promises(old, changed)]
        assert any(one.startswith(told) for one in broken), (told, broken)
