"""The replication conversation in one process.

What a backup may be served from, and what a live may answer.
"""

import asyncio
import random
from types import SimpleNamespace

import pytest
from pair import Pair, until

from broker.cluster import messages as m
from broker.cluster.quorum import session_name
from broker.policies.replication.backup import BackupRole
from broker.policies.replication.ballots import Ballots
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume


def run(scenario):
    asyncio.run(scenario())


def test_a_backup_gets_what_was_there_and_what_comes():
    async def scenario():
        async with Pair() as pair:
            for _ in range(50):
                pair.send()
            pair.begin()
            for _ in range(50):
                pair.send()
                await asyncio.sleep(0)
            await until(lambda: pair.follower.up_to_date, "up to date")
            pair.send()
            await until(lambda: len(pair.answered) == 101, "all are answered")
            assert pair.copy.synced == pair.journal.last_sequence

    run(scenario)


@pytest.mark.parametrize("seed", range(25))
def test_wherever_the_connection_breaks_a_copy_that_may_be_served_has_all_that_was_answered(seed):
    """The live dies at a random moment.

    If the backup may take over, everything answered so far is on its disk.
    """

    async def scenario():
        chance = random.Random(seed)
        async with Pair() as pair:
            for _ in range(chance.randrange(200)):
                pair.send(chance.randrange(3000))
            pair.begin()
            for _ in range(chance.randrange(60)):
                for _ in range(chance.randrange(4)):
                    pair.send(chance.randrange(300))
                await asyncio.sleep(chance.choice((0, 0, 0.001)))
            answered = list(pair.answered)
            pair.live_link.abort("killed")
            assert pair.answered == answered
            ending = await pair.follower.ended
            assert ending.kind == "lost"
            if ending.up_to_date:
                assert pair.copy.synced >= max(answered, default=0)
                await pair.follower.close()
                journal, recovered = await Journal.open(pair.volume, "journal")
                assert len(recovered.records) >= len(answered)
                await journal.close()

    run(scenario)


def test_a_lost_backup_is_told_before_anything_more_is_answered():
    async def scenario():
        async with Pair() as pair:
            pair.begin()
            await until(lambda: pair.follower.up_to_date, "up to date")
            pair.backup_link.abort("gone")
            pair.send()
            await until(lambda: pair.endings, "the live notices")
            await pair.journal.flush()
            assert pair.answered == []
            assert pair.gate.held

    run(scenario)


def test_an_acknowledgement_that_comes_after_the_lease_is_not_answered():
    """A process that was stopped finds old acknowledgements in its sockets.

    They may be of a backup that took over since.
    """

    async def scenario():
        async with Pair() as pair:
            pair.begin()
            await until(lambda: pair.follower.up_to_date, "up to date")
            pair.live_link.confirmed -= pair.patience_s
            pair.send()
            await pair.journal.flush()
            pair.feed._take(m.Acknowledgement(pair.journal.last_sequence))
            assert pair.suspicions == 1
            assert pair.answered == []

    run(scenario)


def test_a_copy_that_is_complete_may_not_be_served_before_the_live_says_so():
    """Between the two the live answers without it."""

    async def scenario():
        async with Pair() as pair:
            pair.begin()
            feed = pair.feed
            synchronized = asyncio.get_running_loop().create_future()

            def keep_back(message):
                if isinstance(message, m.Synchronized):
                    synchronized.set_result(message)
                else:
                    feed._take(message)

            pair.live_link.on_message = keep_back
            message = await synchronized
            assert pair.copy.up_to_date
            assert not pair.follower.up_to_date
            pair.send()
            await until(lambda: len(pair.answered) == 1, "answered without the backup")
            feed._take(message)
            assert pair.gate.remote is not None
            await until(lambda: pair.follower.up_to_date, "up to date")
            assert pair.copy.synced >= pair.answered[-1]

    run(scenario)


def test_a_damaged_entry_ends_the_copy():
    async def scenario():
        async with Pair() as pair:
            pair.begin()
            await until(lambda: pair.follower.up_to_date, "up to date")
            pair.live_link.send(m.JournalEntries(pair.journal.last_sequence + 1, b"\x10\0\0\0" + b"z" * 20))
            ending = await pair.follower.ended
            assert ending.kind == "lost"
            await until(lambda: pair.endings, "the live notices")

    run(scenario)


