"""Texts that no person writes: values within values without end, and keys of countless parts.

Each is refused in one line by whoever reads such a file, as wrong usage and not as a bug of ours.
"""

from __future__ import annotations

import pytest

from environments.attached import cluster
from environments.ssh import hosts
from harness.commands import cli
from harness.history import judge, known
from harness.history import store as stores
from harness.history.spec import parse_property
from harness.interface import UsageError
from harness.interface.texts import MOST_PARTS, toml_table
from nemesis import schedule

DEEP = 90_000
DEEP_LIST = "[" * DEEP + "]" * DEEP
DEEP_TABLES = "{b = " * 5_000 + "1" + "}" * 5_000
LONG_KEY = ".".join(["a"] * 10_000)
"""Enough that tomllib would take half a gigabyte, not so many that it would end the machine."""


@pytest.mark.parametrize("load", [known.load, hosts.load, cluster.load])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"a = {DEEP_LIST}", "values within values, too deep to be read"),
        (f"a = {DEEP_TABLES}", "values within values, too deep to be read"),
        (f"{LONG_KEY} = 1", "a key has more than 50 parts"),
        (f"[{LONG_KEY}]", "a key has more than 50 parts"),
        (f"a = {{{LONG_KEY.replace('.', ' . ')} = 1}}", "a key has more than 50 parts"),
        (f"{LONG_KEY.replace('a', chr(34) * 2)} = 1", "a key has more than 50 parts"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_toml_file_that_cannot_be_read_is_told_in_one_line(tmp_path, load, text, problem):
    path = tmp_path / "given.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"given\.toml is not TOML: {problem}$"):
        load(path)


def test_keys_of_as_many_parts_as_anybody_writes_are_read():
    parts = [f"part-{number}" for number in range(MOST_PARTS)]
    table = toml_table(".".join(parts) + " = 1")
    for part in parts:
        table = table[part]
    assert table == 1


def test_a_schedule_that_cannot_be_read_is_told_in_one_line(tmp_path):
    path = tmp_path / "given.json"
    path.write_text(f'{{"faults": [{{"kind": "kill", "start-s": 1, "options": {{"a": {DEEP_LIST}}}}}]}}')
    with pytest.raises(UsageError, match="is no schedule: values within values, too deep to be read"):
        schedule.load(path)


@pytest.mark.parametrize("words", [["test", "--spec"], ["search", "--spec"]])
def test_a_spec_that_cannot_be_read_is_wrong_usage(tmp_path, capsys, words):
    path = tmp_path / "spec.json"
    path.write_text(f'{{"properties": {{"*": {{"a": {DEEP_LIST}}}}}}}')
    assert cli.run([*words, str(path)]) == judge.USAGE
    assert capsys.readouterr().err.splitlines() == [
        f"jepsen-run: {path} is not JSON: values within values, too deep to be read"
    ]


def test_a_stored_run_that_cannot_be_read_is_wrong_usage(tmp_path):
    (tmp_path / stores.SPEC).write_text(f'{{"properties": {{"*": {{"a": {DEEP_LIST}}}}}}}')
    with pytest.raises(UsageError, match="too deep"):
        stores.load_spec(tmp_path)


def test_a_property_that_cannot_be_read_is_wrong_usage():
    with pytest.raises(UsageError, match="too deep"):
        parse_property(f"*:a={DEEP_LIST}")
