"""What had to succeed and did not: of each a history in which it is so, and one as near as can be in which it is not.

The names of the cases are what they prove; columns and reference must both say so. The bounds are 10 s.
"""

from __future__ import annotations

import pytest
from checker_rows import Row, S, dense, file_instances, lay_out
from test_findings import OPTIONS, answer, send, tidy

from checkers import judge, reference


def at(time_s: float, rows: list[Row]) -> list[Row]:
    return [dict(r, time=int(time_s * S)) for r in rows]


def sends(times_s: list[float], first: int, outcome: str, **columns: object) -> list[Row]:
    """One a moment, their rows two by two from index ``first`` on."""
    return [
        r
        for n, time in enumerate(times_s)
        for r in at(time, send(first + 2 * n, first + n, outcome, **columns))
    ]


def in_order(*some: list[Row]) -> list[Row]:
    """All of them by time, numbered anew."""
    rows = sorted((r for rows in some for r in rows), key=lambda r: (r["time"], r["index"]))
    return [dict(r, index=n) for n, r in enumerate(rows)]


DEAD = sends([1.0 + 5 * n for n in range(10)], 100, "info", queue="r", group=None, producer=2)
WELL = sends([float(n) for n in range(50)], 200, "ok", group=None, producer=1)
GROUP = sends([1.0 + 5 * n for n in range(10)], 100, "info", group="h", producer=1)

CASES: dict[str, tuple[list[Row], set[str]]] = {
    "a queue that is dead while another works": (in_order(DEAD, WELL), {'queue "r", send', "client producer 2"}),
    "a group that is dead while others of its queue work": (in_order(GROUP, WELL), {'group "h" of queue "q", send'}),
    "two attempts are too few to say so": (in_order(GROUP[:2], GROUP[8:10], WELL), set()),
    "three attempts are enough": (in_order(GROUP[:2], GROUP[8:12], WELL), {'group "h" of queue "q", send'}),
    "what failed for no longer than the bound is no window": (in_order(GROUP[:6], WELL), set()),
    "a success between ends it": (
        in_order(GROUP[:4], sends([9.0], 150, "ok", group="h"), GROUP[4:8], WELL), set()),
    "the window ends with the last failure, not with the next success": (
        in_order(GROUP[:6], sends([40.0], 150, "ok", group="h"), WELL), set()),
    "a question that was answered late ends nothing before": (
        in_order(GROUP[:8], at(5, [dict(send(150, 70, group="h")[0])]), at(30, [dict(send(150, 70, group="h")[1], index=151)]), WELL),
        {'group "h" of queue "q", send'}),
    "acks of a queue are told apart from its sends": (
        in_order(WELL, *(at(5.0 * n, answer(300 + 2 * n, 200 + n, outcome="info", group=None)) for n in range(1, 9))),
        {"operation ack", 'queue "q", ack'}),
    "questions that nobody answers and that do not end are no failure yet": (in_order(GROUP[::2], WELL), set()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_both_implementations_say_what_was_unavailable(tmp_path, case):
    rows, expected = CASES[case]
    rows = tidy(rows)
    found = set(reference.find(rows, OPTIONS))
    assert {i.key for i in found if i.name == "unavailable"} == expected
    assert file_instances(tmp_path / "whole", rows, OPTIONS) == found
    assert file_instances(tmp_path / "sliced", rows, OPTIONS, slice_rows=3) == found


def test_the_broadest_window_is_told_first_and_shown_by_its_attempts(tmp_path):
    rows = dense(tidy(in_order(DEAD, GROUP)))
    verdict = judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), OPTIONS)
    (finding,) = (finding for finding in verdict.findings if finding.name == "unavailable")
    assert finding.sentence.startswith("operation send: nothing succeeded from 1.000 s to 46.000 s")
    shown = list(finding.witness.rows)
    assert finding.details["examples"][0]["key"] == "operation send"
    assert ("unavailable", "operation send") in {(i.name, i.key) for i in reference.find(shown, OPTIONS)}
    assert len(shown) == 4
