"""Topics and subscriptions beside a plain model.

The machine, and parts broken on purpose that it must find.
"""

import subprocess
import sys

import pytest
from mutants.changed import ROOT, grow, variables
from mutants.parts import topics

from broker.core.dropped import Dropped
from stateful.machines import assert_found, budget
from stateful.topic_machine import TopicMachine

SEEN = ("drop-not-durable", "name-made-again-keeps-its-backlog", "send-to-a-topic-in-several-entries")
"""What this machine can see; others are bugs of sessions, or of several brokers."""
KNOWN = {one.name: one for one in topics.MUTANTS}

TestTopics = TopicMachine.TestCase
TestTopics.settings = budget(60, 40)


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.in_turn
def test_the_machine_finds(name, tmp_path):
    """In a process whose broker has the bug."""
    tree = grow(tmp_path, KNOWN[name].replacements)
    code = (
        "from stateful.machines import assert_found; from stateful.topic_machine import TopicMachine; "
        "assert_found(TopicMachine)"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=variables(tree, ROOT / "tests"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]


@pytest.mark.in_turn
def test_a_dropped_queue_of_which_something_stays_is_found(monkeypatch):
    monkeypatch.setattr(Dropped, "look", lambda self, queue: None)
    assert_found(TopicMachine)
