"""A temporary queue that was taken over waits for its owner, and for no other client."""

import asyncio

from broker.core.transient import TransientQueues, tagged

OWNER = ("tester", "asker")


class Named:
    """A queue, of which only the name matters, and whether it was deleted."""

    def __init__(self, name):
        self.name = name
        self.dropped = False


def queue(*, client=OWNER):
    return Named(f"/remote-temp-queue/node.session-1-{tagged('5ec4e7', client, 'answers')}")


def test_only_the_owner_takes_the_queue_and_only_once():
    async def scenario():
        kept, nameless = queue(), queue(client=("tester", ""))
        transient = TransientQueues(60.0, None)
        assert transient.keep(kept)
        assert transient.keep(nameless)
        for client, name in [(("other", "asker"), "answers"), (("tester", ""), "answers"), (OWNER, "other")]:
            assert transient.take(client, name) is None
        assert transient.take(OWNER, "answers") is kept
        assert transient.take(OWNER, "answers") is None
        transient.stop()

    asyncio.run(scenario())


def test_a_queue_whose_owner_stays_away_ends_after_the_wait():
    async def scenario():
        kept, taken, ended = queue(), queue(client=("tester", "early")), []
        transient = TransientQueues(0.01, ended.append)
        assert transient.keep(kept)
        assert transient.keep(taken)
        assert transient.take(("tester", "early"), "answers") is taken
        await asyncio.sleep(0.05)
        assert ended == [kept]
        assert transient.take(OWNER, "answers") is None

    asyncio.run(scenario())


def test_a_queue_that_was_deleted_meanwhile_is_not_ended_again_nor_given_to_its_owner():
    async def scenario():
        kept, again, ended = queue(), queue(), []
        transient = TransientQueues(0.01, ended.append)
        assert transient.keep(kept)
        kept.dropped = True
        assert transient.take(OWNER, "answers") is None
        assert transient.keep(again)
        assert transient.take(OWNER, "answers") is again
        await asyncio.sleep(0.05)
        assert not ended

    asyncio.run(scenario())


def test_other_queues_are_not_kept_and_without_a_wait_none_is():
    assert not TransientQueues(60.0, None).keep(Named("/topic/t::name"))
    assert not TransientQueues(0.0, None).keep(queue())
