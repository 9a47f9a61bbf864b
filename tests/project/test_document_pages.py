"""The pages that go through a source document name only what exists."""

import re
from pathlib import Path

import click
import pytest

from broker import ctl
from harness.claims.scenarios import registry

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES = ("sun-mq-clusters", "sun-mq-conventional", "java-mq-conventional")
ROWS = {each.row for each in registry.chosen([])}


def unknown_in(text):
    """Return what a page names and nobody has: properties, commands, options of tests and rows."""
    properties = (REFERENCE / "broker-properties.md").read_text()
    options = (REFERENCE / "command-line.md").read_text()
    for span in re.findall(r"`([^`]+)`", text):
        if span.startswith("brokerctl "):
            if not is_command(span.split()[1:]):
                yield span
        elif span.startswith("--"):
            if not re.search(rf"{re.escape(span)}\b(?!-)", options):
                yield span
        elif (
            re.fullmatch(r"[a-z][a-z-]*(\.[a-z#-]+)+", span)
            and not span.startswith(("imq.", "stomp_protocol"))
            and f"| `{span.replace('.#.', '.MATCH.')}` |" not in properties
            and f"## {span}\n" not in properties
        ):
            yield span
    yield from (row for row in re.findall(r"\b(?:CV|HA)\d+\b", text) if row not in ROWS)


def is_command(words):
    command = ctl.command
    for word in words:
        if isinstance(command, click.Group):
            if word not in command.commands:
                return False
            command = command.commands[word]
        elif word.startswith("--") and not any(
            word in option.opts + option.secondary_opts for option in command.params
        ):
            return False
    return not isinstance(command, click.Group)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_on_a_document_names_only_what_exists(page):
    assert [*unknown_in((REFERENCE / f"{page}.md").read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        "`ha-policy.conventional.broker-lists`", "`brokerctl reloads cls`", "`brokerctl database`",
        "`brokerctl stop --nofailover`", "`--client-brokrs`", "CV99",
    ],
)  # fmt: skip
def test_what_does_not_exist_is_noticed(text):
    assert [*unknown_in(text)] == [text.strip("`")]
