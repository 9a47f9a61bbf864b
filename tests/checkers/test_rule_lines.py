"""Small histories that each need a line of a rule: without it something else is found.

``rule_lines.jsonl`` has one a line: its rows, the promises under which it is judged, what is found,
and ``needed_by``, the lines (module, function, and what was removed) that the history was kept for.
``bench.rule_mutants`` finds and keeps them; docs/results/2026-11-26-rule-mutants.md tells how.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.agreement import IMPATIENT, by_reference, on_columns
from checkers.instance import Instance
from checkers.verdict import CheckOptions, Promises

FILE = Path(__file__).parent / "rule_lines.jsonl"


@dataclass(frozen=True)
class Kept:
    """A history, how to judge it, and what is found in it."""

    needed_by: Sequence[str]
    options: CheckOptions
    rows: Sequence[dict[str, Any]]
    found: Sequence[str]


def kept(line: str) -> Kept:
    one = json.loads(line)
    promises = Promises(**one["promises"])
    options = msgspec.structs.replace(IMPATIENT, guarantee=one["guarantee"], broker=promises)
    rows = [{"index": index, **row} for index, row in enumerate(one["rows"])]
    return Kept(one["needed_by"], options, rows, one["found"])


def in_words(found: Iterable[Instance]) -> list[str]:
    """Return each finding as its name and the rest of what it says."""
    return sorted(
        " ".join(
            f"{name}={value}"
            for name, value in (
                ("name", one.name), ("queue", one.queue), ("group", one.group),
                ("message", one.message), ("index", one.index), ("key", one.key),
            )
            if value is not None
        ).removeprefix("name=")
        for one in found
    )  # fmt: skip


KEPT = [kept(line) for line in FILE.read_text().splitlines()]


@pytest.mark.parametrize("one", KEPT, ids=[one.needed_by[0] for one in KEPT])
def test_both_implementations_need_the_line(one):
    assert in_words(on_columns([one.rows], one.options, 1, excuses=True)[0]) == one.found
    assert in_words(by_reference(one.rows, one.options, excuses=True)) == one.found
