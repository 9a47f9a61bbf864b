"""Votes about interruptions, over a network that loses, delays and repeats, with voters that crash.

Never two lives of one interruption.

Real are the voters (rules, journal, gate), the asking and counting (``vote``, ``LiveVote``) and the
withdrawals. The machine is the network between them and the power of every voter. The model knows
of each voter only what left it: a vote that was given binds it until that claimant has withdrawn.
"""

import asyncio
import itertools
import random
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from broker.cluster import messages as m
from broker.cluster import quorum
from broker.cluster.quorum import Grants, session_name, vote, votes_needed, withdraw
from broker.policies.replication.ballots import Ballots
from broker.policies.replication.decision import LiveVote
from broker.storage.gate import DurabilityGate
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from stateful.machines import LoopMachine, assert_found, budget

NODE = "A"
LIVE, BACKUP = "a1", "a2"
SYNC_S = 0.01
WAIT_MS = 1000


class VoterNode:
    """A live broker of another pair, with its disk."""

    def __init__(self, machine, name):
        self.machine = machine
        self.name = name
        self.volume = MemoryVolume(latency_s=SYNC_S)
        self.handlers = {}
        self.directory = self
        self.start()

    def start(self):
        loop = self.machine.loop
        self.journal, recovered = loop.run(Journal.open(self.volume, "journal"))
        self.gate = gate = DurabilityGate(self.journal.synced)
        self.journal.on_synced = lambda sequence: setattr(gate, "local", sequence)
        self.life = object()
        Ballots(self.name, self.journal, gate, recovered).voter.install(self)

    def lives(self):
        """A voter that hears of neither party: what it decides follows from votes alone."""
        return {}

    def crash(self, chance):
        self.gate.abandon()
        self.volume.crash(chance)
        self.machine.loop.run(self.journal.close())
        self.start()


class Wire:
    """What an asker and a voter see of each other.

    A link whose every message the machine delivers, or does not.
    """

    def __init__(self, machine, claimant, voter):
        self.machine = machine
        self.claimant = claimant
        self.voter = voter
        self.waiting = {}
        self.numbers = itertools.count(1)

    def number(self):
        return next(self.numbers)

    async def call(self, request, timeout_s):
        answer = self.waiting[request.number] = asyncio.get_running_loop().create_future()
        self.machine.packets.append((self, request))
        async with asyncio.timeout(timeout_s):
            return await answer


class Answers:
    """The same link as the voter sees it in one of its lives.

    What it says after a crash comes from nobody.
    """

    def __init__(self, wire):
        self.wire = wire
        self.life = wire.voter.life

    def send(self, answer):
        if self.life is self.wire.voter.life:
            self.wire.machine.answered(self.wire, answer)


class Claimant:
    """One of the pair, as far as ``vote`` and ``withdraw`` see its membership."""

    def __init__(self, machine, name):
        self.machine = machine
        self.own = SimpleNamespace(name=name)
        self.directory = self.neighbours = self
        self.live_nodes_seen = machine.pairs
        self.wires = {node.name: Wire(machine, self, node) for node in machine.voters}
        self.reach = set(self.wires)

    def lives(self):
        return {name: (None, wire) for name, wire in self.wires.items() if name in self.reach}

    def broadcast(self, message):
        self.machine.packets += [(wire, message) for _, wire in self.lives().values()]


class Interruption:
    """One session: who asks, in which round, who won."""

    def __init__(self, session):
        self.session = session
        self.rounds = {BACKUP: 0}
        self.winners = {}
        self.given_up = set()
        self.running = {}


