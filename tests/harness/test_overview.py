"""The page of all runs says what is new, what comes again and what is gone."""

import json
import os
import re

import pytest

from harness.commands import cli
from harness.history import store as stores
from harness.history.spec import build
from harness.report import files, overview


class Store:
    """A store whose runs are written as runs write them, without a cluster."""

    def __init__(self, root):
        self.root = root
        self.count = 0

    def run(self, valid=True, findings=(), test="nightly", state="ended", **fields):
        """One run more; ``findings`` are grave, one of each."""
        self.count += 1
        directory = stores.create(self.root, test)
        directory = directory.rename(directory.with_name(f"202611{self.count:02}T000000.000"))
        stores.save(
            directory,
            stores.SPEC,
            build({"name": test, "policy": "replication", "seed": self.count, **fields}),
        )
        stores.save(
            directory,
            stores.RUN,
            stores.RunRecord(state=state, started=f"2026-11-{self.count:02}T00:00:00+00:00"),
        )
        if valid != "none":
            told = [{"name": kind, "severity": "grave", "count": 2, "sentence": "s"} for kind in findings]
            verdict = {"valid": valid, "findings": told, "statistics": {"rows": 1234, "duration_s": 5.5}}
            (directory / stores.FINDINGS).write_text(json.dumps(verdict))
        return directory

    def page(self):
        return overview.write(self.root).read_text()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def standings(store):
    """Of each run, oldest first, what is said of its findings."""
    return [dict(each) for each in overview.news(overview.read(store.root))][::-1]


def test_a_finding_is_new_then_again_then_gone(store):
    for findings in ((), ("lost",), ("lost", "stuck"), ("stuck",), ()):
        store.run(not findings, findings)
    assert standings(store) == [
        {}, {"lost": "new"}, {"lost": "again", "stuck": "new"}, {"lost": "gone", "stuck": "again"},
        {"stuck": "gone"},
    ]  # fmt: skip
    (test,) = overview.histories(overview.read(store.root))
    assert [(one.kind, one.standing, one.counts) for one in test.trends] == [
        ("lost", "gone", (0, 2, 2, 0, 0)),
        ("stuck", "gone", (0, 0, 2, 2, 0)),
    ]


def test_what_was_not_decided_is_compared_with_nothing(store):
    store.run(False, ("lost",))
    store.run(None)
    store.run("none", state="interrupted")
    store.run(False, ("lost",))
    assert standings(store) == [{"lost": "new"}, {}, {}, {"lost": "again"}]
    (test,) = overview.histories(overview.read(store.root))
    assert test.trends[0].counts == (2, None, None, 2)
    assert [run.verdict for run in test.runs] == ["invalid", "interrupted", "unknown", "invalid"]


def test_tests_are_compared_with_themselves(store):
    store.run(False, ("lost",), test="one")
    store.run(False, ("lost",), test="two")
    store.run(True, test="one")
    assert standings(store) == [{"lost": "new"}, {"lost": "new"}, {"lost": "gone"}]
    assert [test.name for test in overview.histories(overview.read(store.root))] == ["one", "two"]


def test_the_first_run_of_a_test_has_only_news(store):
    store.run(False, ("lost",))
    (test,) = overview.histories(overview.read(store.root))
    assert test.trends[0].standing == "new"


def test_the_page_shows_each_run_once_with_its_report(store):
    runs = [store.run(False, ("lost",)), store.run(True)]
    page = store.page()
    for run in runs:
        assert page.count(f'{run.parent.name}/{run.name}/report.html"') == 1 + (run == runs[-1])
    assert "2 runs of 1 test" in page
    assert "lost x 2" in page


