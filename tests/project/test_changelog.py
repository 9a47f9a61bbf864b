"""The changelog is short, and its links lead to pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## \[([^]]+)\][^\n]*\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
VERSIONS = [name for name in SECTIONS if name != "Unreleased"]
BULLETS_MAX = 40


def test_the_newest_version_comes_first():
    assert next(iter(SECTIONS)) == "Unreleased"
    numbers = [tuple(map(int, name.split("."))) for name in VERSIONS]
    assert numbers
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_has_few_bullets_of_two_sentences_at_most(version):
    bullets = [line[2:] for line in SECTIONS[version].splitlines() if line.startswith("- ")]
    assert 0 < len(bullets) <= BULLETS_MAX
    for bullet in bullets:
        assert len(re.findall(r"[.!?](?= [A-Z`\[*]|$)", bullet)) <= 2, bullet


def test_each_link_leads_to_a_page():
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", TEXT)
    assert linked
    assert [path for path in linked if not (ROOT / path).exists()] == []
