"""Each side of the change record by itself: what it answers, tells and ignores, and when."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from broker.cluster import change_master, change_member
from broker.cluster import messages as m
from broker.cluster.link import LinkError
from broker.core.changes import (
    DESTINATION,
    SUBSCRIPTION,
    Change,
    ChangeRefusedError,
    ChangeUnknownError,
    Head,
    RequestId,
    key_of,
    value_of,
)
from broker.core.subscription import Subscription
from stateful.change_world import CALL_TIMEOUT_S, MASTER, World
from stateful.test_change_protocol import play

SOON_S = 0.1
"""Longer than a journal takes, and much shorter than the master waits for a member."""


class Other:
    """The broker at the other end of a link; ``said`` is what it was sent."""

    def __init__(self, broker, name):
        self.is_open = True
        self.said = []
        self.member = SimpleNamespace(connector=f"{name}:1")
        self.handlers = broker.membership.handlers
        self.observers = broker.membership
        self.numbers = iter(range(1, 100))

    def send(self, message):
        self.said.append(message)

    def says(self, message):
        self.handlers[type(message)](self, message)

    def asks(self, ordinal, kind, key, value, *, asker="x", life=1):
        """Ask for a change; return the number of the request."""
        number = next(self.numbers)
        self.says(m.ChangeRequest(number, asker, life, ordinal, kind, key, value))
        return number

    def joins(self, incarnation="", sequence=0):
        self.says(m.ChangesWanted(incarnation, sequence, 1))

    def leaves(self):
        for observer in list(self.observers.on_unlinked):
            observer(self)

    def heard(self, kind):
        """Return what of one kind it was sent, and forget all."""
        heard = [message for message in self.said if isinstance(message, kind)]
        self.said.clear()
        return heard

    def answer(self):
        """Return the only answer: its sequence, whether it was made, and the reason."""
        [answer] = self.heard(m.ChangeAnswer)
        return answer.sequence, answer.made, answer.reason


def with_master(scenario):
    async def start():
        master = World().brokers[MASTER]
        await master.start()
        await asyncio.sleep(SOON_S)
        await scenario(master)

    play(start)


def made(subscription):
    return SUBSCRIPTION, key_of(subscription.key), value_of(subscription)


def test_a_repeated_request_is_answered_as_before_and_changes_nothing():
    async def scenario(master):
        asker, other = Other(master, "b1"), Other(master, "c1")
        asker.asks(1, DESTINATION, "q", "")
        other.asks(1, DESTINATION, "q", None, asker="y")
        await asyncio.sleep(SOON_S)
        assert asker.answer() == (1, True, "")
        asker.asks(1, DESTINATION, "q", "")
        await asyncio.sleep(SOON_S)
        assert asker.answer() == (1, True, "")
        assert "q" not in master.engine.queues, "it was dropped since"
        asker.asks(2, DESTINATION, "q", "")
        asker.asks(1, DESTINATION, "r", "")
        assert asker.answer() == (0, False, "a later request of the same broker was answered before")
        asker.asks(1, DESTINATION, "r", "", life=2)
        await asyncio.sleep(SOON_S)
        assert {"q", "r"} <= master.engine.queues.keys()

    with_master(scenario)


def test_a_request_that_changes_nothing_gets_no_number():
    async def scenario(master):
        asker = Other(master, "b1")
        once = Subscription("t", "s", "c", durable=True)
        changed = Subscription("t", "s", "c", durable=True, selector="a = 1")
        requests = [
            ((SUBSCRIPTION, key_of(once.key), None), (0, False)),
            ((DESTINATION, "q", ""), (1, True)),
            ((DESTINATION, "q", ""), (1, False)),
            (made(once), (2, True)),
            (made(once), (2, False)),
            (made(changed), (3, True)),
            ((DESTINATION, "q", None), (4, True)),
            ((DESTINATION, "q", None), (5, True)),  # clients may have made it again, anywhere
        ]
        for ordinal, (request, outcome) in enumerate(requests, 1):
            asker.asks(ordinal, *request)
            await asyncio.sleep(SOON_S)
            assert asker.answer() == (*outcome, "")

    with_master(scenario)


def test_members_and_askers_hear_of_a_change_when_it_is_durable():
    async def scenario(master):
        member = Other(master, "b1")
        member.joins()
        await asyncio.sleep(SOON_S)
        [given] = member.heard(m.ChangesGiven)
        member.says(m.ChangesApplied(given.incarnation, 0))
        member.asks(1, DESTINATION, "q", "")
        late = Other(master, "c1")
        late.joins(given.incarnation, 0)
        assert not member.said
        assert not late.said
        await asyncio.sleep(SOON_S)
        assert [type(message) for message in member.said] == [m.ChangesMade]
        assert [given.sequence for given in late.heard(m.ChangesGiven)] == [1]

    with_master(scenario)


def test_the_asker_is_answered_when_all_linked_members_have_the_change_or_after_a_while():
    async def scenario(master):
        members = one, two = [Other(master, name) for name in ("b1", "c1")]
        for member in members:
            member.joins()
        await asyncio.sleep(SOON_S)
        incarnation = one.heard(m.ChangesGiven)[0].incarnation
        one.asks(1, SUBSCRIPTION, key_of(Subscription("t", "s", "c", durable=True).key), None)
        await asyncio.sleep(SOON_S)
        for member in members:
            assert not one.heard(m.ChangeAnswer), "a member has not joined yet"
            member.says(m.ChangesApplied(incarnation, 0))
        assert one.answer() == (0, False, "")
        one.asks(2, DESTINATION, "q", "")
        await asyncio.sleep(SOON_S)
        one.says(m.ChangesApplied(incarnation, 1))
        two.says(m.ChangesApplied("another incarnation", 1))
        assert not one.heard(m.ChangeAnswer)
        two.leaves()
        assert one.answer() == (1, True, "")
        two.says(m.ChangesApplied(incarnation, 0))
        one.asks(3, DESTINATION, "r", "")
        await asyncio.sleep(SOON_S)
        one.says(m.ChangesApplied(incarnation, 2))
        assert one.answer() == (2, True, ""), "who has left is not waited for"
        one.asks(4, DESTINATION, "s", "")
        await asyncio.sleep(CALL_TIMEOUT_S / 2 - SOON_S)
        assert not one.heard(m.ChangeAnswer)
        await asyncio.sleep(2 * SOON_S)
        assert one.answer() == (3, True, "")

    with_master(scenario)


def test_a_link_that_has_ended_gets_no_changes_and_a_master_that_has_stopped_answers_nobody():
    async def scenario(master):
        closed, member = Other(master, "b1"), Other(master, "c1")
        closed.joins()
        member.joins()
        closed.is_open = False
        await asyncio.sleep(SOON_S)
        assert not closed.said
        incarnation = member.heard(m.ChangesGiven)[0].incarnation
        member.says(m.ChangesApplied(incarnation, 0))
        member.asks(1, DESTINATION, "q", "")
        await asyncio.sleep(SOON_S)
        member.said.clear()
        master.side.stop()
        await asyncio.sleep(CALL_TIMEOUT_S)
        assert not member.said

    with_master(scenario)


def test_a_member_gets_what_it_lacks_or_all_that_there_is(monkeypatch):
    monkeypatch.setattr(change_master, "DROPS_MAX", 1)

    async def scenario(master):
        asker = Other(master, "b1")
        for ordinal, value in enumerate(("", None, "", None, ""), 1):
            asker.asks(ordinal, DESTINATION, f"q{(ordinal - 1) // 2}", value)
        await asyncio.sleep(SOON_S)
        head = master.record.head
        assert master.record.drops == [4], "more are not kept"
        assert (head.sequence, head.floor) == (5, 2)
        for incarnation, sequence, whole, given in (
            (head.incarnation, 4, False, [5]),
            (head.incarnation, 2, False, [4, 5]),
            (head.incarnation, 1, True, [5]),
            ("another", 4, True, [5]),
            ("", 0, True, [5]),
        ):
            member = Other(master, "c1")
            member.joins(incarnation, sequence)
            await asyncio.sleep(SOON_S)
            [told] = member.heard(m.ChangesGiven)
            assert (told.whole, [change.sequence for change in told.changes]) == (whole, given)

    with_master(scenario)


def test_a_master_that_has_a_members_copy_gives_and_makes_nothing():
    async def scenario(master):
        master.record.head = msgspec.structs.replace(master.record.head, keeps=False)
        master.side.stop()
        other = Other(master, "b1")
        side = change_master.ChangeMaster(master.membership, master.engine, master.record, "i1")
        assert "restore-record" in side.problem
        other.joins()
        assert other.heard(m.ChangesGiven)[0].reason == side.problem
        other.asks(1, DESTINATION, "q", "")
        assert other.answer() == (0, False, side.problem)

    with_master(scenario)


def test_a_master_offers_its_record_to_the_brokers_that_are_linked_already():
    async def scenario(master):
        master.side.stop()
        other = Other(master, "b1")
        master.membership.neighbours.links[other] = None
        change_master.ChangeMaster(master.membership, master.engine, master.record, "i1")
        assert other.heard(m.ChangesOffered)

    with_master(scenario)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (DESTINATION, "", ""),
        (DESTINATION, "/topic/t", ""),
        (DESTINATION, "q", "text"),
        (SUBSCRIPTION, "no key", None),
        (SUBSCRIPTION, key_of(("u", "c", "s")), "no value"),
        (
            SUBSCRIPTION,
            key_of(("u", "c", "other")),
            value_of(Subscription("t", "s", "c", login="u", durable=True)),
        ),
        (SUBSCRIPTION, key_of(("", "", "s")), value_of(Subscription("t", "s"))),
        (
            SUBSCRIPTION,
            key_of(("", "c", "s")),
            value_of(Subscription("t", "s", "c", durable=True, selector="a =")),
        ),
    ],
)
def test_what_no_broker_could_apply_is_refused(kind, key, value):
    async def scenario(master):
        asker = Other(master, "b1")
        asker.asks(1, kind, key, value)
        sequence, is_made, reason = asker.answer()
        assert (sequence, is_made) == (0, False)
        assert "not a" in reason or "not the" in reason

    with_master(scenario)


class Link(Other):
    """A member's link with the master; the test answers its requests."""

    def __init__(self, broker):
        super().__init__(broker, MASTER)
        self.broker = broker
        self.asked = []

    def number(self):
        return next(self.numbers)

    async def call(self, request, timeout_s):
        answered = asyncio.get_running_loop().create_future()
        self.asked.append((request, answered))
        async with asyncio.timeout(timeout_s):
            return await answered

    def begins(self):
        self.broker.world.links[self.broker.name] = self
        for observer in list(self.broker.master.on_linked):
            observer(self)

    def ends(self):
        self.is_open = False
        del self.broker.world.links[self.broker.name]
        for observer in list(self.broker.master.on_unlinked):
            observer(self)
        for _, answered in self.asked:
            if not answered.done():
                answered.set_exception(LinkError("the link has ended"))

    def gives(self, sequence, *changes, incarnation="i0", ancestors=(), whole=False, question=None):
        """Give the record, as an answer to the last question."""
        if question is None:
            question = self.heard(m.ChangesWanted)[-1].question
        self.says(m.ChangesGiven(incarnation, ancestors, sequence, whole, changes, "", question))

    async def makes(self, change):
        self.says(m.ChangesMade(change))
        await asyncio.sleep(SOON_S)

    def request(self):
        """Return the kind, key, value and ordinal of the oldest request that is not answered."""
        request, _ = self.asked[0]
        return request.kind, request.key, request.value, request.ordinal

    async def answers(self, sequence, *, is_made=True, reason=""):
        request, answered = self.asked.pop(0)
        answered.set_result(m.ChangeAnswer(request.number, sequence, is_made, reason))
        await asyncio.sleep(SOON_S)


