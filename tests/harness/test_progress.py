"""What a person sees: one line per change in a log, everything at a glance on a terminal."""

import io

from harness.report.progress import Lines, RunSnapshot, Screen, choose


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
