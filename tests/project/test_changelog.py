"""The changelog and the changes that are not released are short; their links lead to pages."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## \[([^]]+)\][^\n]*\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
VERSIONS = [*SECTIONS]
BULLETS_MAX = 40
SENTENCES_MAX = 2
CHANGES = [path for path in sorted((ROOT / "changes").iterdir()) if path.name != "README.md"]
TYPES = {
    each["directory"]
    for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
}


def sentences(text):
    return len(re.findall(r"[.!?](?= [A-Z`\[*]|$)", text))


def test_the_newest_version_comes_first():
    assert "Unreleased" not in VERSIONS, "a change is a file in changes/: CONTRIBUTING.md"
    numbers = [tuple(map(int, name.split("."))) for name in VERSIONS]
    assert numbers
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_has_few_bullets_of_two_sentences_at_most(version):
    bullets = [line[2:] for line in SECTIONS[version].splitlines() if line.startswith("- ")]
    assert 0 < len(bullets) <= BULLETS_MAX
    for bullet in bullets:
        assert sentences(bullet) <= SENTENCES_MAX, bullet


@pytest.mark.parametrize("change", CHANGES, ids=lambda path: path.name)
def test_a_change_is_one_line_of_a_type_that_the_changelog_has(change):
    name = re.fullmatch(r"(\+[a-z0-9-]+|\d+)\.([a-z]+)\.md", change.name)
    assert name, "a change is named +NAME.TYPE.md"
    assert name[2] in TYPES
    text = change.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert text.count("\n") == 1
    assert 1 <= sentences(text.strip()) <= SENTENCES_MAX


def test_each_link_leads_to_a_page():
    texts = [TEXT, *(change.read_text(encoding="utf-8") for change in CHANGES)]
    linked = [path for text in texts for path in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)]
    assert linked
    assert [path for path in linked if not (ROOT / path).exists()] == []