def with_member(scenario, *, before=()):
    """Play it with a member that has joined the empty record, and had subscriptions ``before``."""

    async def start():
        world = World()
        member = world.brokers["b1"]
        await member.start()
        for subscription in before:
            member.engine.bind(subscription)
        link = Link(member)
        world.stored = AnyChange()
        link.begins()
        link.gives(0)
        await asyncio.sleep(SOON_S)
        await scenario(member, link)

    play(start)


class AnyChange(dict):
    """Says that the master has stored any change: there is no master."""

    def __missing__(self, place):
        return MADE[place], 0


MADE = {}


def change(sequence, key="q", value="", kind=DESTINATION, incarnation="i0"):
    made = Change(incarnation, sequence, RequestId("x", 1, sequence), kind, key, value)
    MADE[made.place] = made
    return made


SUBSCRIPTIONS = [Subscription("t", name, "c", durable=True) for name in "stu"]
KEYS = [key_of(subscription.key) for subscription in SUBSCRIPTIONS]


def names(member):
    return sorted(subscription.name for subscription in member.engine.topics.durable)


def test_a_member_that_misses_a_change_asks_for_what_it_lacks():
    async def scenario(member, link):
        await link.makes(change(1))
        assert link.heard(m.ChangesApplied)[-1].sequence == 1
        await link.makes(change(1))
        assert not link.said, "it has that"
        await link.makes(change(3, "r"))
        [wanted] = link.heard(m.ChangesWanted)
        assert (wanted.incarnation, wanted.sequence) == ("i0", 1)
        assert "r" not in member.engine.queues
        await link.makes(change(2, "s"))
        assert "s" not in member.engine.queues, "the answer is to come first"
        link.gives(3, change(2, "s"), change(3, "r"), question=wanted.question)
        await link.makes(change(4, "other", incarnation="i9"))
        assert link.heard(m.ChangesWanted)
        assert {"q", "r", "s"} <= member.engine.queues.keys()
        assert "other" not in member.engine.queues

    with_member(scenario)


