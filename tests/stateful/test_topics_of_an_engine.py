"""Topics and subscriptions beside a plain model.

The machine, and parts broken on purpose that it must find.
"""

import subprocess
import sys

import pytest
from mutants.parts import topics

from broker.core.dropped import Dropped
from harness.claims.changed import ROOT, grow, variables
from stateful.machines import assert_found, budget
from stateful.topic_machine import TopicMachine

TestTopics = TopicMachine.TestCase
TestTopics.settings = budget(60, 40)


@pytest.mark.parametrize("mutant", topics.MUTANTS, ids=lambda mutant: mutant.name)
def test_the_machine_finds(mutant, tmp_path):
    """In a process whose broker has the bug."""
    tree = grow(tmp_path, mutant.replacements)
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


def test_a_dropped_queue_of_which_something_stays_is_found(monkeypatch):
    monkeypatch.setattr(Dropped, "look", lambda self, queue: None)
    assert_found(TopicMachine)
