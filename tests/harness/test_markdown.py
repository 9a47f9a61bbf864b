"""The summary in Markdown: what a job's page shows of its runs."""

import os

import pytest

from checkers.verdict import Finding, Verdict, Witness
from harness.commands import cli
from harness.history import known
from harness.history import store as stores
from harness.history.spec import build
from harness.report import markdown


def finding(name="lost", sentence="it is gone", severity="grave"):
    return Finding(
        name=name, severity=severity, count=2, sentence=sentence, witness=Witness(indexes=(), rows=())
    )


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Stores a run without a cluster, with a story that is made up."""
    monkeypatch.setattr(markdown.paragraphs, "of_gravest", lambda *_: "p1 sent *m1* to <b>")

    def store(name, verdict, **record):
        directory = stores.create(tmp_path / "store", name)
        stores.save(directory, stores.SPEC, build({"name": name, "seed": 7}))
        stores.save(directory, stores.RUN, stores.RunRecord(**record))
        if verdict is not None:
            (directory / stores.FINDINGS).write_bytes(verdict.to_json())
        return directory

    return store


def test_a_text_of_a_broker_is_shown_and_does_nothing():
    hostile = "<img src=x> | `a` ![x](y) [l](z) **b** _c_ ~~d~~ $e$ @all #1 &lt; \\\n# h"
    assert markdown.escaped(hostile) == (
        r"\<img src=x\> \| \`a\` \!\[x\](y) \[l\](z) \*\*b\*\* \_c\_ \~\~d\~\~ \$e\$ \@all \#1 \&lt; \\"
        r"\\n\# h"
    )


def test_a_run_is_told_with_its_findings_story_report_and_command(stored):
    verdict = Verdict(
        valid=False,
        reasons=("lost: it is gone", "stuck: not judged, no broker", "the disk was full"),
        findings=(finding(severity="warning", name="starved"), finding()),
    )
    run = stored("kill|er", verdict, state="ended")
    (run / stores.REPORT).write_text("")
    known.keep(run, known.Review(known=False, findings=(known.Reviewed(kind="lost", state="new"),)))
    lines = markdown.text([run]).splitlines()
    assert lines == [
        r"## INVALID  kill\|er: lost (2)", "",
        "| finding | count | first |", "|---|---|---|",
        r"| **lost** | 2 | it is gone (new: no entry of the known findings is of it) |",
        "| starved (warning) | 2 | it is gone |", "",
        r"p1 sent \*m1\* to \<b\>", "",
        "- the disk was full", "",
        f"The report is `{run}/report.html`.", "",
        "Run it again:", "",
        "~~~console", "jepsen-run --policy replication --name 'kill|er' --seed 7", "~~~",
    ]  # fmt: skip


def test_of_several_runs_the_gravest_is_first_and_told(stored):
    accepted = stored("accepted", Verdict(valid=False, findings=(finding(),)))
    known.keep(accepted, known.Review(known=True, findings=(known.Reviewed(kind="lost", state="known"),)))
    runs = [
        accepted,
        stored("good", Verdict(valid=True)),
        stored("unsure", Verdict(valid=None, reasons=("no fault took effect",))),
        stored("killed", None, state="running"),
        stored("bad", Verdict(valid=False, findings=(finding(),))),
    ]
    text = markdown.text(runs)
    assert text.startswith("## 5 runs: 1 invalid, 1 no verdict, 1 unknown, 2 valid\n")
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:6]
    assert [row.split(":")[0] for row in rows] == [
        "| INVALID | bad", "| NO VERDICT | killed", "| UNKNOWN | unsure", "| INVALID, BUT KNOWN | accepted",
        "| VALID | good",
    ]  # fmt: skip
    told = [line for line in text.splitlines() if line.startswith("## ")][1:]
    assert [line.split(":")[0] for line in told] == [
        "## INVALID  bad",
        "## NO VERDICT  killed",
        "## UNKNOWN  unsure",
    ]
    assert r"the run was killed" in told[1]


def test_no_more_runs_are_told_than_a_page_can_hold(stored, monkeypatch):
    monkeypatch.setattr(markdown, "LISTED", 3)
    text = markdown.text([stored(f"t{number}", Verdict(valid=None, reasons=("x",))) for number in range(7)])
    assert text.count("\n## ") == markdown.TOLD
    assert "| | and 4 more | |" in text
    assert "2 more runs are not told here." in text


def test_the_command_prints_the_runs_that_are_newer_than_a_file(stored, tmp_path, capsys):
    old, new = stored("old", Verdict(valid=True)), stored("new", Verdict(valid=False, findings=(finding(),)))
    mark = tmp_path / "mark"
    mark.write_text("")
    os.utime(old / stores.SPEC, ns=(1, mark.stat().st_mtime_ns - 1))
    os.utime(new / stores.SPEC, ns=(1, mark.stat().st_mtime_ns + 1))
    assert cli.run(["summary", str(tmp_path / "store"), "--newer-than", str(mark)]) == 0
    assert capsys.readouterr().out.startswith("## INVALID  new: lost")
    assert cli.run(["summary", str(old), "--newer-than", str(mark)]) == 254
    assert capsys.readouterr().err == f"jepsen-run: {old}: no run was stored after {mark} was written\n"
    assert cli.run(["summary", str(old), "--newer-than", "nowhere"]) == 254
    assert capsys.readouterr().err == "jepsen-run: nowhere cannot be read: No such file or directory\n"