def test_a_member_takes_nothing_over_a_link_that_is_not_the_masters_any_more():
    async def scenario(member, link):
        link.ends()
        later = Link(member)
        later.begins()
        [wanted] = later.heard(m.ChangesWanted)
        link.gives(1, change(1), question=wanted.question)
        link.says(m.ChangesMade(change(1)))
        assert "q" not in member.engine.queues
        later.gives(0, question=wanted.question - 1)
        assert member.side.feed is None, "an answer to an earlier question"
        later.gives(0, question=wanted.question)
        link.says(m.ChangesMade(change(1)))
        assert "q" not in member.engine.queues

    with_member(scenario)


def test_a_member_reports_what_is_durable():
    async def scenario(member, link):
        link.said.clear()
        link.says(m.ChangesMade(change(1)))
        assert not link.said
        await asyncio.sleep(SOON_S)
        assert [applied.sequence for applied in link.heard(m.ChangesApplied)] == [1]

    with_member(scenario)


def test_a_member_that_is_offered_the_record_asks_for_it_unless_it_has_joined():
    async def scenario(member, link):
        link.said.clear()
        link.says(m.ChangesOffered())
        assert not link.said
        link.ends()
        link.is_open = True
        member.world.links["b1"] = link
        link.says(m.ChangesOffered())
        assert link.heard(m.ChangesWanted)

    with_member(scenario)


