"""The display of a running test: live on a terminal, one line per change elsewhere.

Why one snapshot for both: the run reports its state ten times a second, and each display decides
which changes to show. A display reads and never touches the run, so it cannot change a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from checkers.visible import visible, visible_lines
from harness.report.terminal import drawing_on

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_ROLE_COLOURS = {
    "live": "green",
    "backup": "cyan",
    "stopped": "red",
    "unreachable": "red",
    "voting": "yellow",
    "verifying": "yellow",
    "synchronizing": "yellow",
}


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The state of a run at one moment.

    ``counters`` are totals by completion (ok, fail, info, deliver).
    """

    phase: str
    elapsed_s: float
    counters: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)


class Progress(Protocol):
    """A display of a run, used as a context manager around it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def note(self, text: str) -> None:
        """Show a text as a line of its own."""
        ...

    def update(self, snapshot: RunSnapshot) -> None:
        """Show the present state of the run."""
        ...


class Lines:
    """A display that prints a line for each changed phase, fault and role; for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = RunSnapshot(phase="", elapsed_s=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def note(self, text: str) -> None:
        """Print the text."""
        print(text, file=self._stream, flush=True)

    def update(self, snapshot: RunSnapshot) -> None:
        """Print the differences from the last snapshot."""
        last, self._last = self._last, snapshot
        moment = f"{snapshot.elapsed_s:7.1f} s  "
        if snapshot.phase != last.phase:
            done = snapshot.counters
            figures = f"   ({_counts(done)})" if any(done.values()) else ""
            self.note(f"{moment}phase {snapshot.phase}{figures}")
        for label, description in snapshot.faults.items():
            if label not in last.faults:
                self.note(f"{moment}fault  {description}")
        for label, description in last.faults.items():
            if label not in snapshot.faults:
                self.note(f"{moment}healed {description}")
        for node, role in snapshot.roles.items():
            if last.roles.get(node) != role:
                self.note(f"{moment}{node:<6} {role}")


class Screen:
    """A live display of the phase, the rates, the faults in force and each broker's role."""

    def __init__(self, stream: TextIO, title: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - a slow import that only a terminal needs

        self._console = Console(file=drawing_on(stream))
        self._title = visible(title)
        self._live: Live | None = None
        self._last: RunSnapshot | None = None
        self._rate = 0.0

    def __enter__(self) -> Self:
        from rich.live import Live  # noqa: PLC0415 - as above

        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def note(self, text: str) -> None:
        """Print the text above the display."""
        self._console.print(visible_lines(text), markup=False, highlight=False)

    def update(self, snapshot: RunSnapshot) -> None:
        """Draw the snapshot."""
        if self._live is not None:
            self._live.update(self._table(snapshot))
        self._last = snapshot

    def _table(self, now: RunSnapshot) -> Table:
        from rich.table import Table  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        last = self._last
        if last is not None and now.elapsed_s > last.elapsed_s:
            rate = (_total(now.counters) - _total(last.counters)) / (now.elapsed_s - last.elapsed_s)
            self._rate += 0.2 * (rate - self._rate)
        table = Table(title=Text(self._title), show_header=False, expand=False)
        table.add_column(style="bold")
        table.add_column()
        table.add_row("phase", f"{now.phase}   {now.elapsed_s:.0f} s")
        table.add_row("operations", f"{max(0.0, self._rate):.0f}/s   {_counts(now.counters)}")
        faults = Text(
            "\n".join(map(visible, now.faults.values())) or "none", style="bold red" if now.faults else ""
        )
        table.add_row("faults", faults)
        roles = Text()
        for node, role in now.roles.items():
            roles.append(f"{visible(node)} ", style="bold")
            roles.append(f"{visible(role):<14}", style=_ROLE_COLOURS.get(role, ""))
            if node.endswith("2"):
                roles.append("\n")
        roles.rstrip()
        table.add_row("brokers", roles)
        return table


def choose(stream: TextIO, title: str) -> Progress:
    """Return the live display if ``stream`` is a terminal, else the display by lines."""
    return Screen(stream, title) if stream.isatty() else Lines(stream)


def _total(counters: Mapping[str, int]) -> int:
    return sum(counters.get(name, 0) for name in ("ok", "fail", "info"))


_COUNTED = {"fail": "failed", "info": "unknown", "deliver": "delivered"}


def _counts(counters: Mapping[str, int]) -> str:
    counts = (
        f"{count} {_COUNTED.get(name, name)}" for name, count in counters.items() if isinstance(count, int)
    )
    return ", ".join(counts) or "none yet"
