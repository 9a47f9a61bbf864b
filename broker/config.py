"""What a broker is told: one ``broker.toml``, typed, strict, in the names of the documents.

Why strict: a misspelt ``vote-retries`` that silently keeps its default makes a test of quorum votes
a test of nothing. So an unknown property, a wrong type and a value out of range are errors of one
line that names the property, the file and what would be right; ``brokerd`` then ends with status
254.

Names and defaults are those of AMQ 17 and its appendices (elements become kebab-case properties,
attributes stay what they are); times are milliseconds, sizes bytes. A *dotted name* addresses every
property, for the harness and for messages:

    broker.name                                [broker] name
    ha-policy.replication.slave.vote-retries   [ha-policy.replication.slave] vote-retries
    acceptor.users.guest                       [acceptor.users] guest
    hosts.a2:61616                             [hosts] "a2:61616"
    address-settings.orders.#.max-size-bytes   of [[address-settings]] that with match = "orders.#"
    security-settings.orders.#.send            of [[security-settings]] that with match = "orders.#"
    discovery-groups.lan.group-port            of [[discovery-groups]] that with name = "lan"

``load`` reads a file, ``apply`` sets properties by dotted name in a plain dict (what one writes to
TOML), ``dumps`` writes one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from broker import cluster_file
from broker.contradictions import contradiction
from broker.sections import BrokerConfig, ConfigurationError, host_port

EXIT_USAGE: Final = 254
"""Exit status of ``brokerd`` for a configuration that is wrong."""
_MOST_PARTS: Final = 50
"""Parts of a key of ``broker.toml``; no property has so many."""

_TABLES: Final[Mapping[str, str]] = {
    "address-settings": "match",
    "security-settings": "match",
    "broadcast-groups": "name",
    "discovery-groups": "name",
}
"""The lists of tables, and the property by which a dotted name chooses one of them."""


def load(path: str | Path, *, alone: bool = False) -> BrokerConfig:
    """Read and validate a ``broker.toml``, and the cluster file that it may name.

    ``alone``: read it without that file, which may list this broker no longer. Raises
    ConfigurationError, one line.
    """
    directory, table = Path(path).parent, _read(path)
    merged = table if alone else cluster_file.merged(table, str(path), lambda name: _read(directory / name))
    return validate(merged, str(path))


def _read(path: str | Path) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8: byte {error.start} is wrong") from None
    for number, line in enumerate(text.splitlines(), 1):
        # tomllib needs memory for the square of the parts of a key.
        if line.partition("=")[0].count(".") >= _MOST_PARTS:
            raise ConfigurationError(f"{path}: line {number}: a key has more than {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: values within values, too deep to be read") from None


def validate(table: Mapping[str, Any], path: str = "") -> BrokerConfig:
    """A plain dict as a configuration; errors name the file ``path``. Raises ConfigurationError."""
    where = path or "broker.toml"
    if "path" in table:
        raise ConfigurationError(f"{where}: unknown property 'path'")
    try:
        config = msgspec.convert({**table, "path": path}, BrokerConfig)
    except msgspec.ValidationError as error:
        _refuse_unknown(table, BrokerConfig, "", where)
        raise ConfigurationError(f"{where}: {_in_words(str(error), table)}") from None
    if problem := config.ha_policy.problem(config.cluster, config.database_store):
        raise ConfigurationError(f"{where}: {problem}")
    config.resolved_hosts()
    if problem := contradiction(config, table):
        raise ConfigurationError(f"{where}: {problem}")
    if config.cluster is not None:
        for name in config.cluster.static_connectors:
            host_port("cluster.static-connectors", name, path)
    return config


def apply(table: Mapping[str, Any], properties: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """A copy of a plain configuration with properties set by dotted name; None removes one.

    The result is validated as a whole, so that a wrong name or value is an error here and not on a
    node. Raises ConfigurationError naming the property and, for an unknown one, the near name.
    """
    result: dict[str, Any] = _copied(table)
    for name, value in properties.items():
        _set(result, name, value, path or "broker.toml")
    validate(result, path)
    return result


def dumps(table: Mapping[str, Any]) -> str:
    """A plain configuration as TOML text, deterministic: ``load`` of it gives the same."""
    lines: list[str] = []
    _write_table(table, (), lines)
    return "\n".join(lines).strip() + "\n"


def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind) if field.name != "path"}


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:
    """The struct among the alternatives of an annotation, if there is one."""
    for candidate in (kind, *getattr(kind, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None


def _refuse_unknown(value: Any, kind: type[msgspec.Struct], prefix: str, where: str) -> None:
    if not isinstance(value, Mapping):
        return
    fields = _fields(kind)
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if key not in fields:
            raise ConfigurationError(f"{where}: unknown property {name!r}{_near(str(key), fields, prefix)}")
        struct = _struct_of(fields[key])
        if struct is None:
            continue
        for element in inner if isinstance(inner, list | tuple) else (inner,):
            _refuse_unknown(element, struct, name + ".", where)


def _near(name: str, known: Mapping[str, Any], prefix: str) -> str:
    import difflib  # noqa: PLC0415 - only an error needs it, and brokerd must start fast

    near = difflib.get_close_matches(name.replace("_", "-").lower(), known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {prefix + near[0]!r}?"
    return f"; known here: {', '.join(sorted(known))}"


def _in_words(message: str, table: Mapping[str, Any]) -> str:
    """What msgspec said, in our words.

    "Expected `int` >= 0 - at `$.broker.port`" with the property first, and the value that is wrong.
    """
    text, separator, at = message.partition(" - at `$")
    name = at.rstrip("`").lstrip(".").replace("[...]", "")
    text = text.replace("`", "")
    missing = text.removeprefix("Object missing required field ")
    if missing != text:
        return f"property {f'{name}.{missing}'.lstrip('.')!r} is missing"
    if not separator or not name:
        return text
    value: Any = table
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    secret = name.rpartition(".")[2] in ("password", "cluster-password", "secret") or name.startswith(
        "acceptor.users"
    )
    shown = f", got {value!r}" if isinstance(value, str | int | float) and not secret else ""
    return f"property {name!r}: {text[0].lower()}{text[1:]}{shown}"


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(inner) for inner in value]
    return value


def _set(table: dict[str, Any], name: str, value: Any, where: str) -> None:
    section, _, rest = name.partition(".")
    if section == "hosts" and rest:
        path = ["hosts", rest]
    elif section in _TABLES:
        chosen_by = _TABLES[section]
        chosen, _, key = rest.rpartition(".")
        if not chosen:
            raise ConfigurationError(
                f"{where}: property {name!r} lacks the {chosen_by}: {section}.<{chosen_by}>.<property>"
            )
        tables = table.setdefault(section, [])
        known = [entry for entry in tables if entry.get(chosen_by, "#") == chosen]
        if not known:
            known = [{chosen_by: chosen}]
            tables += known
        table = known[0]
        path = [key]
    elif name.startswith(("acceptor.users.", "acceptor.roles.")):
        path = name.split(".", 2)
    else:
        path = name.split(".")
    for step in path[:-1]:
        inner = table.setdefault(step, {})
        if not isinstance(inner, dict):
            raise ConfigurationError(
                f"{where}: unknown property {name!r}: {step!r} is a value, not a section"
            )
        table = inner
    if value is None:
        table.pop(path[-1], None)
    else:
        table[path[-1]] = _copied(value)


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {
        key: value for key, value in table.items() if not isinstance(value, Mapping) and not _is_tables(value)
    }
    if path and (plain or not table):
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            _write_table(value, (*path, key), lines)
        elif _is_tables(value):
            for entry in value:
                lines += ["", f"[[{'.'.join(map(_key, (*path, key)))}]]"]
                lines += [f"{_key(inner)} = {_value(scalar)}" for inner, scalar in entry.items()]


def _is_tables(value: Any) -> bool:
    return (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) for entry in value)
    )


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


__all__ = ["EXIT_USAGE", "BrokerConfig", "ConfigurationError", "apply", "dumps", "load", "validate"]
