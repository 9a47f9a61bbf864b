"""Each bug in docs/bugs/README.md has an address of its own and a regression test that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/bugs/README.md"
ROWS = re.findall(r'^\| <a id="bug-(\d+)"></a>(\d+) \|(.*)$', PAGE.read_text(encoding="utf-8"), re.MULTILINE)
LINK = re.compile(r'\]\(([^) ]+)(?: "([^"]*)")?\)')
REFERENCE = re.compile(r"bugs/README\.md#bug-(\d+)")


def test_each_number_has_one_row():
    numbers = [number for number, _, _ in ROWS]
    assert numbers
    assert [shown for _, shown, _ in ROWS] == numbers
    assert len(set(numbers)) == len(numbers)


def test_each_address_of_a_bug_leads_to_a_row():
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    named = {number for page in pages for number in REFERENCE.findall(page.read_text(encoding="utf-8"))}
    assert named
    assert named <= {number for number, _, _ in ROWS}


@pytest.mark.parametrize(("number", "cells"), [(number, cells) for number, _, cells in ROWS])
def test_a_bug_has_a_regression_test_that_exists(number, cells):
    tests = LINK.findall(cells.split("|")[-2])
    assert tests
    for path, name in tests:
        file = PAGE.parent / path
        assert file.is_file(), path
        if name:  # a test function, or the name of a case in a table of cases
            searched = f"def {name}(" if name.startswith("test_") else name
            assert searched in file.read_text(encoding="utf-8"), (path, name)
        else:
            assert file.suffix == ".py" or file.name.startswith(f"{int(number):04}-")
