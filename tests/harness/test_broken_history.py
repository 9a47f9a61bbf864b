"""A stored run whose history is none.

One line that names file, row and cause, exit status 254, and the other runs of a batch are judged.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers import api
from checkers.java import NoJavaError
from harness.commands import cli
from harness.history import judge, parquet
from harness.history import store as stores


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """One run of the simulation, valid."""
    root = tmp_path_factory.mktemp("store")
    command = ["--environment", "simulation", "--policy", "replication", "--nemesis", "kill", "--time-limit",
               "4", "--rate", "20", "--seed", "3"]  # fmt: skip
    assert cli.run([*command, "--store", str(root)]) == 0
    return next(path.parent for path in root.rglob(stores.SPEC) if not path.parent.is_symlink())


@pytest.fixture
def batch(run, tmp_path) -> Path:
    """Three copies of it."""
    for name in "abc":
        shutil.copytree(run, tmp_path / name)
    return tmp_path


def part_of(store: Path) -> Path:
    return min((store / parquet.DIRECTORY).glob("part-*.parquet"))


def edit(store: Path, column: str, nth: int, value: object) -> int:
    """Another value in one row of a part; its index."""
    rows = pq.read_table(part_of(store))
    plain = pa.schema([pa.field(f.name, f.type) for f in rows.schema])  # so that anything may be null
    values = rows.to_pylist()
    index = values[nth]["index"]
    values[nth][column] = value
    pq.write_table(pa.Table.from_pylist(values, schema=plain), part_of(store))
    return int(index)


def check(capsys, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = cli.run(["check", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def jvms(monkeypatch) -> list[str | None]:
    """For which masters Spark was asked to start; it cannot."""
    asked: list[str | None] = []

    def start(master: str | None = None) -> None:
        asked.append(master)
        raise NoJavaError("no Java here")

    monkeypatch.setattr(api, "start", start)
    return asked


def rows_of(store: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in (store / parquet.DIRECTORY).glob("*.parquet"))


def test_a_small_history_is_judged_without_a_jvm_and_that_is_said_in_one_line(run, capsys, jvms):
    status, out, err = check(capsys, str(run))
    assert (status, jvms, err) == (0, [], "")
    line = f"judging {rows_of(run):,} rows in this process (--spark-master judges on Spark)"
    assert out.splitlines().count(line) == 1
    status, out, err = check(capsys, str(run), "--json")
    assert (status, jvms) == (0, [])
    assert line in err
    assert json.loads(out)["exit-status"] == 0


def test_whoever_judges_again_gets_its_reports_again(batch, capsys):
    names = (stores.REPORT, "junit.xml")
    for name in names:
        (batch / "a" / name).unlink()
    assert check(capsys, str(batch / "a"))[0] == 0
    assert all((batch / "a" / name).is_file() for name in names)


def test_a_large_history_and_one_for_which_a_master_is_named_are_judged_by_spark(
    run, capsys, jvms, monkeypatch
):
    status, out, err = check(capsys, str(run), "--spark-master", "local[1]")
    assert (status, jvms) == (2, ["local[1]"])
    assert f"judging {rows_of(run):,} rows on Spark" in out
    assert "jepsen-run: unknown: no Java here" in err
    monkeypatch.setattr(api, "HERE_ROWS", rows_of(run))
    assert check(capsys, str(run))[0] == 0
    monkeypatch.setattr(api, "HERE_ROWS", rows_of(run) - 1)
    status, out, _ = check(capsys, str(run))
    assert (status, jvms) == (2, ["local[1]", None])
    assert f"judging {rows_of(run):,} rows on Spark" in out


def test_a_null_type_in_one_run_loses_no_other_of_a_batch(batch, capsys):
    index = edit(batch / "b", "type", 5, None)
    status, out, err = check(capsys, str(batch), "--json")
    assert status == 254
    document = json.loads(out)
    assert document["exit-status"] == 254
    assert [one.get("verdict", {}).get("valid") for one in document["runs"]] == [True, None, True]
    line = f"{part_of(batch / 'b').resolve()}: row {index}: type is null"
    assert [one["error"] for one in document["runs"] if "error" in one] == [line]
    assert f"jepsen-run: {line}" in err.splitlines()


def test_a_finding_in_another_run_is_graver(batch, capsys):
    edit(batch / "a", "type", 5, None)
    rows = pq.read_table(part_of(batch / "c")).to_pylist()
    nth = next(n for n, row in enumerate(rows) if row["f"] == "deliver")
    edit(batch / "c", "digest", nth, 1)
    status, out, _ = check(capsys, str(batch))
    assert status == 1
    assert "3 runs: 1 valid, 1 invalid, 1 unusable" in out


def test_an_unknown_run_is_less_grave(batch, capsys):
    edit(batch / "a", "type", 5, None)
    record = stores.load_run(batch / "b")
    stores.save(batch / "b", stores.RUN, msgspec.structs.replace(record, trouble="the machine was slow"))
    status, out, _ = check(capsys, str(batch))
    assert status == 254
    assert "3 runs: 1 valid, 1 unknown, 1 unusable" in out


def test_rows_that_were_cut_out_are_no_finding_about_the_broker(batch, capsys):
    part = part_of(batch / "a")
    rows = pq.read_table(part)
    pq.write_table(pa.concat_tables([rows.slice(0, 20), rows.slice(30)]), part)
    marker = part.parent / parquet.MARKER
    told = json.loads(marker.read_bytes())
    told["files"][part.name] -= 10
    marker.write_text(json.dumps(told))
    status, _, err = check(capsys, str(batch / "a"))
    assert status == 254
    assert f"row {rows['index'][20].as_py()}: there is no row of this index: rows were cut out" in err
    assert len(err.splitlines()) == 1


def test_a_marker_of_another_version_is_refused(batch, capsys):
    marker = batch / "a" / parquet.DIRECTORY / parquet.MARKER
    marker.write_text(marker.read_text().replace('"version": 1', '"version": 2'))
    status, _, err = check(capsys, str(batch / "a"))
    assert (status, err) == (
        254,
        f"jepsen-run: {marker}: the history has version 2, but this program reads version 1\n",
    )


def test_a_part_file_that_is_there_twice_is_refused(batch, capsys):
    part = part_of(batch / "a")
    shutil.copy(part, part.with_name("part-00007.parquet"))
    status, _, err = check(capsys, str(batch / "a"))
    extra = part.with_name("part-00007.parquet")
    assert (status, err) == (
        254,
        f"jepsen-run: {extra} does not belong to this history: {parquet.MARKER} does not name it\n",
    )


def test_files_that_are_not_as_their_marker_says_are_named(batch, capsys):
    part = part_of(batch / "a")
    marker = part.with_name(parquet.MARKER)
    rows = pq.read_table(part)
    pq.write_table(rows.slice(10), part)
    said = [check(capsys, str(batch / "a"))]
    part.write_bytes(b"no Parquet")
    said.append(check(capsys, str(batch / "a")))
    part.unlink()
    said.append(check(capsys, str(batch / "a")))
    marker.write_text("{")
    said.append(check(capsys, str(batch / "a")))
    assert [(status, len(err.splitlines())) for status, _, err in said] == [(254, 1)] * 4
    few = (
        f"{part} has {len(rows) - 10} rows, and {parquet.MARKER} says {len(rows)}: rows are missing "
        "or were added"
    )
    for (_, _, err), words in zip(
        said,
        (few, f"{part} cannot be read", f"{part} cannot be read", f"{marker} cannot be read"),
        strict=True,
    ):
        assert err.startswith(f"jepsen-run: {words}")


def test_a_marker_that_is_no_text_is_an_error_of_usage(batch, capsys):
    (batch / "a" / parquet.DIRECTORY / parquet.MARKER).write_bytes(
        b'{"version": 1, "rows": 1, "files": {"\xff": 1}}'
    )
    status, _, complaint = check(capsys, str(batch / "a"))
    assert status == judge.USAGE
    assert f"{parquet.MARKER} cannot be read: 'utf-8' codec can't decode" in complaint
