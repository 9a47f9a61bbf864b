"""Makes docs/reference/ from the code, so that the manual cannot say what the program does not do.

``python docs/generate.py`` writes the pages; ``python docs/generate.py --check`` only says which are out of date (exit status 1). A test
runs the check.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import click
import msgspec
import schemas

import broker.config
import broker.ha_policy
import broker.section
import broker.sections
import checkers
import checkers.arrow_schema
import checkers.schema
import harness.commands.cli
import harness.interface
import harness.systems.registry
from harness.systems import shortened
from jepsen_run_pytest.fixtures import AssertValid, CheckHistory, RunSpec
from jepsen_run_pytest.outcome import Outcome

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- made by docs/generate.py from the code: edit the docstrings there -->\n\n"


def attribute_notes(struct: type) -> dict[str, str]:
    """The string under (or comment beside) each field of a class, by field name."""
    if struct is harness.interface.TestSpec:
        return {name: f"{field.meaning}." for name, field in harness.interface.FIELDS.items()}
    notes: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        try:
            lines, _ = inspect.getsourcelines(each)
        except (OSError, TypeError):
            continue
        source = textwrap.dedent("".join(lines))
        body = ast.parse(source).body[0]
        if not isinstance(body, ast.ClassDef):
            continue
        code = source.splitlines()
        for here, after in zip(body.body, [*body.body[1:], None], strict=True):
            if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
                comment = re.search(r"  # (?!noqa)(.*)$", code[(here.end_lineno or here.lineno) - 1])
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    notes[here.target.id] = inspect.cleandoc(str(after.value.value))
                elif comment:
                    notes[here.target.id] = comment[1]
    return notes


def fields_table(struct: type, prefix: str = "") -> str:
    """A Markdown table of a struct's fields: encoded name, default, meaning."""
    notes = attribute_notes(struct)
    rows = []
    for field in msgspec.structs.fields(struct):
        default = field.default if field.default is not msgspec.NODEFAULT else None
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        required = field.required
        shown = "required" if required else msgspec.json.encode(default).decode()
        meaning = " ".join(notes.get(field.name, "").split()).replace("|", "\\|")
        rows.append(f"| `{prefix}{field.encode_name}` | {shown if required else f'`{shown}`'} | {meaning} |")
    return "\n".join(["| name | default | meaning |", "|---|---|---|", *rows]) + "\n"


def document(struct: type) -> str:
    """The first paragraph of a docstring."""
    return inspect.cleandoc(struct.__doc__ or "")


def command_line() -> str:
    """``jepsen-run`` and its commands as their own help says."""
    parts = ["# The command line\n", "## jepsen-run\n", _help(harness.commands.cli.cli, "jepsen-run")]
    for name, command in sorted(harness.commands.cli.cli.commands.items()):
        parts += [f"## jepsen-run {name}\n", _help(command, f"jepsen-run {name}")]
    parts.append(inspect.cleandoc(harness.commands.cli.__doc__ or "").split("\n\n")[1] + "\n")
    return "\n".join(parts)


def _help(command: click.Command, name: str) -> str:
    with click.Context(command, info_name=name, terminal_width=78) as context:
        return f"```\n{command.get_help(context)}\n```\n"


def test_spec() -> str:
    """spec.json and schedule.json."""
    return "\n".join(
        [
            "# Specs and schedules\n",
            "Both are JSON, written by every run and taken back by `--spec` and `--schedule`.\n",
            "## spec.json\n",
            document(harness.interface.TestSpec) + "\n",
            fields_table(harness.interface.TestSpec),
            "## schedule.json\n",
            "An object with one field, `faults`: a list of these.\n",
            inspect.cleandoc(harness.interface.Fault.__doc__ or "") + "\n",
            fields_table(harness.interface.Fault),
            "## Events\n",
            "What `after` can wait for: what a line in the log of a broker says, the first time under load.\n",
            _events_table(),
        ]
    )