def test_what_was_read_once_is_read_again_only_if_its_verdict_has_changed(store, monkeypatch):
    run = store.run(False, ("lost",))
    store.page()
    monkeypatch.setattr(overview, "_verdict", lambda _: pytest.fail("it was read again"))
    assert overview.read(store.root)[0].findings == {"lost": 2}
    monkeypatch.undo()
    (run / stores.FINDINGS).write_text('{"valid": true}')
    os.utime(run / stores.FINDINGS, ns=(1, 1))
    assert overview.read(store.root)[0].verdict == "valid"


@pytest.mark.parametrize(
    "index", [b"", b"\xff", b"[" * 90_000, b'{"version": 0, "runs": []}', b'{"version": 1, "runs": 5}']
)
def test_a_damaged_index_is_made_anew(store, index):
    store.run(False, ("lost",))
    (store.root / overview.INDEX).write_bytes(index)
    store.page()
    assert json.loads((store.root / overview.INDEX).read_text())["runs"][0]["findings"] == {"lost": 2}


@pytest.mark.parametrize("text", ["", "{", "[" * 90_000, '{"valid": "perhaps"}'])
def test_a_run_with_a_damaged_verdict_is_shown_without_one(store, text):
    (store.run() / stores.FINDINGS).write_text(text)
    assert overview.read(store.root)[0].verdict == "not judged"


def test_a_run_with_a_damaged_spec_is_shown_by_its_directory(store):
    run = store.run()
    (run / stores.SPEC).write_text("{")
    (shown,) = overview.read(store.root)
    assert (shown.verdict, shown.started) == ("damaged", "2026-11-01T00:00:00")
    assert run.parent.name in store.page()


def test_only_a_run_with_a_verdict_has_a_report_to_open(store):
    for state in ("running", "interrupted"):
        store.run("none", state=state)
    assert "report.html" not in store.page()
    store.run(True)
    assert store.page().count('report.html"') == 2


def test_a_store_without_runs_says_so(tmp_path):
    assert "No runs yet" in overview.render((), tmp_path)


def test_names_cannot_act_on_the_page(store):
    name = "</script><script>alert(1)</script>"
    store.run(test=name)
    page = store.page()
    assert "<script>alert" not in page
    data = re.search(r'<script type="application/json" id="runs">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(data)[0]["test"] == name


def test_links_and_what_is_no_run_are_left_out(store):
    store.run()
    (store.root / "empty").mkdir()
    (store.root / "file").write_text("x")
    (store.root / "elsewhere").symlink_to(store.root / "nightly")
    assert len(overview.read(store.root)) == 1


def test_only_the_newest_runs_are_shown(store, monkeypatch):
    monkeypatch.setattr(overview, "NEWEST", 2)
    for _ in range(3):
        store.run()
    assert [run.seed for run in overview.read(store.root)] == [3, 2]


def test_a_run_that_was_copied_out_of_a_store_writes_no_page(store, tmp_path):
    run = store.run().rename(tmp_path / "copied")
    files.write(run)
    assert not (tmp_path / stores.OVERVIEW).exists()
    assert not (tmp_path.parent / stores.OVERVIEW).exists()


def test_a_page_that_cannot_be_written_changes_nothing_and_is_told(store, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    run = store.run()
    monkeypatch.setattr(overview, "_replace", full)
    files.write_overview(store.root)
    assert "overview of all runs was not written" in capsys.readouterr().err
    assert run.exists()


def test_a_run_writes_it_and_check_writes_it_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran = [
        "--environment",
        "simulation",
        "--policy",
        "standalone",
        "--time-limit",
        "1",
        "--rate",
        "20",
        "--seed",
        "1",
    ]
    assert cli.run(["test", *ran]) in (0, 2)
    assert f"All runs {stores.DEFAULT / stores.OVERVIEW}\n" in capsys.readouterr().out
    page = tmp_path / stores.DEFAULT / stores.OVERVIEW
    assert "1 run of 1 test" in page.read_text()
    page.unlink()
    assert cli.run(["check", str(stores.DEFAULT)]) in (0, 2)
    assert "1 run of 1 test" in page.read_text()
