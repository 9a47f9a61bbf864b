"""Makes the JSON schemas of what is stored, from the types and tables of the code.

A schema has the version that its files say in ``schema_version``. Within a version, fields may only be added: ``broken_promises`` names what else
changed, and ``docs/generate.py`` then writes nothing until the version is raised in the code.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import checkers.arrow_schema
import checkers.intake
import checkers.schema
import checkers.verdict
import harness.history.store

ROOT = Path(__file__).parents[1]
PLACES = (ROOT / "docs/reference/schemas", ROOT / "harness/history/schemas")
"""Where each schema is: for readers, and in the wheel."""

_BOUNDS = {"int64": 2**63, "int32": 2**31}
_NOT_PROMISED = ("title", "description", "default", "$id")
"""What may change within a version: it has a meaning for people, or says what an absent field means."""


def findings(notes: Callable[[type], Mapping[str, str]]) -> dict[str, Any]:
    """findings.json, whose witnesses are rows of the history."""
    schema = _of_struct(checkers.verdict.Verdict, notes)
    schema["$defs"]["Row"] = _row()
    schema["$defs"]["Witness"]["properties"]["rows"]["items"] = {"$ref": "#/$defs/Row"}
    return schema


def run(notes: Callable[[type], Mapping[str, str]]) -> dict[str, Any]:
    """run.json."""
    return _of_struct(harness.history.store.RunRecord, notes)


def history(notes: Callable[[type], Mapping[str, str]]) -> dict[str, Any]:
    """A row of the history: a line of JSON, or a row of the Parquet files."""
    return {**_row(), "title": "a row of the history"}


def events(notes: Callable[[type], Mapping[str, str]]) -> dict[str, Any]:
    """An event of another harness, as ``jepsen-run import`` and ``checkers.check`` take it."""
    properties = {name: _nullable(name, _column(name)) for name in checkers.intake.FIELDS}
    for name in ("process", "producer", "session", "transaction", "connection"):
        properties[name] = _nullable(name, {"type": ["integer", "string"]})
    for name in ("message", "digest"):
        properties[name] = _nullable(name, {"type": ["number", "string"]})
    properties["headers"] = _nullable("headers", {"type": ["number", "string", "object"]})
    properties["value"] = {}  # any JSON
    return {
        "title": "an event of another harness",
        "description": "docs/how-to/bring-your-own-history.md says what the fields mean and which event needs which.",
        "type": "object",
        "properties": properties,
        "required": ["time", "process", "type", "f"],
        "additionalProperties": False,
    }


MADE: dict[str, tuple[int, Callable[[Callable[[type], Mapping[str, str]]], dict[str, Any]]]] = {
    "findings": (checkers.verdict.Verdict(valid=None).schema_version, findings),
    "run": (harness.history.store.RunRecord().schema_version, run),
    "history": (checkers.schema.SCHEMA_VERSION, history),
    "events": (checkers.schema.SCHEMA_VERSION, events),
}
"""Each schema's version and maker, by the name of its file. Files of earlier versions stay."""


def texts(notes: Callable[[type], Mapping[str, str]]) -> dict[str, str]:
    """The text of each schema, by its file's name."""
    made = {}
    for name, (version, make) in MADE.items():
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:jepsen-run:{name}:{version}"}
        made[f"{name}.v{version}.json"] = json.dumps({**head, **make(notes)}, indent=2, ensure_ascii=False) + "\n"
    return made


def broken_promises(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """What the new schema changes for those who rely on the old one; added fields are no such change."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in _NOT_PROMISED and not where.endswith("properties"):
                continue
            if key not in new:
                yield f"{where}/{key} is gone"
            else:
                yield from broken_promises(value, new[key], f"{where}/{key}")
        if not where.endswith(("properties", "$defs")):
            yield from (f"{where}/{key} is new" for key in new if key not in old and key not in _NOT_PROMISED)
    elif old != new:
        yield f"{where} was {json.dumps(old)} and is {json.dumps(new)}"


def _of_struct(root: type, notes: Callable[[type], Mapping[str, str]]) -> dict[str, Any]:
    """The schema of a struct and of all it has, with the notes of their fields."""
    made = msgspec.json.schema(root)
    defined = made["$defs"]
    for name, schema in defined.items():
        struct = vars(sys.modules[root.__module__])[name]
        schema["description"] = _plain(struct.__doc__)
        fields = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
        for field, note in notes(struct).items():
            schema["properties"][fields[field]]["description"] = _plain(note)
    top = defined.pop(root.__name__)
    return {**top, "$defs": defined}


def _row() -> dict[str, Any]:
    properties = {name: _column(name) for name in checkers.schema.COLUMNS}
    for field in checkers.arrow_schema.SCHEMA:
        properties[field.name]["$comment"] = f"Arrow: {field.type}"
    return {
        "description": "docs/reference/history.md says what each column means. Columns that are null are left out.",
        "type": "object",
        "properties": properties,
        "required": [*checkers.schema.NEVER_NULL],
    }


def _column(name: str) -> dict[str, Any]:
    kind = checkers.schema.KINDS[name]
    if name == "type":
        return {"enum": [*checkers.schema.TYPES]}
    if kind in _BOUNDS:
        return {"type": "integer", "minimum": -_BOUNDS[kind], "maximum": _BOUNDS[kind] - 1}
    return {"type": "boolean" if kind == "bool" else "string"}


def _nullable(name: str, column: Mapping[str, Any]) -> dict[str, Any]:
    if name in checkers.schema.NEVER_NULL:
        return {**column}
    kinds = column["type"] if isinstance(column["type"], list) else [column["type"]]
    return {**column, "type": [*kinds, "null"]}


def _plain(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").replace("``", "`").split())
