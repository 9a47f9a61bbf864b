"""What a person sees: one line per change in a log, everything at a glance on a terminal."""

import io
import re

import pytest

from harness.report import progress as displays
from harness.report.progress import Lines, Meter, RunSnapshot, Screen, choose


class Terminal(io.StringIO):
    def isatty(self):
        return True


def snapshots():
    roles = {"a1": "live", "a2": "backup"}
    yield RunSnapshot(phase="start", elapsed_s=0.5)
    yield RunSnapshot(phase="load", elapsed_s=1.0, roles=roles)
    yield RunSnapshot(
        phase="load", elapsed_s=2.0, roles=roles, counters={"ok": 400, "fail": 0, "info": 2, "deliver": 380}
    )
    yield RunSnapshot(phase="load", elapsed_s=3.0, roles=roles, faults={"kill-1": "kill a1"})
    yield RunSnapshot(
        phase="load",
        elapsed_s=4.0,
        roles={**roles, "a1": "stopped", "a2": "live"},
        faults={"kill-1": "kill a1"},
    )
    yield RunSnapshot(
        phase="heal", elapsed_s=5.0, roles={**roles, "a1": "stopped", "a2": "live"}, counters={"ok": 900}
    )


def test_a_log_has_one_line_for_each_change_and_none_for_the_rest():
    stream = io.StringIO()
    with choose(stream, "a test") as progress:
        assert isinstance(progress, Lines)
        for snapshot in snapshots():
            progress.update(snapshot)
            progress.update(snapshot)
    assert [line.split(" s  ")[1] for line in stream.getvalue().splitlines()] == [
        "phase start",
        "phase load",
        "a1     live",
        "a2     backup",
        "fault  kill a1",
        "a1     stopped",
        "a2     live",
        "phase heal   (900 ok)",
        "healed kill a1",
    ]


def test_a_terminal_shows_phase_rate_faults_and_roles():
    stream = Terminal()
    with choose(stream, "a test") as progress:
        assert isinstance(progress, Screen)
        for snapshot in snapshots():
            drawn = progress._table(snapshot)
            progress.update(snapshot)
        progress.note("one [more] line")
    cells = [str(cell) for column in drawn.columns for cell in column.cells]
    assert cells[:4] == ["phase", "operations", "faults", "brokers"]
    assert cells[4].startswith("heal")
    assert "900 ok" in cells[5]
    assert "none" in cells[6]
    assert "a1 stopped" in cells[7]
    assert "one [more] line" in stream.getvalue()


def test_the_name_of_a_test_is_no_markup():
    stream = Terminal()
    with choose(stream, "a test [/b] of [red]") as progress:
        progress.update(next(snapshots()))
    assert "a test [/b] of [red]" in stream.getvalue()


def drawn(stream):
    """The lines of a terminal, without the movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue()).replace("\r", "\n").splitlines()


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.usefixtures("wide")
def test_a_meter_says_what_is_done_and_how_long_the_rest_takes(monkeypatch):
    clock = iter([0.0, 100.0, 100.0, 130.0, 130.0])
    monkeypatch.setattr(displays, "monotonic", lambda: next(clock))
    stream = Terminal()
    with Meter(stream) as meter:
        meter.update("simulating: 40 of 100 runs", 40, 100)  # what was there before tells no pace
        meter.update("simulating: 50 of 100 runs", 50, 100)
        meter.note("run 50: [INVALID] \x1b[2J")
        assert meter.is_drawn
    lines = drawn(stream)
    assert any("simulating: 50 of 100 runs" in line and "about 2 min left" in line for line in lines), lines
    assert "run 50: [INVALID] \\x1b[2J" in lines


@pytest.mark.usefixtures("wide")
def test_what_has_no_end_to_count_to_is_shown_with_how_long_it_usually_takes():
    stream = Terminal()
    with Meter(stream) as meter:
        meter.expect("judging", 12.0)
        meter.note("a line")
    assert any("judging" in line and "usually 12 s" in line for line in drawn(stream))


def test_a_meter_draws_nothing_on_a_pipe():
    stream = io.StringIO()
    with Meter(stream) as meter:
        meter.update("simulating", 1, 2)
        meter.expect("judging", 12.0)
        meter.note("a line")
        assert not meter.is_drawn
    assert stream.getvalue() == "a line\n"


@pytest.mark.usefixtures("wide")
def test_a_simulated_run_has_its_lines_and_the_virtual_time_below():
    stream, pipe = Terminal(), io.StringIO()
    for each in (stream, pipe):
        with choose(each, "a test", 40.0, virtual=True) as progress:
            for snapshot in snapshots():
                progress.update(snapshot)
    assert any("simulating: heal, 5 of 40 s" in line for line in drawn(stream))
    assert set(pipe.getvalue().splitlines()) <= {line.rstrip() for line in drawn(stream)}
    assert "simulating" not in pipe.getvalue()


def test_a_terminal_says_how_much_of_the_load_is_left():
    with choose(Terminal(), "a test", 40.0) as progress:
        for snapshot in list(snapshots())[:4]:
            (phase, *_) = progress._table(snapshot).columns[1].cells
    assert phase == "load   3 s, 38 s of load left"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (89, "89 s"), (150, "2 min"), (5000, "83 min"), (9000, "2.5 h")]
)
def test_times_are_told_as_people_say_them(seconds, words):
    assert displays.duration_text(seconds) == words