class VoteMachine(LoopMachine):
    @initialize(
        pairs=st.sampled_from([2, 2, 3, 3, 4, 5, 1]),
        live_votes=st.sampled_from([True, True, False]),
        kept=st.sampled_from([1, 2, 8]),
    )
    def begin(self, pairs, live_votes, kept):
        """``kept``: interruptions that a voter remembers; the latest is enough."""
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(quorum, "SESSIONS_KEPT", kept)
        self.pairs = pairs
        self.live_votes = live_votes
        self.voters = [VoterNode(self, f"V{number}") for number in range(pairs - 1)]
        self.claimants = {name: Claimant(self, name) for name in (LIVE, BACKUP)}
        self.packets = []
        self.promises = {}
        self.withdrawn = {}
        self.given = {}
        self.sessions = 0
        self.interrupt()

    # ---- the model of a voter: a word that was given binds

    def answered(self, wire, answer):
        """An answer leaves a voter."""
        self.packets.append((wire, answer))
        if answer.granted:
            node_id, session, claimant, round_ = answer.vote.split("/")
            assert (node_id, claimant) == (NODE, wire.claimant.own.name)
            if int(round_) in self.withdrawn.get((wire.voter.name, session, claimant), ()):
                return  # on its way to the disk when its claimant gave it up: it counts for nobody
            promised = self.promises.setdefault((wire.voter.name, session), {})
            others = {
                name: rounds - self.withdrawn.get((wire.voter.name, session, name), set())
                for name, rounds in promised.items()
                if name != claimant
            }
            assert not any(others.values()), (
                f"{wire.voter.name} has promised {session} to {others} and now grants {claimant}"
            )
            promised.setdefault(claimant, set()).add(int(round_))

    def withdrawal_heard(self, wire, message):
        key = (wire.voter.name, message.session, message.claimant)
        self.withdrawn.setdefault(key, set()).update(range(message.round + 1))

    # ---- the two parties

    def interrupt(self):
        """A backup was up to date, and the connection is lost (again)."""
        self.sessions += 1
        self.now = Interruption(session_name(1, self.sessions, 7))
        self.claims = {}

    @rule(name=st.sampled_from(["both", LIVE, BACKUP]))
    def ask(self, name):
        now = self.now
        if name == "both":
            self.ask(BACKUP)
        if name != BACKUP and self.live_votes and LIVE not in now.running:
            self.live_asks()
        if name == BACKUP and BACKUP not in now.running and BACKUP not in now.winners:
            self.backup_asks()

    def live_asks(self):
        """``LiveVote``: round after round within its time.

        It is not live meanwhile, and gives up at the end.
        """
        now = self.now
        section = SimpleNamespace(quorum_vote_wait=WAIT_MS, quorum_size=-1)

        async def ask():
            asking = LiveVote(self.claimants[LIVE], section, NODE, now.session)
            if await asking.passes():
                self.won(now, LIVE)
            else:
                asking.give_up()

        self.start(LIVE, ask())

    def backup_asks(self):
        """One round of a backup, which withdraws it if it fails."""
        now, membership = self.now, self.claimants[BACKUP]
        now.rounds[BACKUP] += 1
        round_ = now.rounds[BACKUP]

        async def ask():
            needed = votes_needed(membership.directory.live_nodes_seen)
            result = await vote(
                membership,
                NODE,
                now.session,
                round_,
                stays=False,
                needed=needed,
                timeout_s=WAIT_MS / 1000,
            )
            assert result.needed == needed
            assert result.passed == (len(result.granted) >= needed)
            if result.passed:
                self.won(now, BACKUP)
            else:
                withdraw(membership, NODE, now.session, round_)
                del now.running[BACKUP]

        self.start(BACKUP, ask())

    def start(self, name, work):
        with self.loop.inside():
            self.now.running[name] = asyncio.create_task(work)
        self.loop.turn(3)

    def won(self, interruption, name):
        interruption.winners[name] = None
        majority = {0: 0, 1: 0, 2: 1, 3: 2, 4: 3, 5: 3}[self.pairs]
        votes = [
            voter.name for voter in self.voters if (name, interruption.session, voter.name) in self.given
        ]
        assert len(votes) >= majority, f"{name} wins with the votes of {votes}; {majority} are needed"

    # ---- the network

    @precondition(lambda self: self.packets)
    @rule(
        which=st.integers(0, 15),
        fate=st.sampled_from(["deliver", "deliver", "deliver", "twice", "repeat", "lose"]),
    )
    def packet(self, which, fate):
        index = which % len(self.packets)
        wire, message = self.packets[index]
        if fate != "repeat":
            del self.packets[index]
        if fate != "lose":
            self.deliver(wire, message)
        if fate == "twice":
            self.deliver(wire, message)

    def deliver(self, wire, message):
        with self.loop.inside():
            if isinstance(message, m.VoteAnswer):
                if message.granted:
                    _, session, name, _ = message.vote.split("/")
                    self.given[name, session, wire.voter.name] = None
                future = wire.waiting.get(message.number)
                if future is not None and not future.done():
                    future.set_result(message)
            else:
                if isinstance(message, m.VoteWithdrawal):
                    self.withdrawal_heard(wire, message)
                wire.voter.handlers[type(message)](Answers(wire), message)
        self.loop.turn(3)

    @precondition(lambda self: self.packets)
    @rule(fate=st.sampled_from(["deliver", "twice"]))
    def oldest(self, fate):
        self.packet(0, fate)

    @precondition(lambda self: self.packets)
    @rule()
    def everything_arrives(self):
        for _ in range(4):
            packets, self.packets = self.packets, []
            for wire, message in packets:
                self.deliver(wire, message)
            self.loop.advance(2 * SYNC_S)

    # ---- time and power

    @rule(milliseconds=st.sampled_from([5, 20, 120, 1100]))
    def wait(self, milliseconds):
        self.loop.advance(milliseconds / 1000)

    @precondition(lambda self: self.voters)
    @rule(which=st.integers(0, 3), seed=st.integers(0, 7))
    def power_fails(self, which, seed):
        """Of a voter that has something to lose, if there is one."""
        writing = [voter for voter in self.voters if voter.journal.synced < voter.journal.last_sequence]
        voters = writing or self.voters
        voters[which % len(voters)].crash(random.Random(seed) if seed else None)

    @precondition(lambda self: self.voters)
    @rule(
        what=st.sampled_from(["unlink", "link", "link", "hold", "release"]),
        which=st.integers(0, 3),
        name=st.sampled_from([LIVE, BACKUP]),
    )
    def disturb(self, what, which, name):
        """One party loses its link to a voter, or its gate is held while others vote about *it*."""
        voter = self.voters[which % len(self.voters)]
        if what in ("link", "unlink"):
            reach = self.claimants[name].reach
            (reach.add if what == "link" else reach.discard)(voter.name)
        else:
            with self.loop.inside():
                (voter.gate.hold if what == "hold" else voter.gate.release)()
            self.loop.turn(3)

    @precondition(lambda self: self.now.winners)
    @rule()
    def backup_attaches_again(self):
        """Whoever lost follows whoever won, is up to date, and is lost again: a new session."""
        for task in self.now.running.values():
            task.cancel()
        self.loop.settle()
        self.interrupt()

    # ---- what must hold

    @invariant()
    def one_life(self):
        """One pair alone cannot be protected, and where the live never asks it lives on (RP4,
        RP6).
        """
        if self.pairs > 1:
            assert len(self.now.winners) <= 1, f"{self.now.session} has two lives"

    @invariant()
    def nothing_complains(self):
        self.complain()
        for interruption in (self.now,):
            for task in interruption.running.values():
                if task.done() and not task.cancelled():
                    task.result()

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()
        if hasattr(self, "voters"):
            for voter in self.voters:
                self.loop.run(voter.journal.close())
        super().teardown()


