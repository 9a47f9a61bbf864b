"""Votes as rules: how many are needed, whose answers count, and that one interruption never has
two winners.
"""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster import messages as m
from broker.cluster.quorum import SESSIONS_KEPT, Grants, VoteCount, Voter, session_name, votes_needed


@pytest.mark.parametrize(
    ("pairs", "needed"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)]
)
def test_votes_needed_of_the_others(pairs, needed):
    assert votes_needed(pairs) == needed


def test_quorum_size_overrides_the_majority():
    assert votes_needed(5, 1) == 1


def answer(vote="v", voter="b", granted=True):
    return m.VoteAnswer(1, vote, voter, granted, "" if granted else "no")


def test_an_answer_to_another_vote_does_not_count():
    count = VoteCount("v", ["b", "c"], 2)
    count.answer("b", answer(vote="older"))
    count.answer("c", answer(voter="c"))
    assert not count.passed


def test_a_voter_counts_once():
    count = VoteCount("v", ["b", "c"], 2)
    count.answer("b", answer())
    count.answer("b", answer())
    assert not count.passed


def test_an_answer_in_the_name_of_another_does_not_count():
    count = VoteCount("v", ["b", "c"], 1)
    count.answer("b", answer(voter="c"))
    assert not count.passed


def test_a_vote_that_cannot_pass_is_known_to_be_hopeless():
    count = VoteCount("v", ["b", "c"], 2)
    assert not count.hopeless
    count.answer("b", answer(granted=False))
    assert count.hopeless


def test_the_second_party_of_an_interruption_is_refused():
    grants = Grants()
    assert grants.ask("A", "s", "a1", 1)[0]
    granted, reason, _ = grants.ask("A", "s", "a2", 1)
    assert not granted
    assert reason == "already granted to a1"


def test_the_next_interruption_is_free_for_all():
    grants = Grants()
    assert grants.ask("A", session_name(1, 1, 7), "a1", 1)[0]
    assert grants.ask("A", session_name(1, 2, 7), "a2", 1)[0]


def test_who_lost_an_earlier_session_is_behind_and_gets_no_vote():
    grants = Grants()
    assert grants.ask("A", session_name(2, 9, 1), "a1", 1)[0]
    assert not grants.ask("A", session_name(2, 8, 1), "a2", 1)[0]
    assert not grants.ask("A", session_name(1, 30, 1), "a2", 1)[0]
    assert grants.ask("A", session_name(2, 10, 1), "a2", 1)[0]


def test_what_a_failed_round_was_granted_is_free_again():
    grants = Grants()
    assert grants.ask("A", "s", "a1", 1)[0]
    grants.withdraw("A", "s", "a1", 1)
    assert grants.ask("A", "s", "a2", 1)[0]


def test_a_late_question_of_a_withdrawn_round_is_refused():
    grants = Grants()
    grants.withdraw("A", "s", "a1", 3)
    assert not grants.ask("A", "s", "a1", 3)[0]
    assert grants.ask("A", "s", "a1", 4)[0]


def test_a_late_withdrawal_does_not_free_a_later_round():
    grants = Grants()
    grants.ask("A", "s", "a1", 1)
    grants.ask("A", "s", "a1", 2)
    grants.withdraw("A", "s", "a1", 1)
    assert not grants.ask("A", "s", "a2", 1)[0]


def test_old_interruptions_are_forgotten_oldest_first():
    grants = Grants()
    for number in range(SESSIONS_KEPT + 2):
        grants.ask("A", session_name(1, number, 0), "a1", 1)
    assert [grant.session for grant in grants.forgotten("A")] == [
        session_name(1, 0, 0),
        session_name(1, 1, 0),
    ]


def test_a_recovered_voter_keeps_its_word():
    _, _, decision = Grants().ask("A", "s", "a1", 1)
    assert not Grants([decision]).ask("A", "s", "a2", 1)[0]