def _events_table() -> str:
    rows = [
        f"| {system} | `{name}` | {event.meaning} |"
        for system in harness.systems.registry.SYSTEMS
        for name, event in harness.systems.registry.get(system).events.items()
    ]
    return "\n".join(["| system | event | meaning |", "|---|---|---|", *rows]) + "\n"


def broker_properties() -> str:
    """Every property of broker.toml."""
    parts = ["# broker.toml\n", inspect.cleandoc(broker.config.__doc__ or "") + "\n"]
    sections = {
        "broker": broker.sections.BrokerSection,
        "acceptor": broker.sections.AcceptorSection,
        "admin": broker.sections.AdminSection,
        "cluster": broker.section.ClusterSection,
        "broadcast-groups.NAME": broker.sections.BroadcastGroup,
        "discovery-groups.NAME": broker.sections.DiscoveryGroup,
        "journal": broker.sections.JournalSection,
        **_policies(),
        "database-store": broker.ha_policy.DatabaseStoreSection,
        "address-settings.MATCH": broker.sections.AddressSettings,
        "security-settings.MATCH": broker.sections.SecuritySettings,
    }
    for name, struct in sections.items():
        parts += [f"## {name}\n", document(struct) + "\n", fields_table(struct, f"{name}.")]
    return "\n".join(parts)


def _policies() -> dict[str, type]:
    """The sections below [ha-policy] by name, and those of their roles."""
    sections: dict[str, type] = {}
    for field in msgspec.structs.fields(broker.ha_policy.HaPolicySection):
        name, section = f"ha-policy.{field.encode_name}", _struct(field)
        assert section is not None
        fields = msgspec.structs.fields(section)
        roles = {f"{name}.{each.encode_name}": role for each in fields if (role := _struct(each)) is not None}
        if len(roles) < len(fields):
            sections[name] = section
        sections |= roles
    return sections


def _struct(field: msgspec.structs.FieldInfo) -> type | None:
    """The struct that a field has, if it has one."""
    kinds = get_args(field.type)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)), None)


