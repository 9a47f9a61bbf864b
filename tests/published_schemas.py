"""The published JSON schemas, as strict as the program itself must be."""

import copy
import json
from functools import cache
from pathlib import Path

import jsonschema

SCHEMAS = Path(__file__).parents[1] / "docs/reference/schemas"


@cache
def published(name):
    """What a reader holds a file against: the newest version."""
    newest = max(SCHEMAS.glob(f"{name}.v*.json"), key=lambda path: int(path.suffixes[0][2:]))
    return jsonschema.Draft202012Validator(json.loads(newest.read_text(encoding="utf-8")))


@cache
def strict(name):
    """What the program writes: every field of the schema and no other, but for a row's nulls."""
    schema = copy.deepcopy(published(name).schema)
    for struct in (schema, *schema.get("$defs", {}).values()):
        struct["additionalProperties"] = False
    for title, struct in (("", schema), *schema.get("$defs", {}).items()):
        if title != "Row":
            struct["required"] = [*struct["properties"]]
    return jsonschema.Draft202012Validator(schema)