class Claimant:
    """One party of an interruption.

    Asks all voters in a round, wins with enough answers of that round, withdraws failed ones.
    """

    def __init__(self, name, voters, needed):
        self.name = name
        self.voters = voters
        self.needed = needed
        self.round = 0
        self.granted = set()
        self.won = False

    def new_round(self):
        """Give up the present round, if there is one, and ask again."""
        given_up = (
            [(voter, "withdraw", self.name, self.round) for voter in range(self.voters)] if self.round else []
        )
        self.round += 1
        self.granted = set()
        return [*given_up, *((voter, "ask", self.name, self.round) for voter in range(self.voters))]

    def answered(self, voter, round_):
        if round_ == self.round:
            self.granted.add(voter)
            self.won = self.won or len(self.granted) >= self.needed


@settings(max_examples=400, deadline=None)
@given(st.integers(2, 5), st.data())
@pytest.mark.slow
def test_one_interruption_never_has_two_winners(pairs, data):
    """Whatever order, loss and repetition messages suffer, and however often both parties try."""
    voters = pairs - 1
    needed = votes_needed(pairs)
    grants = [Grants() for _ in range(voters)]
    parties = {name: Claimant(name, voters, needed) for name in ("a1", "a2")}
    network = []
    for _ in range(data.draw(st.integers(1, 60))):
        choices = ["round a1", "round a2", *(["deliver", "lose", "repeat"] if network else [])]
        step = data.draw(st.sampled_from(choices))
        if step.startswith("round"):
            party = parties[step[6:]]
            if not party.won:  # A winner asks no more, and withdraws nothing.
                network += party.new_round()
            continue
        index = data.draw(st.integers(0, len(network) - 1))
        voter, kind, name, round_ = network[index]
        if step != "repeat":
            network.pop(index)
        if step == "lose":
            continue
        if kind == "ask":
            if grants[voter].ask("A", "s", name, round_)[0]:
                network.append((voter, "answer", name, round_))
        elif kind == "withdraw":
            grants[voter].withdraw("A", "s", name, round_)
        else:
            parties[name].answered(voter, round_)
        assert not (parties["a1"].won and parties["a2"].won)


def test_both_parties_can_win_when_they_ask_alone():
    """The property above does not hold because nobody ever wins."""
    for name in ("a1", "a2"):
        grants = [Grants(), Grants()]
        party = Claimant(name, 2, votes_needed(3))
        for voter, _, claimant, round_ in party.new_round():
            if grants[voter].ask("A", "s", claimant, round_)[0]:
                party.answered(voter, round_)
        assert party.won


class Seen:
    """What a voter sees of the cluster."""

    def __init__(self, **lives):
        self.handlers = {}
        self.directory = self
        self._lives = {
            node_id: (SimpleNamespace(name=name, activation=activation), None)
            for node_id, (name, activation) in lives.items()
        }

    def lives(self):
        return self._lives


def asked(seen, claimant, session, **reading):
    """What a voter that sees this answers, and what it decided."""
    kept, answers = [], []

    def keep(grant, done):
        kept.append(grant)
        done()

    voter = Voter("b", Grants(), keep, lambda grants: None, lambda: False, **reading)
    voter.install(seen)
    voter.asked(SimpleNamespace(send=answers.append), request(claimant, session))
    (answered,) = answers
    return answered, kept


def test_a_backup_is_refused_when_a_later_life_of_its_live_is_there():
    answered, kept = asked(Seen(a=("a1", 2)), "a2", "1.1.0")
    assert (answered.granted, answered.reason) == (False, "a1 is live by now, activation 2")
    assert kept == []


def test_a_backup_is_refused_while_the_live_it_lost_is_in_reach_of_the_voter():
    """RP6: a cut of the pair's link alone."""
    answered, kept = asked(Seen(a=("a1", 1)), "a2", "1.1.0")
    assert (answered.granted, answered.reason) == (False, "a1 is in reach and live")
    assert kept == []


