"""The verdict as JUnit XML, which every CI server shows.

Why one case per kind of finding: a CI page then lists what was checked and what failed by name,
with the sentence and witness in the failure's text. A known finding is ``skipped``, with the reason
and its last day, and so is a rule that was not judged. An unknown verdict is an ``error`` of its
own case, never a pass.

Format: the schema of Apache Ant's JUnit task as CI servers read it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from checkers.anomaly import looked_for
from checkers.verdict import CheckOptions, Finding, Verdict
from harness.history import judge, known, store

NAME: Final = "junit.xml"
_INVALID_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(directory: Path) -> Path:
    """Write ``junit.xml`` into the directory of a run and return its path."""
    spec = store.load_spec(directory)
    verdict = Verdict.from_json((directory / store.FINDINGS).read_bytes())
    by_name = {finding.name: finding for finding in verdict.findings}
    checked = looked_for(CheckOptions(guarantee=verdict.guarantee, ordered=verdict.ordered))
    names = [*checked, *(name for name in by_name if name not in checked)]
    reviewed = known.stored_review(directory)
    reviewed_by_name = {
        reviewed_finding.kind: reviewed_finding
        for reviewed_finding in (reviewed.findings if reviewed is not None else ())
    }
    accepted = sum(reviewed_finding.state == "known" for reviewed_finding in reviewed_by_name.values())
    failures = sum(finding.severity == "grave" for finding in verdict.findings) - accepted
    judged = verdict.valid is not None or verdict.statistics.rows > 0
    unheard = {**verdict.undecided, **verdict.left_out}
    if not judged:
        unheard = dict.fromkeys(names, "there was nothing to judge")
    skipped = accepted + sum(name in unheard and name not in by_name for name in names)
    doubtful = known.exit_status(verdict, reviewed) == judge.UNKNOWN
    errors = int(doubtful)
    suite = ET.Element(
        "testsuite",
        name=f"jepsen-run.{spec.name}",
        tests=str(len(names) + 1),
        failures=str(failures),
        errors=str(errors),
        skipped=str(skipped),
        time=f"{verdict.statistics.duration_s:.3f}",
    )
    verdict_case = ET.SubElement(suite, "testcase", classname=f"jepsen-run.{spec.name}", name="verdict")
    if doubtful:
        ET.SubElement(
            verdict_case, "error", message=_clean("; ".join(verdict.reasons) or "unknown"), type="unknown"
        )
    for name in names:
        case = ET.SubElement(suite, "testcase", classname=f"jepsen-run.{spec.name}", name=name)
        if name in unheard and name not in by_name:
            ET.SubElement(case, "skipped", message=_clean(f"not judged: {unheard[name]}"))
        if name in by_name:
            _describe(case, by_name[name], reviewed_by_name.get(name))
    path = directory / NAME
    ET.indent(suite)
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
    return path


def _describe(case: ET.Element, finding: Finding, reviewed: known.Reviewed | None) -> None:
    rows = "\n".join(str(row) for row in finding.witness.rows)
    if reviewed is not None and reviewed.state == "known":
        ET.SubElement(case, "skipped", message=_clean(str(reviewed)))
        ET.SubElement(case, "system-out").text = _clean(f"{finding.sentence}\n\nwitness:\n{rows}")
    elif finding.severity == "grave":
        failure = ET.SubElement(case, "failure", message=_clean(finding.sentence), type=finding.name)
        over = f"{reviewed}\n\n" if reviewed is not None else ""
        failure.text = _clean(f"{finding.sentence}\n\n{over}witness:\n{rows}")
    else:
        ET.SubElement(case, "system-out").text = _clean(f"{finding.severity}: {finding.sentence}\n{rows}")


def _clean(text: str) -> str:
    """Replace the control characters that XML 1.0 forbids: brokers' texts may have any of them."""
    return _INVALID_XML.sub("\ufffd", text)