@pytest.mark.parametrize(
    ("head", "given", "word"),
    [
        (Head("i0", (), 3), ("i0", (), 2), "ends with change 2"),
        (Head("i0", (), 3), ("i1", (), 5), "has joined another one"),
        (Head("i0", (), 3), ("i1", ("i0",), 2), ""),
        (Head(""), ("i1", (), 0), ""),
    ],
)
def test_a_member_does_not_join_a_record_that_went_another_way(head, given, word):
    async def scenario(member, link):
        member.record.head = head
        looked = []
        member.side.on_looked = lambda: looked.append(True)
        member.side._want(link)
        incarnation, ancestors, sequence = given
        link.gives(sequence, incarnation=incarnation, ancestors=ancestors, whole=True)
        assert word in member.side.problem
        assert bool(member.side.problem) is bool(word)
        assert (member.side.feed is None) is bool(word)
        assert looked

    with_member(scenario)


def test_requests_of_a_member_come_one_after_the_other_and_again_when_their_link_is_lost():
    async def scenario(member, link):
        one = asyncio.ensure_future(member.side.request(DESTINATION, "q", ""))
        two = asyncio.ensure_future(member.side.request(DESTINATION, "r", ""))
        await asyncio.sleep(SOON_S)
        assert len(link.asked) == 1
        assert link.request() == (DESTINATION, "q", "", 1)
        link.ends()
        await asyncio.sleep(SOON_S)
        with pytest.raises(ChangeRefusedError, match="cannot be reached"):
            await member.side.request(DESTINATION, "s", "")
        later = Link(member)
        later.begins()
        later.gives(0)
        await asyncio.sleep(SOON_S)
        assert later.request() == (DESTINATION, "q", "", 1)
        await later.answers(1)
        assert not one.done(), "the change is not here"
        await later.makes(change(1))
        assert one.result() is True
        later.ends()
        await asyncio.sleep(CALL_TIMEOUT_S)
        with pytest.raises(ChangeUnknownError):
            two.result()

    with_member(scenario)


