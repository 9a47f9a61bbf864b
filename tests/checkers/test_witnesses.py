"""Every case in which something is found.

The rows of its witness alone show it again, and none of them can be spared.
"""

from __future__ import annotations

import msgspec
import pytest
from checker_rows import dense, lay_out
from test_asked import CASES as ASKED
from test_excuses import ALL as EXCUSES
from test_fates import ALL as FATES
from test_findings import CASES, OPTIONS, tidy
from test_totals import ALL as TOTALS
from test_transactions import ALL as TRANSACTIONS

from checkers import judge, reference
from checkers.anomaly import looked_for
from checkers.verdict import Promises

ALL = {
    **{name: (rows, Promises(), expected) for name, (rows, expected) in CASES.items()},
    **FATES,
    **EXCUSES,
    **TRANSACTIONS,
    **ASKED,
    **TOTALS,
}
FOUND = [name for name, (_, _, expected) in ALL.items() if expected]


def with_marks(cases):
    """Of each kind but one, test_verdict tries a case with every commit."""
    for case in cases:
        yield case if "count-stuck" in ALL[case][2] else pytest.param(case, marks=pytest.mark.in_turn)


@pytest.mark.parametrize("case", [*with_marks(FOUND)])
@pytest.mark.slow
def test_a_witness_alone_shows_its_finding_again(tmp_path, case):
    rows, promises, expected = ALL[case]
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    rows = dense(tidy(rows))
    whole = set(reference.find(rows, options))
    verdict = judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), options)
    assert {finding.name for finding in verdict.findings} == expected
    for finding in verdict.findings:
        shown = list(finding.witness.rows)
        wanted = {i for i in reference.find(shown, options) if i.name == finding.name} & whole
        assert finding.details["examples"][0]["index"] in {i.index for i in wanted}
        for n in range(len(shown)):
            assert not wanted <= set(reference.find(shown[:n] + shown[n + 1 :], options)), shown[n]


def test_every_kind_is_among_them():
    assert set().union(*(ALL[case][2] for case in FOUND)) == set(looked_for(OPTIONS))
