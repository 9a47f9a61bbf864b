"""The text of ``jepsen-run list``: what is usable on this machine first, and no line too long.

Why one mark for each environment: a stranger asks "can I do this here?", and the answer is a
letter in a column. The reasons are long and few, so each is a note below the table.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from typing import Final

from rich.text import Text

import nemesis.registry
from checkers.visible import visible
from harness.commands.catalogue import Catalogue, NemesisEntry, PolicyEntry, UsableEntry
from harness.report.terminal import wrapped

_NAME: Final = 16
"""The width of the column of names."""

_NARROW: Final = 30
"""The least width of a column of descriptions; in a narrower terminal they are below the names."""

_POSSIBLE: Final = "+"
_SIMULATE: Final = "; use --environment simulation"


def lines(catalogue: Catalogue, columns: int) -> Iterator[Text]:
    """Yield the lines of the catalogue, at most ``columns`` wide; commands stay whole."""
    yield _heading("Systems", "--system NAME", columns)
    yield from _usable(catalogue.systems, columns)
    yield Text()
    yield _heading("Environments", "--environment NAME", columns)
    yield from _entry("auto", "docker if an engine answers, else local", columns, "bold green")
    yield from _usable(catalogue.environments, columns)
    yield Text()
    yield from _policies(catalogue, columns)
    yield Text()
    yield from _workloads(catalogue, columns)
    yield Text()
    yield from _nemeses(catalogue, columns)
    unusable = [(f"--system {name}", system) for name, system in catalogue.systems.items() if system.problem]
    unusable += [
        (f"--environment {name}", place) for name, place in catalogue.environments.items() if place.problem
    ]
    if unusable:
        yield Text()
        yield Text("Not usable on this machine", "bold")
    for option, entry in unusable:
        for line in wrapped(f"{option}: {_reason(entry)}", columns, first="  ", rest="    "):
            yield Text(line)
        yield from _commands(entry, columns)


def _heading(title: str, option: str, columns: int) -> Text:
    text = Text("\n".join(wrapped(f"{title} ({option})", columns, rest="  ")))
    text.stylize("bold", 0, len(title))
    return text


def _entry(name: str, description: str, columns: int, style: str = "") -> Iterator[Text]:
    """Yield the lines of a name and its description, with a hanging indentation."""
    head = f"  {visible(name):<{_NAME}}"
    first, *rest = wrapped(visible(description), columns, first=head, rest=" " * len(head))
    line = Text(first)
    line.stylize(style, 2, 2 + len(visible(name)))
    yield line
    yield from map(Text, rest)


def _note(text: str, columns: int, style: str = "") -> Iterator[Text]:
    """Yield the lines of a text below an entry."""
    indent = " " * (_NAME + 2)
    for line in wrapped(visible(text), columns, first=indent, rest=indent):
        yield Text(line, style)


def _reason(entry: UsableEntry | PolicyEntry) -> str:
    return visible(entry.problem if entry.lack is None else f"{entry.lack.problem}. To get it:")


def _commands(entry: UsableEntry | PolicyEntry, columns: int) -> Iterator[Text]:
    """Yield the commands that make an entry usable, each on a line of its own, however long."""
    if entry.lack is None:
        return
    for command in entry.lack.commands:
        yield Text(f"    {visible(command)}", "cyan")
    if entry.lack.home:
        text = f"and then give --system-home {visible(entry.lack.home)}"
        yield from map(Text, wrapped(text, columns, first="    ", rest="    "))


def _usable(entries: Mapping[str, UsableEntry], columns: int) -> Iterator[Text]:
    """Yield what is usable, and the names of the rest."""
    for name, entry in entries.items():
        if not entry.problem:
            yield from _entry(name, entry.description, columns, "bold green")
    if unusable := [name for name, entry in entries.items() if entry.problem]:
        text = f"not usable on this machine (see the end): {', '.join(map(visible, unusable))}"
        for line in wrapped(text, columns, first="  ", rest="    "):
            yield Text(line, "yellow")


def _policies(catalogue: Catalogue, columns: int) -> Iterator[Text]:
    yield _heading(f"Policies of {catalogue.system}", "--policy NAME", columns)
    for name, policy in catalogue.policies.items():
        yield from _entry(name, policy.description, columns, "bold" if policy.problem else "bold green")
        if policy.problem:
            yield from _note(_reason(policy), columns, "yellow")
            yield from _commands(policy, columns)
        for place, reason in policy.environments.items():
            if reason:
                yield from _note(f"not with --environment {place}: {reason}", columns, "yellow")


def _workloads(catalogue: Catalogue, columns: int) -> Iterator[Text]:
    yield _heading("Workloads", "--workload NAME, or several with weights: groups,bank:2", columns)
    for name, workload in catalogue.workloads.items():
        yield from _entry(name, workload.description, columns, "bold" if workload.lack else "bold green")
        if workload.lack:
            text = f"not with {catalogue.system}: its brokers have no {workload.lack}"
            yield from _note(text, columns, "yellow")


def _nemeses(catalogue: Catalogue, columns: int) -> Iterator[Text]:
    """Yield a line for each nemesis with a mark for each environment, and the notes below."""
    possible = {name: kind for name, kind in catalogue.nemeses.items() if kind.policies}
    places = [
        place for place, entry in catalogue.environments.items() if not _is_unusable(place, entry, possible)
    ]
    names = 2 + max(map(len, possible)) + 2
    indentation = names + 2 * len(places) + 1
    notes: dict[str, str] = {}
    yield _heading("Nemeses", "--nemesis NAME, or several: partition,kill", columns)
    for number, place in enumerate(places):
        yield Text(f"{' ' * names}{'| ' * number}{place}")
    for name, kind in possible.items():
        marks = [_mark(name, kind.environments[place], catalogue, notes) for place in places]
        line = Text(f"  {name:<{names - 2}}")
        line.stylize("bold", 2, 2 + len(name))
        for mark in marks:
            line.append(mark, "green" if mark == _POSSIBLE else "yellow").append(" ")
        description = kind.description + _only(kind, catalogue)
        if columns - indentation < _NARROW:
            yield line
            yield from map(Text, wrapped(description, columns, first="    ", rest="    "))
            continue
        first, *rest = wrapped(description, columns - indentation)
        yield line.append(f" {first}")
        yield from (Text(" " * indentation + text) for text in rest)
    texts = [f"{_POSSIBLE}  possible", *(f"{mark}  not there: {reason}" for reason, mark in notes.items())]
    if impossible := [name for name in catalogue.nemeses if name not in possible]:
        texts.append(f"No policy of {catalogue.system} has what these break: {', '.join(impossible)}.")
    texts += _disks(catalogue)
    texts += _choices("Shapes", {name: kind.shapes for name, kind in possible.items()}, "")
    nodes = ", or names of nodes, for example a1"
    texts += _choices("Targets", {name: kind.targets for name, kind in possible.items()}, nodes)
    for text in texts:
        yield from map(Text, wrapped(visible(text), columns, first="  ", rest="     "))


def _is_unusable(place: str, entry: UsableEntry, nemeses: Mapping[str, NemesisEntry]) -> bool:
    """Return whether brokers of this system cannot run in an environment at all."""
    return bool(entry.problem) and all(kind.environments[place] == entry.problem for kind in nemeses.values())


def _mark(name: str, reason: str, catalogue: Catalogue, notes: dict[str, str]) -> str:
    """Return the mark of a nemesis in an environment; a new reason gets the next letter."""
    if not reason:
        return _POSSIBLE
    for primitive in nemesis.registry.get(name).primitives:
        reason = reason.removeprefix(f"{primitive}: ")
    if catalogue.environments["simulation"].problem:
        reason = reason.removesuffix(_SIMULATE)
    return notes.setdefault(reason, string.ascii_letters[len(notes)])


def _only(kind: NemesisEntry, catalogue: Catalogue) -> str:
    if len(kind.policies) < len(catalogue.policies):
        return f" (only with {' or '.join(kind.policies)})"
    return ""


def _disks(catalogue: Catalogue) -> Iterator[str]:
    """Yield which nemeses break disks, if brokers of some policies have no disk of their own."""
    shares = ", ".join(name for name, policy in catalogue.policies.items() if policy.shares)
    if not shares:
        return
    disks = ", ".join(name for name, kind in catalogue.nemeses.items() if kind.disks)
    simulated = not catalogue.environments["simulation"].problem
    where = f"with {shares} only in the simulation" if simulated else f"not with {shares}"
    yield f"{disks}: {where}, because no broker has its data on a disk of its own."


def _choices(title: str, choices: Mapping[str, tuple[str, ...]], besides: str) -> Iterator[str]:
    """Yield the possible choices, once for all nemeses that have the same choice."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, choice in choices.items():
        if choice:
            groups.setdefault(choice, []).append(name)
    for choice, names in groups.items():
        whose = "the other nemeses" if len(names) > len(choices) / 2 else ", ".join(names)
        yield f"{title} of {whose} (--{title[:-1].lower()}): {', '.join(choice)}{besides}"