def test_who_waited_for_a_turn_is_refused_if_the_master_is_gone_meanwhile():
    async def scenario(member, link):
        one = asyncio.ensure_future(member.side.request(DESTINATION, "q", ""))
        two = asyncio.ensure_future(member.side.request(DESTINATION, "r", ""))
        await asyncio.sleep(SOON_S)
        await link.answers(0, is_made=False, reason="no")
        assert link.request()[1] == "r"
        three = asyncio.ensure_future(member.side.request(DESTINATION, "s", ""))
        await asyncio.sleep(SOON_S)
        link.ends()
        await asyncio.sleep(2 * CALL_TIMEOUT_S)
        for task, word in ((one, "no"), (two, "did not answer in time"), (three, "cannot be reached")):
            with pytest.raises(ChangeRefusedError, match=word):
                task.result()

    with_member(scenario)


def test_a_subscription_that_is_dropped_before_it_was_proposed_is_gone_for_good():
    async def scenario(member, link):
        assert link.request()[1] == KEYS[0]
        dropped = asyncio.ensure_future(member.side.request(SUBSCRIPTION, KEYS[2], None))
        recorded = asyncio.ensure_future(member.side.request(SUBSCRIPTION, KEYS[0], None))
        await link.makes(change(1, KEYS[0], value_of(SUBSCRIPTIONS[0]), SUBSCRIPTION))
        await link.answers(1)
        assert link.request()[1:3] == (KEYS[2], None), "it waited for its turn"
        await link.answers(1, is_made=False)
        assert dropped.result() is True
        assert names(member) == ["s", "t"]
        await link.makes(change(2, KEYS[0], None, SUBSCRIPTION))
        await link.answers(2)
        assert recorded.result() is True
        assert link.request()[1:3] == (KEYS[1], value_of(SUBSCRIPTIONS[1]))
        await link.makes(change(3, KEYS[1], value_of(SUBSCRIPTIONS[1]), SUBSCRIPTION))
        await link.answers(3)
        assert not link.asked, "what was dropped meanwhile is not proposed"
        assert names(member) == ["t"]

    with_member(scenario, before=SUBSCRIPTIONS)


def test_a_proposal_that_is_refused_does_not_keep_others_from_the_record(monkeypatch):
    warned = []
    monkeypatch.setattr(
        change_member._log, "warning", lambda _, subscription, reason: warned.append(subscription.name)
    )

    async def scenario(member, link):
        await link.answers(0, is_made=False, reason="no")
        assert link.request()[1] == KEYS[1]
        link.ends()
        await asyncio.sleep(2 * CALL_TIMEOUT_S)
        assert warned == ["s"], "the others are proposed again"
        later = Link(member)
        later.begins()
        later.gives(0)
        await asyncio.sleep(SOON_S)
        assert len(later.asked) == 1
        assert later.request()[1] == KEYS[0]

    with_member(scenario, before=SUBSCRIPTIONS)


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_whole_record_drops_what_was_never_proposed_only_after_a_reset(is_reset):
    async def scenario(member, link):
        await link.makes(change(1, KEYS[0], value_of(SUBSCRIPTIONS[0]), SUBSCRIPTION))
        link.ends()
        await asyncio.sleep(2 * CALL_TIMEOUT_S)
        if is_reset:
            member.side.reset()
        later = Link(member)
        later.begins()
        later.gives(5, incarnation="i1", ancestors=("i0",), whole=True)
        await asyncio.sleep(SOON_S)
        assert names(member) == ([] if is_reset else ["t", "u"])
        assert bool(later.asked) is not is_reset

    with_member(scenario, before=SUBSCRIPTIONS)


def test_a_member_that_has_stopped_proposes_nothing_more():
    async def scenario(member, link):
        member.side.stop()
        await asyncio.sleep(SOON_S)
        [(_, answered)] = link.asked
        assert answered.cancelled()

    with_member(scenario, before=SUBSCRIPTIONS)
