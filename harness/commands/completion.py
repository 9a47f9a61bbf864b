"""The names that a shell offers as values of options, see docs/how-to/terminal.md.

Why from the registries: they are the names that the options take. An option for several names
completes the last one: ``partition,ki`` becomes ``partition,kill``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import click
from click.shell_completion import CompletionItem

from harness.interface import OWN


class Names(click.types.StringParamType):
    """A text for which a shell offers names; any other text is refused later, by name."""

    def __init__(self, names: Callable[[click.Context], Iterable[str]], *, several: bool = False) -> None:
        self._names = names
        self._several = several

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with what was typed."""
        del param
        before, comma, last = incomplete.rpartition(",") if self._several else ("", "", incomplete)
        chosen = before.split(",")
        return [
            CompletionItem(f"{before}{comma}{name}")
            for name in self._names(ctx)
            if name.startswith(last) and name not in chosen
        ]


def install(command: click.Command) -> None:
    """Give each option of a command that takes names the type that offers them."""
    for parameter in command.params:
        for option in parameter.opts:
            if option in _NAMES:
                parameter.type = _NAMES[option]


def _systems(_: click.Context) -> Iterable[str]:
    from harness.systems import registry  # noqa: PLC0415 - as all below: only where a name is completed

    return registry.names()


def _policies(context: click.Context) -> Iterable[str]:
    from harness.systems import registry  # noqa: PLC0415 - as above

    return registry.get(context.params.get("system") or OWN).policies


def _environments(_: click.Context) -> Iterable[str]:
    from environments.registry import ENVIRONMENTS  # noqa: PLC0415 - as above

    return ("auto", *ENVIRONMENTS)


def _nemeses(_: click.Context) -> Iterable[str]:
    from nemesis.registry import KINDS  # noqa: PLC0415 - as above

    return KINDS


def _workloads(_: click.Context) -> Iterable[str]:
    from workloads.registry import MIXED, WORKLOADS  # noqa: PLC0415 - as above

    return (*WORKLOADS, MIXED)


def _shapes(_: click.Context) -> Iterable[str]:
    from nemesis.partition import SHAPES  # noqa: PLC0415 - as above

    return SHAPES


def _targets(_: click.Context) -> Iterable[str]:
    from nemesis.target import TARGETS  # noqa: PLC0415 - as above

    return TARGETS


def _guarantees(_: click.Context) -> Iterable[str]:
    from harness.history.spec import GUARANTEES  # noqa: PLC0415 - as above

    return GUARANTEES


def _client_orders(_: click.Context) -> Iterable[str]:
    from stomp_protocol.client.addresses import BEHAVIORS  # noqa: PLC0415 - as above

    return BEHAVIORS


def _findings(_: click.Context) -> Iterable[str]:
    from checkers.anomaly import ANOMALIES  # noqa: PLC0415 - as above

    return [anomaly.name for anomaly in ANOMALIES]


_NAMES: Final[Mapping[str, Names]] = {
    "--system": Names(_systems),
    "--policy": Names(_policies, several=True),
    "--environment": Names(_environments),
    "--nemesis": Names(_nemeses, several=True),
    "--workload": Names(_workloads, several=True),
    "--shape": Names(_shapes, several=True),
    "--target": Names(_targets, several=True),
    "--guarantee": Names(_guarantees),
    "--client-order": Names(_client_orders),
    "--finding": Names(_findings, several=True),
}