def test_a_backup_is_granted_its_vote_when_the_live_it_lost_is_gone():
    answered, kept = asked(Seen(), "a2", "1.1.0")
    assert answered.granted
    assert [grant.claimant for grant in kept] == ["a2"]


def test_a_backup_is_not_refused_for_the_live_it_lost_where_the_vote_is_for_reachability():
    """RP6-reachability: what is voted on is who reaches the majority."""
    answered, kept = asked(Seen(a=("a1", 1)), "a2", "1.1.0", partner_gone=False)
    assert answered.granted
    assert [grant.claimant for grant in kept] == ["a2"]


def test_a_live_is_not_refused_for_itself():
    answered, _ = asked(Seen(a=("a1", 2)), "a1", "1.1.0")
    assert answered.granted


class Linked:
    """A link of a voter to somebody."""

    def __init__(self, name):
        self.member = SimpleNamespace(name=name)
        self.is_open = True
        self.said = []
        self.send = self.said.append


def voter_of(grants, *, in_doubt=False):
    voter = Voter("b", grants, lambda grant, done: done(), lambda grants: None, lambda: in_doubt)
    voter.install(Seen())
    return voter


def request(claimant, session, round_=1):
    """a1 is the live and would stay."""
    return m.VoteRequest(1, "v", "a", session, claimant, round_, claimant == "a1")


def test_who_is_in_doubt_lets_a_live_stay_and_no_backup_take_over():
    """Bug 35: it may have been replaced, and its successor votes too."""
    voter, asker = voter_of(Grants(), in_doubt=True), Linked("a2")
    voter.asked(asker, request("a2", "1.1.0"))
    voter.asked(asker, request("a1", "1.1.0"))
    refused, granted = asker.said
    assert (refused.granted, refused.reason) == (False, "the voter is waiting for a decision itself")
    assert granted.granted


def test_a_master_that_starts_is_told_who_was_voted_into_its_place():
    voter, master = voter_of(Grants()), Linked("a1")
    voter.asked(Linked("a2"), request("a2", "1.1.0"))
    voter.starts(master, m.StartRequest(7, "a", 2))
    assert master.said == [m.StartAnswer(7, "a2")]


def test_a_vote_about_a_life_before_the_last_says_nothing():
    """After the failback the master was live with activation 3.

    What was granted about its first life is history.
    """
    voter, master = voter_of(Grants()), Linked("a1")
    voter.asked(Linked("a2"), request("a2", "1.1.0"))
    voter.starts(master, m.StartRequest(7, "a", 4))
    assert master.said == [m.StartAnswer(7, None)]


def test_a_withdrawn_vote_leaves_the_place_free():
    voter, master = voter_of(Grants()), Linked("a1")
    voter.asked(Linked("a2"), request("a2", "1.1.0"))
    voter.withdrawn(Linked("a2"), m.VoteWithdrawal("a", "1.1.0", "a2", 1))
    voter.starts(master, m.StartRequest(7, "a", 2))
    assert master.said == [m.StartAnswer(7, None)]


def test_who_was_told_that_the_place_is_free_keeps_it_while_it_is_linked():
    voter, master, backup = voter_of(Grants()), Linked("a1"), Linked("a2")
    voter.starts(master, m.StartRequest(7, "a", 2))
    voter.asked(backup, request("a2", "1.1.0"))
    assert (backup.said[-1].granted, backup.said[-1].reason) == (False, "a1 starts again, activation 2")
    master.is_open = False
    voter.asked(backup, request("a2", "1.1.0", 2))
    assert backup.said[-1].granted


def test_a_later_interruption_is_no_business_of_an_earlier_start():
    voter, backup = voter_of(Grants()), Linked("a2")
    voter.starts(Linked("a1"), m.StartRequest(7, "a", 2))
    voter.asked(backup, request("a2", "2.1.0"))
    assert backup.said[-1].granted
