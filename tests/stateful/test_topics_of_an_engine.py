"""Topics and subscriptions beside a plain model.

The machine, and parts broken on purpose that it must find.
"""

from broker.core import recovery
from broker.core.engine import Engine
from stateful.machines import assert_found, budget
from stateful.topic_machine import TopicMachine

TestTopics = TopicMachine.TestCase
TestTopics.settings = budget(150, 50)


def test_a_drop_that_is_not_journalled_is_found(monkeypatch):
    ending = Engine._ending

    def forgetful(self, queue):
        operations = ending(self, queue)
        return [] if queue.dropped else operations

    monkeypatch.setattr(Engine, "_ending", forgetful)
    assert_found(TopicMachine)


def test_a_name_that_keeps_what_the_old_one_had_is_found(monkeypatch):
    drop = recovery.Image.drop

    def kept(self, queue_id):
        """A start that finds the new record takes the old one's messages for its own."""
        if self.subscriptions[queue_id].durable:
            return
        drop(self, queue_id)

    monkeypatch.setattr(recovery.Image, "drop", kept)
    assert_found(TopicMachine)


def test_a_send_in_several_entries_is_found(monkeypatch):
    def one_by_one(self, holders, message, done):
        sequence = self.journal.last_sequence
        for holder in holders:
            operations, places = self._stored((holder,), message.copy())
            sequence = self.journal.append(operations)
            self.gate.when_durable(sequence, lambda places=places: [q.arrive(one) for q, one in places])
        return sequence

    monkeypatch.setattr(Engine, "_send_to_all", one_by_one)
    assert_found(TopicMachine)


def test_a_dropped_queue_of_which_something_stays_is_found(monkeypatch):
    from broker.core.dropped import Dropped

    monkeypatch.setattr(Dropped, "look", lambda self, queue: None)
    assert_found(TopicMachine)
