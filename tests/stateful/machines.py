"""How the machines of this directory are run.

How long, how repeatable, and how a broken part is shown to be found.

``JEPSEN_RUN_STATEFUL_FACTOR`` multiplies the examples of every machine, for nights. Where ``CI`` is
set the examples are the same in every run: a red build must mean that something changed.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from broker.storage.errors import JournalError
from stateful.virtual_loop import VirtualLoop

CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def factor():
    """How many times the usual number of examples."""
    text = os.environ.get("JEPSEN_RUN_STATEFUL_FACTOR", "1")
    if not text.isdecimal() or int(text) < 1:
        raise pytest.UsageError(
            f"JEPSEN_RUN_STATEFUL_FACTOR is {text!r}: expected a whole number of at least 1"
        )
    return int(text)


def budget(examples, steps):
    """Settings of a whole machine: ``examples`` walks of at most ``steps`` rules."""
    repeatable = bool(os.environ.get("CI"))
    return settings(
        max_examples=examples * factor(),
        stateful_step_count=steps,
        deadline=None,
        derandomize=repeatable,
        database=None,
        print_blob=not repeatable,
        suppress_health_check=CHECKS,
    )


HUNT = settings(
    max_examples=10_000,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    phases=(Phase.generate,),
    report_multiple_bugs=False,
    suppress_health_check=CHECKS,
)
"""For broken parts: the same walks in every run, and the first one that finds it is enough."""


def assert_found(machine):
    """The machine notices that what it drives is broken.

    By an assertion, its own or the part's, or because a journal cannot be read.

    Any other exception is a mistake of the breaking, not a finding.
    """
    with pytest.raises((AssertionError, JournalError)):
        run_state_machine_as_test(machine, settings=HUNT)


class LoopMachine(RuleBasedStateMachine):
    """A machine with a loop of its own, fresh for each example."""

    def __init__(self):
        super().__init__()
        self.loop = VirtualLoop()

    def complain(self):
        """Nothing may have gone wrong behind the rules' back."""
        assert not self.loop.complaints, self.loop.complaints

    def teardown(self):
        self.loop.discard()