def shortened_times() -> str:
    """Each time that tests of other systems shorten, beside the product's own default."""
    parts = [
        "# Times that tests shorten\n",
        "Brokers of other projects wait for up to a minute before they give up a link, a lock or a vote. A test cannot, so it sets shorter"
        " times, unless you set them with `--set`. The times of a group decide together, so each is divided by the same number, except"
        " where a reason is given. A test keeps these proportions.\n\n"
        "Other times of links, locks and votes are the product's own. Values are in the units of its manual.\n",
    ]
    for name in harness.systems.registry.SYSTEMS:
        if (groups := shortened.groups_of(name)) is None:
            continue
        parts.append(f"## {name}\n")
        for group in groups:
            rows = [
                f"| `{time.name}` | {time.product:g} | {time.test:g} | {time.reason} |".replace("|  |", "| |") for time in group.times
            ]
            parts.append(f"### {group.purpose[0].upper()}{group.purpose[1:]}: divided by {group.divisor:g}\n")
            parts.append("\n".join(["| property | default | in a test | why not in proportion |", "|---|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def history() -> str:
    """The columns of a history."""
    doc = inspect.cleandoc(checkers.schema.__doc__ or "")
    columns = "\n".join(
        f"| `{field.name}` | {field.type} | {'yes' if field.nullable else 'no'} |"
        for field in checkers.arrow_schema.SCHEMA
    )
    return f"# The history\n\n```\n{doc}\n```\n\n| column | type | may be null |\n|---|---|---|\n{columns}\n"


def python() -> str:
    """What Python users import to judge a history, and the fixtures of the pytest plugin."""
    functions = [checkers.check]
    classes = [getattr(checkers, name) for name in checkers.__all__ if isinstance(getattr(checkers, name), type)]
    fixtures = (RunSpec, CheckHistory, AssertValid)
    names = {"RunSpec": "run_spec", "CheckHistory": "check_history", "AssertValid": "assert_valid"}
    return "\n".join(
        [
            "# Python\n",
            "What a program imports from `checkers` ([how to use it](../how-to/check-from-python.md)), and what tests get from the pytest"
            " plugin ([how to use it](../how-to/pytest.md)). Everything else may change with any release.\n",
            "## checkers\n",
            *(_function(f"checkers.{function.__name__}", function) for function in functions),
            *(_class(f"checkers.{each.__name__}", each) for each in classes),
            "## Fixtures for pytest\n",
            *(_function(names[each.__name__], each.__call__) for each in fixtures),
            _class("Outcome", Outcome),
        ]
    )


def interface() -> str:
    """What a package imports that adds a system under test, a workload, a fault or an environment."""
    by_module: dict[str, list[tuple[str, type]]] = {}
    for name, each in vars(harness.interface).items():
        if isinstance(each, type) and each.__module__.startswith(("harness.interface.", "stomp_protocol.client.")):
            by_module.setdefault(each.__module__, []).append((name, each))
    parts = [
        "# harness.interface\n",
        "A package that [adds a system under test](../how-to/add-a-system.md) imports these from `harness.interface`. A `Protocol` is"
        " what your class must offer: it need not inherit from it.\n",
    ]
    for module, classes in by_module.items():
        parts.append(f"## {module.rpartition('.')[2].replace('_', ' ').capitalize()}\n")
        parts += [_class(name, each) for name, each in classes]
    return "\n".join(parts)


def _class(name: str, each: type) -> str:
    """A class: its docstring, its fields, and its public methods."""
    bases = ", ".join(base.__name__ for base in each.__bases__ if base.__name__ in {"Protocol", "Exception", "Verdict"})
    parts = [f"### {name}{f' ({bases})' if bases else ''}\n", _markdown(each.__doc__) + "\n"]
    if issubclass(each, msgspec.Struct):
        parts.append(_fields(each))
    for member, value in vars(each).items():
        if member.startswith("_") or member in getattr(each, "__struct_fields__", ()):
            continue
        if isinstance(value, property):
            parts.append(f"`{member}`: {_markdown(value.__doc__)}\n")
        elif inspect.isroutine(getattr(each, member)):
            parts.append(_signature(member, getattr(each, member)) + "\n" + _markdown(value.__doc__) + "\n")
    return "\n".join(parts)


def _fields(struct: type) -> str:
    """The fields of a struct as Python names them: type, default and, where a field has one, its note."""
    notes = attribute_notes(struct)
    types = {name: kind for base in reversed(struct.__mro__) for name, kind in getattr(base, "__annotations__", {}).items()}
    rows = [("field", "type", "default", "meaning"), ("---",) * 4]
    for field in msgspec.structs.fields(struct):
        default = "required" if field.required else f"`{_default(field)}`"
        rows.append((f"`{field.name}`", f"`{types[field.name]}`", default, _markdown(notes.get(field.name)).replace("\n", " ")))
    columns = 4 if any(row[3] for row in rows[2:]) else 3
    escaped = ([cell.replace("|", "\\|") for cell in row[:columns]] for row in rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped) if rows[2:] else ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    """A default as code that is the same in every run."""
    if field.default_factory is not msgspec.NODEFAULT:
        return repr(field.default_factory())
    if isinstance(field.default, msgspec.Struct):
        return f"{type(field.default).__name__}()"
    if isinstance(field.default, frozenset):
        return f"frozenset({sorted(field.default) or ''})"
    return "a function" if inspect.isfunction(field.default) else repr(field.default)


def _function(name: str, function: Callable[..., object]) -> str:
    return f"### {name}\n\n{_signature(name, function)}\n{_markdown(function.__doc__)}\n"


def _signature(name: str, function: Callable[..., object]) -> str:
    """A call as code, one parameter a line where they are many."""
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    text = str(signature.replace(parameters=parameters))
    text = re.sub(r"(?<=: )'([^']*)'|(?<=-> )'([^']*)'", lambda found: found[1] or found[2], text)
    if len(name + text) > 100:
        text = re.sub(r"^\(", "(\n    ", text)
        text = re.sub(r", (?=\*|\w+: |\w+=)", ",\n    ", text)
        text = re.sub(r"\)(?= -> [^)]*$|$)", ",\n)", text, count=1)
    keyword = "async " if inspect.iscoroutinefunction(function) else ""
    return f"```python\n{keyword}{name}{text}\n```\n"


def _markdown(docstring: str | None) -> str:
    """A docstring as Markdown: its arguments become a list."""
    text = inspect.cleandoc(docstring or "").replace("``", "`")
    before, colon, after = text.partition("\nArgs:\n")
    if not colon:
        return text
    arguments, _, rest = after.partition("\n\n")
    listed = re.sub(r"(?m)^    (\w+): ", r"- `\1`: ", arguments)
    listed = re.sub(r"\n {8}", " ", listed)
    return f"{before}\n{listed}\n\n{inspect.cleandoc(rest)}".rstrip()


def json_schemas() -> str:
    """The files that have a JSON schema, and what a version promises."""
    described = {
        "findings": "`findings.json` of a run: verdict, findings, figures",
        "run": "`run.json` of a run: how it went, versions, the command that repeats it",
        "history": "a row of the history, in JSON lines or in the Parquet files (`$comment` has the Arrow type)",
        "events": "an event of [another harness](../how-to/bring-your-own-history.md#json-lines), a line of JSON",
    }
    rows = [
        f"| [{name}.v{version}.json](schemas/{name}.v{version}.json) | {described[name]} | {version} |"
        for name, (version, _) in schemas.MADE.items()
    ]
    table = "\n".join(["| schema | describes | version |", "|---|---|---|", *rows])
    return SCHEMAS_PAGE.replace("TABLE", table)


SCHEMAS_PAGE = """# JSON schemas

Programs that read what `jepsen-run` stores can rely on these schemas (JSON Schema 2020-12). They are made from the code:

TABLE

`findings.json` says its version in `schema_version`, `run.json` in `schema-version`. A file without one has version 1. The `$id` of a schema ends in its version.

## What a version promises

| change | version |
|---|---|
| a field is added; a description or a default changes | stays the same |
| a field is removed or renamed; its type, its values or its bounds change; it becomes required, or is no longer required | grows by one |

- Ignore fields that you do not know: the next release may add one.
- A field that is missing in an older file of the same version has the `default` of the schema.
- Refuse a version that you do not know, as `jepsen-run` does.
- The schemas of earlier versions stay in this directory and in the package.

## Validate a file

The schemas are in the installed package, too:

```python
import json
from importlib import resources
from pathlib import Path

import jsonschema

schema = json.loads((resources.files("harness.history") / "schemas" / "findings.v1.json").read_text())
jsonschema.validate(json.loads(Path("store/latest/findings.json").read_text()), schema)
```
"""

PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "spec-and-schedule.md": test_spec,
    "broker-properties.md": broker_properties,
    "shortened-times.md": shortened_times,
    "history.md": history,
    "python.md": python,
    "interface.md": interface,
    "schemas.md": json_schemas,
}


def files() -> dict[Path, str]:
    """All that is made: the text of each file."""
    made = {REFERENCE / name: NOTE + make().rstrip() + "\n" for name, make in PAGES.items()}
    for name, text in schemas.texts(attribute_notes).items():
        made |= {place / name: text for place in schemas.PLACES}
    return made


def main() -> int:
    """Write the files, or say which would change; refuse a schema that breaks its version's promise."""
    stale = {
        path: text for path, text in files().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        if path.suffix == ".json" and path.exists():
            broken = [*schemas.broken_promises(json.loads(path.read_text(encoding="utf-8")), json.loads(text))]
            if broken:
                print(f"{path.name}: {broken[0]}: raise its version in the code, or keep what was promised (docs/reference/schemas.md)")
                return 1
    checks = "--check" in sys.argv[1:]
    for path, text in stale.items():
        if not checks:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(schemas.ROOT)}: " + ("out of date: run python docs/generate.py" if checks else "written"))
    return 1 if stale and checks else 0


if __name__ == "__main__":
    sys.exit(main())
