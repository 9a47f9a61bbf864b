"""The witnesses of rules that tell of several messages, in histories that were damaged at random.

Each alone shows its finding again, of groups, queues and subscriptions.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from checker_rows import table

from bench.agreement import PARTS, PATIENT, by_reference, history, part_of
from checkers import judge
from checkers.decide import decide
from checkers.findings import Discoveries, compose, select_findings
from checkers.source import HereSource, TablePart
from checkers.verdict import Promises

OPTIONS = msgspec.structs.replace(PATIENT, broker=Promises(fifo=True))
OF_SEVERAL = ("not-linearizable", "torn-transaction")


def findings(rows):
    """As ``judge.judge`` does it, but of what no history may be as well."""
    parts = [[] for _ in range(PARTS + 1)]
    for row in rows:
        parts[part_of(row, PARTS)].append(row)
    *carried, control = map(table, parts)
    last = max(row["time"] for row in rows)
    source = HereSource([TablePart(n, one) for n, one in enumerate(carried)], control, last, len(rows))
    case = judge.examine(judge.CheckRun(source, OPTIONS))
    known, kinds = case.facts_by_run[0], select_findings(case.found[0], OPTIONS)
    found = Discoveries(
        found={name: some for name, some in kinds.items() if name in OF_SEVERAL}, overlaps=[], windows=[],
        answers={}, pauses=[], hungers=[], survivors={}, doubles=[], divergences=[], torn=case.torn,
    )  # fmt: skip
    return compose(source, found, decide(kinds, known, OPTIONS), OPTIONS, known)


@pytest.mark.slow
def test_a_certificate_alone_shows_its_finding_again():
    shown: Counter[tuple[str, str]] = Counter()
    for seed in [seed for seed in (*range(500), 562, 662) if seed % 4 != 1]:
        rows = history(seed).rows
        whole = {one for one in by_reference(rows, OPTIONS) if one.name in OF_SEVERAL}
        for finding in findings(rows) if whole else ():
            again = whole & by_reference(finding.witness.rows, OPTIONS)
            (one,) = (i for i in again if i.index == finding.details["examples"][0]["index"])
            assert one.name == finding.name, seed
            place = "queue" if one.group is None else "group"
            shown[one.name, "subscription" if " > " in (one.queue or "") else place] += 1
    assert {name for name, _ in shown} == set(OF_SEVERAL)
    assert {place for _, place in shown} == {"queue", "group", "subscription"}