TestVote = VoteMachine.TestCase
TestVote.settings = budget(120, 50)


# ---- what the machine found, and parts broken on purpose that it must find


@pytest.mark.in_turn
def test_a_voter_that_grants_everybody_is_found(monkeypatch):
    def generous(self, node_id, session, claimant, round_):
        grant = self._of(node_id, session)
        grant.claimant, grant.round = claimant, round_
        return True, "", grant

    monkeypatch.setattr(Grants, "ask", generous)
    assert_found(VoteMachine)


@pytest.mark.in_turn
def test_votes_given_before_they_are_on_the_disk_are_found(monkeypatch):
    keep = Ballots._keep

    def hasty(self, grant, done):
        keep(self, grant, lambda: None)
        done()

    monkeypatch.setattr(Ballots, "_keep", hasty)
    assert_found(VoteMachine)


@pytest.mark.in_turn
def test_a_withdrawal_that_frees_what_another_was_granted_is_found(monkeypatch):
    withdraw_ = Grants.withdraw

    def careless(self, node_id, session, claimant, round_):
        changed = withdraw_(self, node_id, session, claimant, round_)
        if changed is not None:
            changed.claimant = None
        return changed

    monkeypatch.setattr(Grants, "withdraw", careless)
    assert_found(VoteMachine)


@pytest.mark.in_turn
def test_too_few_votes_are_found(monkeypatch):
    monkeypatch.setattr(
        "broker.policies.replication.decision.votes_needed",
        lambda live, size=-1: max(0, votes_needed(live) - 1),
    )
    assert_found(VoteMachine)


@pytest.fixture
def machine():
    one = VoteMachine()
    yield one
    one.teardown()


def test_a_question_that_comes_twice_is_answered_only_from_the_disk(machine):
    """The second was answered at once, while the vote was still on its way there.

    After a crash the other party got it.
    """
    machine.begin(pairs=2, live_votes=True, kept=8)
    machine.backup_asks()
    machine.packet(0, "repeat")
    machine.packet(0, "deliver")
    assert not machine.packets, "not before it is durable"
    machine.loop.advance(5 * SYNC_S)
    assert len(machine.packets) == 2
    machine.nothing_complains()


def test_a_late_withdrawal_of_an_old_interruption_does_not_push_out_the_latest():
    """Decisions were forgotten in the order in which they had been heard of, not in the order of
    their sessions.
    """
    grants = Grants()
    latest = session_name(1, 100, 0)
    assert grants.ask(NODE, latest, LIVE, 1)[0]
    for number in range(quorum.SESSIONS_KEPT + 1):
        grants.withdraw(NODE, session_name(1, number, 0), BACKUP, 1)
    grants.forgotten(NODE)
    assert not grants.ask(NODE, latest, BACKUP, 1)[0]
