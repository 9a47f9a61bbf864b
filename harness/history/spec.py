"""The spec of a test: its defaults, its limits, and how it is read and written.

Why checked so thoroughly before anything runs: a wrong name or an impossible number found after a
minute of deployment is a minute lost. One that is silently ignored makes a test of something else.
Every refusal is one line: what is wrong, where, and what would be right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.interface import FIELDS, OWN, TestSpec, UsageError
from harness.interface.errors import converted, near
from harness.interface.texts import json_value
from stomp_protocol.client.addresses import BEHAVIORS

GUARANTEES: Final = ("at-most-once", "at-least-once", "exactly-once")


def build(fields: Mapping[str, Any], base: TestSpec | None = None) -> TestSpec:
    """Build a spec from given values, over ``base``, over the defaults.

    ``fields`` maps field names to values; None is "not given". The name says what is tested, unless
    it was given. Raises UsageError for what is impossible in itself. What depends on registries and
    the policy is refused by the code that knows them.
    """
    values = msgspec.structs.asdict(base) if base is not None else {}
    changed = {field: value for field, value in fields.items() if value is not None}
    values.update(changed)
    if "name" not in changed and (base is None or {"system", "policy", "nemeses", "workload"} & set(changed)):
        values["name"] = default_name(values)
    spec = TestSpec(**values)
    validate(spec)
    return spec


def default_name(values: Mapping[str, Any]) -> str:
    """Return "replication-partition": what is under test and its faults, without defaults."""
    system, policy, workload = (
        values.get(field, default)
        for field, default in (("system", OWN), ("policy", "replication"), ("workload", "groups"))
    )
    words = [system if system != OWN else "", policy, *values.get("nemeses", ())]
    load = workload.replace(",", "-").replace(":", "")
    return "-".join(filter(None, [*words, load if load != "groups" else ""]))


def validate(spec: TestSpec) -> None:
    """Raise UsageError for a number or word that no test can have."""
    for name, value in msgspec.structs.asdict(spec).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{_flag(name)} is {value}: it must be a number")
    for name, field in FIELDS.items():
        if (value := getattr(spec, name)) is not None and (broken := field.broken_limit(value)):
            raise UsageError(f"{_flag(name)} is {value}: it must be {broken}")
    if not spec.name.isprintable():
        raise UsageError(f"--name is {spec.name!r}: it must be one line of text")
    if spec.guarantee not in GUARANTEES:
        raise UsageError(f'unknown guarantee "{spec.guarantee}": {near(spec.guarantee, GUARANTEES)}')
    if spec.client_order not in BEHAVIORS:
        raise UsageError(f'unknown client order "{spec.client_order}": {near(spec.client_order, BEHAVIORS)}')
    if len(set(spec.nemeses)) != len(spec.nemeses):
        raise UsageError(f"--nemesis {','.join(spec.nemeses)} names one nemesis twice")


def _flag(name: str) -> str:
    """Return how a person gives the field: by its option, or by its name in a spec's file."""
    return FIELDS[name].flag or name.replace("_", "-")


def load(path: Path) -> TestSpec:
    """Read a spec from a JSON file (or a run's directory).

    Raises UsageError that names the file, the field and the nearest known field.
    """
    table = _object(path / "spec.json" if path.is_dir() else path)
    if "name" not in table:
        table["name"] = default_name({key.replace("-", "_"): value for key, value in table.items()})
    spec = converted(str(path), table, TestSpec, noun="field")
    try:
        validate(spec)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return spec


def parse_property(text: str) -> tuple[str, str, Any]:
    """Parse ``NODE:property=value`` into (node or "*", dotted name, value).

    The value is JSON if it can be read as JSON, else text.
    """
    node, colon, rest = text.partition(":")
    name, equals, value = rest.partition("=")
    if not (node and colon and name and equals):
        raise UsageError(
            f'--set "{text}" is not NODE:property=value; for example --set '
            '"*:acceptor.connection-ttl=1000" or '
            "--set a2:ha-policy.replication.slave.vote-retries=3"
        )
    try:
        return node, name, json.loads(value)
    except RecursionError:
        raise UsageError(
            f"--set {node}:{name}: the value has values within values, too deep to be read"
        ) from None
    except json.JSONDecodeError:
        return node, name, value


def with_settings(spec: TestSpec, settings: Iterable[str]) -> TestSpec:
    """Return the spec with the properties of ``--set``. Raises UsageError."""
    properties = {node: dict(values) for node, values in spec.properties.items()}
    for text in settings:
        node, name, value = parse_property(text)
        properties.setdefault(node, {})[name] = value
    return build({"properties": properties}, spec) if properties != spec.properties else spec


def _object(path: Path) -> dict[str, Any]:
    try:
        table = json_value(path.read_bytes(), object)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected an object in braces, found {type(table).__name__}")
    return table
