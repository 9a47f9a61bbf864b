"""The table of a sweep counts what could have been seen, with Wilson's interval, and names the
worst runs.
"""

import math

import pytest

from harness.explore import plans
from harness.explore.plans import Cell
from harness.explore.sweep import page, sweep
from harness.explore.sweep import table as sweep_table
from harness.history import store as stores
from harness.report import overview


@pytest.mark.parametrize(
    ("seen", "of", "low", "high"),
    [
        # Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
        # Medicine 17 (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_wilsons(seen, of, low, high):
    assert sweep_table.wilson(seen, of) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_the_interval_is_bounded_symmetric_and_narrower_with_more_runs():
    assert sweep_table.wilson(0, 0) == (0.0, 1.0)
    for of in (1, 2, 7, 100, 10_000):
        for seen in {0, 1, of // 3, of // 2, of}:
            low, high = sweep_table.wilson(seen, of)
            assert 0 <= low <= seen / of <= high <= 1
            assert sweep_table.wilson(of - seen, of) == (pytest.approx(1 - high), pytest.approx(1 - low))
            # The bounds are where the score test of the rate just does not refuse what was seen.
            for bound in (low, high):
                if 0 < bound < 1:
                    score = (seen / of - bound) / math.sqrt(bound * (1 - bound) / of)
                    assert abs(score) == pytest.approx(sweep_table.Z)
    widths = [high - low for low, high in (sweep_table.wilson(n, 2 * n) for n in (1, 10, 100, 1000))]
    assert widths == sorted(widths, reverse=True)


def run_row(number, **fields):
    values = {
        "number": number,
        "cell": Cell(policy="p", nemesis="n"),
        "ended": "valid",
        "findings": {},
        "grave": (),
        "trouble": None,
        "seed": 0,
        "faults": 1,
        "digest": "",
        "bit": True,
        "exposed": True,
        "complete": True,
        **fields,
    }
    return sweep_table.SweptRun(**values)


def test_an_anomaly_is_counted_only_where_it_could_have_been_seen():
    runs = [
        run_row(0, ended="invalid", findings={"lost": 3, "zombie": 1}, grave=("lost", "zombie")),
        run_row(1),
        run_row(2, ended="invalid", complete=False, findings={"zombie": 1}, grave=("zombie",)),
        run_row(3, ended="unknown", exposed=False, bit=False),
        run_row(4, ended="crashed", exposed=False, bit=False, complete=False),
    ]
    (row,) = sweep_table.rows(runs, [Cell(policy="p", nemesis="n")])
    rates = {name: (rate.seen, rate.of) for name, rate in row.anomalies.items()}
    assert rates == {sweep_table.ANY: (2, 3), "lost": (1, 2), "zombie": (2, 3)}
    assert (row.runs, row.valid, row.invalid, row.unknown, row.crashed, row.bit) == (5, 1, 2, 1, 1, 3)


def test_a_cell_without_a_run_that_says_anything_has_no_rate():
    (row,) = sweep_table.rows([run_row(0, ended="unknown", exposed=False)], [Cell(policy="p", nemesis="n")])
    rate = row.anomalies[sweep_table.ANY]
    assert (rate.rate, rate.low, rate.high) == (None, 0.0, 1.0)
    assert sweep_table.text([row]).splitlines() == [
        "policy  nemesis  runs  bit  unknown  anomaly    seen  rate  95 % interval",
        "p       n           1    1        1  any grave   0/0     -              -",
    ]


def test_releases_are_told_apart_and_what_is_accepted_of_one_and_not_seen_there_is_shown():
    old, new = (Cell(policy="p", nemesis="n", release=release) for release in ("2.44.0", "2.56.0"))
    lost = {"ended": "invalid", "grave": ("lost",), "findings": {"lost": 1, "duplicate": 1}}
    runs = [run_row(0, cell=old, **lost), run_row(1, cell=old), run_row(2, cell=new)]
    accepted = {old: ["lost"], new: ["lost", "duplicate"]}
    table = sweep_table.rows(runs, [old, new], accepted.get)
    assert sweep_table.text(table).splitlines() == [
        "policy  nemesis  release  runs  bit  unknown  anomaly                 seen   rate  95 % interval",
        "p       n        2.44.0      2    2        0  any grave                1/2  50.0%  9.5% to 90.5%",
        "                                              lost (known)             1/2  50.0%  9.5% to 90.5%",
        "                                              duplicate (allowed)      1/2  50.0%  9.5% to 90.5%",
        "p       n        2.56.0      1    1        0  any grave                0/1   0.0%  0.0% to 79.3%",
        "                                              lost (known, not seen)   0/1   0.0%  0.0% to 79.3%",
    ]


def test_the_worst_are_the_gravest_with_the_fewest_faults_one_of_each_cause():
    other = Cell(policy="p", nemesis="m")
    runs = [
        run_row(0, ended="invalid", grave=("zombie",), findings={"zombie": 1}, faults=1),
        run_row(
            1,
            ended="invalid",
            grave=("split-brain", "zombie"),
            findings={"split-brain": 1, "zombie": 1},
            faults=4,
        ),
        run_row(2, ended="invalid", grave=("split-brain",), findings={"split-brain": 1}, faults=2),
        run_row(3, ended="invalid", grave=("lost",), findings={"lost": 1}, faults=2, cell=other),
        run_row(4),
    ]
    assert [run.number for run in sweep_table.worst(runs, 10)] == [2, 3, 0]
    assert [run.number for run in sweep_table.worst(runs, 2)] == [2, 3]


def page_of(root, *swept):
    """The page of a sweep in a store, and that of all runs; run 0 is kept with its report."""
    store = stores.create(root, "sweep-<b>")
    kept = store / "worst" / "run-000000"
    kept.mkdir(parents=True)
    (kept / stores.REPORT).write_text("")
    plan = plans.sweep_plan({"seed": 5}, len(swept))
    outcome = sweep.Sweep(
        exit_status=1, store=str(store), plan=plan, ended=sweep_table.ended(swept),
        table=sweep_table.rows(swept, [Cell(policy="p", nemesis="n")]), worst=(), runs=swept,
    )  # fmt: skip
    stores.save(store, stores.SWEEP_TABLE, outcome)
    path = page.write(store, outcome, {0: kept, 1: store / "nowhere"})
    return path.read_text(), overview.write(root).read_text()


def test_the_page_has_the_intervals_and_links_the_runs_that_are_kept(tmp_path):
    text, all_runs = page_of(
        tmp_path / "store",
        run_row(0, ended="invalid", findings={"lost": 3}, grave=("lost",)),
        run_row(1, ended="unknown", exposed=False, trouble="<script>\nmore"),
        run_row(2),
    )
    assert text.count('href="worst/run-000000/report.html"') == text.count(">report</a>") == 1
    assert "1/2" in text
    assert "9.5 % to 90.5 %" in text
    assert "left: 9.5%; width: 81.1%" in text
    assert "&lt;script&gt;</td>" in text
    assert "1 valid run is not listed" in text
    assert 'href="../../index.html"' in text
    assert '/table.html">sweep-' in all_runs
    assert "<b>" not in all_runs
    assert "1 sweep</h1>" in all_runs


def test_a_damaged_table_of_a_sweep_spoils_no_page_of_all_runs(tmp_path):
    page_of(tmp_path / "store", run_row(0))
    (tmp_path / "store" / "latest" / stores.SWEEP_TABLE).write_text("{")
    assert "table.html" not in overview.write(tmp_path / "store").read_text()
