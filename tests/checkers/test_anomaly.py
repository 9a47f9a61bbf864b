"""The table of anomalies: complete, and told in the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkers import words
from checkers.anomaly import ANOMALIES, looked_for, named, rank, severity
from checkers.instance import Instance
from checkers.verdict import GUARANTEES, CheckOptions, Promises

VERDICTS = (Path(__file__).parents[2] / "docs" / "explanation" / "verdicts.md").read_text()
DOCUMENTED = {
    "**always**": ("grave", "grave", "grave"),
    "**unless at-most-once** (warning)": ("warning", "grave", "grave"),
    "**unless at-least-once** (warning)": ("grave", "warning", "grave"),
    "**unless at-least-once** (not reported, only counted)": ("grave", None, "grave"),
    "never (warning)": ("warning", "warning", "warning"),
    "never (info)": ("info", "info", "info"),
}
"""The severity under each guarantee that the words of the document's table mean."""


@pytest.mark.parametrize("anomaly", ANOMALIES, ids=lambda anomaly: anomaly.name)
def test_every_anomaly_is_in_the_document_and_has_a_sentence_even_without_a_witness(anomaly):
    assert anomaly.name in VERDICTS
    assert anomaly.rule.endswith(".")
    for message in (7, None):
        instance = Instance(anomaly.name, "q", "g", message, 5, "node a1 a2")
        assert words.sentence(instance, 2, (), {}).endswith(" (the first of 2).")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_table_of_the_document_has_every_anomaly_in_order_with_its_severity(guarantee):
    table = re.findall(r"^\| \[([a-z-]+)\]\(#\1\) \| [^|]+ \| ([^|]+) \|$", VERDICTS, re.MULTILINE)
    assert [name for name, _ in table] == [anomaly.name for anomaly in ANOMALIES]
    for name, words_ in table:
        said = DOCUMENTED[words_][GUARANTEES.index(guarantee)]
        reported = name in looked_for(CheckOptions(guarantee=guarantee))
        assert said == (severity(name, CheckOptions(guarantee=guarantee)) if reported else None), name
        assert f"\n### {name}\n" in VERDICTS, name


def test_causes_are_told_before_what_follows_from_them_and_strange_names_last():
    assert sorted(["of another version", "unavailable", "duplicate", "split-brain"], key=rank) == [
        "split-brain", "duplicate", "unavailable", "of another version",
    ]  # fmt: skip


def test_a_second_delivery_is_looked_for_only_where_it_is_not_allowed():
    assert "redelivery" not in looked_for(CheckOptions())
    assert "redelivery" in looked_for(CheckOptions(guarantee="exactly-once"))


def test_where_no_groups_are_promised_their_findings_are_told_and_no_more():
    theirs = {"group-split", "reordered", "reordered-realtime", "reordered-session", "not-linearizable"}
    for anomaly in ANOMALIES:
        usual = severity(anomaly.name, CheckOptions())
        without = severity(anomaly.name, CheckOptions(broker=Promises(groups=False)))
        assert without == ("info" if anomaly.name in theirs else usual), anomaly.name


def test_where_two_brokers_may_have_a_message_its_two_holders_are_told_and_no_more():
    theirs = {"double-delivery", "group-split"}
    for anomaly in ANOMALIES:
        usual = severity(anomaly.name, CheckOptions())
        without = severity(anomaly.name, CheckOptions(broker=Promises(single=False)))
        assert without == ("info" if anomaly.name in theirs else usual), anomaly.name


def test_where_transactions_are_batches_a_torn_one_is_told_and_no_more():
    for anomaly in ANOMALIES:
        usual = severity(anomaly.name, CheckOptions())
        without = severity(anomaly.name, CheckOptions(broker=Promises(atomic=False)))
        of_transactions = anomaly.name in ("torn-transaction", "wrong-total")
        assert without == ("info" if of_transactions else usual), anomaly.name


def test_faults_excuse_only_what_may_be_excused():
    assert severity("unavailable", CheckOptions(), excused=True) == "warning"
    assert severity("lost", CheckOptions(), excused=True) == "grave"
    assert named("of another version").rule == ""