def test_a_voter_keeps_its_word_over_a_restart():
    async def scenario():
        volume = MemoryVolume()
        session = session_name(1, 1, 1)
        journal, recovered = await Journal.open(volume, "journal")
        gate = DurabilityGate()
        journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        answers = []

        class Asker:
            def send(self, message):
                answers.append(message)

        voter = Ballots("B", journal, gate, recovered).voter
        voter.asked(Asker(), m.VoteRequest(1, "v1", "A", session, "a1", 1, stays=True))
        assert answers == [], "not before it is durable"
        await until(lambda: answers, "answered")
        assert answers[0].granted
        await journal.close()
        journal, recovered = await Journal.open(volume, "journal")
        voter = Ballots("B", journal, DurabilityGate(journal.synced), recovered).voter
        voter.asked(Asker(), m.VoteRequest(2, "v2", "A", session, "a2", 1, stays=False))
        assert (answers[1].granted, answers[1].reason) == (False, "already granted to a1")
        await journal.close()

    run(scenario)


def test_a_voter_that_waits_for_a_vote_itself_still_lets_others_stay():
    """Its gate is held; two pairs that are interrupted at once need each other.

    But nobody takes over by such a vote (bug 35).
    """

    async def scenario():
        journal, recovered = await Journal.open(MemoryVolume(), "journal")
        gate = DurabilityGate()
        journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        gate.hold()
        answers = []

        class Asker:
            def send(self, message):
                answers.append(message)

        voter = Ballots("B", journal, gate, recovered).voter
        voter.asked(Asker(), m.VoteRequest(1, "v1", "A", session_name(1, 1, 1), "a1", 1, stays=True))
        await until(lambda: answers, "answered")
        assert answers[0].granted
        voter.asked(Asker(), m.VoteRequest(2, "v2", "C", session_name(1, 1, 1), "c2", 1, stays=False))
        assert (answers[1].granted, answers[1].reason) == (
            False,
            "the voter is waiting for a decision itself",
        )
        gate.release()
        voter.asked(Asker(), m.VoteRequest(3, "v3", "C", session_name(1, 1, 1), "c2", 1, stays=False))
        await until(lambda: len(answers) == 3, "answered")
        assert answers[2].granted
        await journal.close()

    run(scenario)


def test_a_backup_must_have_all_that_may_have_been_answered_without_it():
    """``UpToDate`` names the last entry of the live at that moment, and the copy may not be
    served before it has that.
    """

    async def scenario():
        async with Pair() as pair:
            pair.begin()
            heard = []
            take = pair.backup_link.on_message

            def listen(message):
                heard.append(message)
                take(message)
                if isinstance(message, m.UpToDate):
                    heard.append(pair.follower.up_to_date)

            pair.backup_link.on_message = listen
            take_at_live = pair.live_link.on_message

            def append_first(message):
                if isinstance(message, m.Synchronized):
                    pair.send()
                take_at_live(message)

            pair.live_link.on_message = append_first
            await until(lambda: pair.follower.up_to_date, "up to date")
            (up_to_date,) = [message for message in heard if isinstance(message, m.UpToDate)]
            assert up_to_date.sequence == 1 == pair.journal.last_sequence
            assert heard[heard.index(up_to_date) + 1] is False, "the entry is here, but not on the disk"

    run(scenario)


@pytest.mark.parametrize(
    ("name", "incarnation", "ends"), [("a1", 8, True), ("a1", 7, False), ("a1", 6, False), ("b1", 8, False)]
)
def test_a_later_life_of_the_live_that_is_followed_ends_the_copying_from_the_former(name, incarnation, ends):
    """Whatever its connection says, or does not say for long."""
    ended = []
    former = SimpleNamespace(member=SimpleNamespace(name="a1", incarnation=7), abort=ended.append)
    backup = SimpleNamespace(follower=SimpleNamespace(link=former))
    met = SimpleNamespace(member=SimpleNamespace(name=name, incarnation=incarnation))
    BackupRole._met(backup, met)
    assert ended == (["a1 has started anew"] if ends else [])
