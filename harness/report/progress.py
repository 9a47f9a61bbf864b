"""The display of a running test: live on a terminal, one line per change elsewhere.

Why one snapshot for both: the run reports its state ten times a second, and each display decides
which changes to show. A display reads and never touches the run, so it cannot change a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic  # a name of its own: within a simulated run, time.monotonic is forbidden
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from checkers.visible import visible, visible_lines
from harness.report.terminal import console, is_quiet, is_verbose

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.progress import Progress as Bars
    from rich.progress import TaskID
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

    def warn(self, text: str) -> None:
        """Show a text that must be seen, with ``--quiet``, too."""
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
        if not is_quiet():
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print the text in any case."""
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

    def __init__(self, stream: TextIO, title: str, load_s: float = 0.0) -> None:
        self._console = console(stream)
        self._title = visible(title)
        self._load_s = load_s
        self._load_began_s: float | None = None
        self._live: Live | None = None
        self._last: RunSnapshot | None = None
        self._rate = 0.0

    def __enter__(self) -> Self:
        from rich.live import Live  # noqa: PLC0415 - a slow import that only a terminal needs

        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def note(self, text: str) -> None:
        """Print the text above the display."""
        self._console.print(visible_lines(text))

    def warn(self, text: str) -> None:
        """Print the text above the display."""
        self.note(text)

    def update(self, snapshot: RunSnapshot) -> None:
        """Draw the snapshot."""
        if self._live is not None:
            self._live.update(self._table(snapshot))
        self._last = snapshot

    def _load_left(self, now: RunSnapshot) -> str:
        """Return how long the load still takes; "" in the other phases, which end by events."""
        if now.phase != "load":
            return ""
        if self._load_began_s is None:
            self._load_began_s = now.elapsed_s
        left_s = self._load_s - (now.elapsed_s - self._load_began_s)
        return f", {left_s:.0f} s of load left" if left_s > 0 else ""

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
        table.add_row("phase", f"{now.phase}   {now.elapsed_s:.0f} s{self._load_left(now)}")
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


class Meter:
    """A line at the bottom of a terminal: what is being done, and how long it takes.

    On another stream it draws nothing, and notes are plain lines. The line disappears at the end.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console: Console | None = console(stream) if stream.isatty() and not is_quiet() else None
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._began_s = monotonic()
        self._before = 0.0

    def __enter__(self) -> Self:
        if self._console is not None:
            from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - as above
            from rich.progress import Progress as Bars  # noqa: PLC0415 - as above

            self._bars = Bars(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=12),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}", markup=False),
                console=self._console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = self._task = None

    @property
    def is_drawn(self) -> bool:
        """True if the line is seen: then no line about the progress need be printed."""
        return self._bars is not None

    def update(self, step: str, done: float = 0.0, total: float | None = None) -> None:
        """Show what is being done, and how much of the total is done.

        The time that is left follows from the pace since the first call. What was done before that
        call counts as done, not as pace.
        """
        if self._bars is None:
            return
        step = visible(step)
        if self._task is None:
            self._began_s, self._before = monotonic(), done
            self._task = self._bars.add_task(step, total=total, left="")
        remaining = _remaining_text(monotonic() - self._began_s, done - self._before, done, total)
        self._bars.update(self._task, description=step, completed=done, total=total, left=remaining)

    def expect(self, step: str, seconds: float) -> None:
        """Show what is being done, and how long it usually takes."""
        self.update(step)
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, left=f"usually {duration_text(seconds)}")

    def note(self, text: str) -> None:
        """Print a line above."""
        if self._bars is None or self._console is None:
            print(text, file=self._stream, flush=True)
        else:
            self._console.print(visible_lines(text))


def _remaining_text(spent_s: float, advanced: float, done: float, total: float | None) -> str:
    """Return in words how long the rest takes at the pace so far; "" if that is not known."""
    if total is None or advanced <= 0 or done >= total:
        return ""
    return f"about {duration_text(spent_s / advanced * (total - done))} left"


def duration_text(seconds: float) -> str:
    """Return a time as people say it: "20 s", "5 min", "2.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class LinesOverMeter(Lines):
    """A display that prints lines, with a meter below them on a terminal.

    It is for runs on virtual time, in which lines say more than a table could show: a minute takes
    a second. ``total_s`` is the virtual time of the load.
    """

    def __init__(self, stream: TextIO, total_s: float) -> None:
        super().__init__(stream)
        self._meter = Meter(stream)
        self._total_s = total_s

    def __enter__(self) -> Self:
        self._meter.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.__exit__(None, None, None)
        super().__exit__()

    def warn(self, text: str) -> None:
        """Print the text above the meter."""
        self._meter.note(text)

    def update(self, snapshot: RunSnapshot) -> None:
        """Print the differences from the last snapshot, and show the virtual time."""
        super().update(snapshot)
        done_s = min(snapshot.elapsed_s, self._total_s)
        self._meter.update(
            f"simulating: {snapshot.phase}, {snapshot.elapsed_s:.0f} of {self._total_s:.0f} s",
            done_s,
            self._total_s,
        )


def choose(stream: TextIO, title: str, load_s: float = 0.0, *, virtual: bool = False) -> Progress:
    """Return the live display if ``stream`` is a terminal, else the display by lines.

    With ``--verbose`` lines are printed everywhere, since people read them later. ``load_s`` is how
    long the load takes, ``virtual`` says that its time is virtual.
    """
    if is_quiet():
        return Lines(stream)
    if virtual:
        return LinesOverMeter(stream, load_s)
    return Screen(stream, title, load_s) if stream.isatty() and not is_verbose() else Lines(stream)


def _total(counters: Mapping[str, int]) -> int:
    return sum(counters.get(name, 0) for name in ("ok", "fail", "info"))


_COUNTED = {"fail": "failed", "info": "unknown", "deliver": "delivered"}


def _counts(counters: Mapping[str, int]) -> str:
    counts = (
        f"{count} {_COUNTED.get(name, name)}" for name, count in counters.items() if isinstance(count, int)
    )
    return ", ".join(counts) or "none yet"
