"""Quorum votes: which broker of a pair may be live.

They are taken when the pair's replication connection is interrupted (AMQ 17.3.3.1).

Why grants: by the documents, the backup starts when it reaches a majority of the live brokers
(17.3.1.3), and the live stays when it reaches one. Both can be true at once. A voter therefore
grants one interruption to one claimant only. Two majorities of the same voters share at least one
voter, so at most one of the two brokers gets one. An interruption is named by the replication
*session* that it ended. A new session begins whenever a backup has become up to date, so a grant
never outlives its occasion.

A claimant whose round failed withdraws it, which frees what it was granted, and may ask again in a
later round. Otherwise two halves of the votes would block each other for ever. A voter remembers
the highest withdrawn round, so that a late question of an old one is not granted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink, LinkError
from broker.cluster.membership import Membership

_log = logging.getLogger(__name__)

SESSIONS_KEPT = 8
"""The number of interruptions of one node ID that a voter remembers.

Only the latest is ever asked for.
"""


def votes_needed(live_nodes: int, quorum_size: int = -1) -> int:
    """Return how many votes of *others* make a majority of a cluster of ``live_nodes`` pairs.

    ``quorum_size`` other than -1 overrides it.

    It is n/2 for n <= 2 (0 for one pair, which cannot be protected), else n/2 + 1, with integer
    division, as Artemis counts.
    """
    if quorum_size >= 0:
        return quorum_size
    return live_nodes // 2 if live_nodes <= 2 else live_nodes // 2 + 1


class Grant(msgspec.Struct, array_like=True):
    """The decision of a voter about one interruption.

    ``claimant`` is None if the grant is free. ``withdrawn`` has each claimant's last failed round.
    """

    node_id: str
    session: str
    claimant: str | None
    round: int
    withdrawn: dict[str, int]


class Grants:
    """The decisions of a voter.

    These are plain data and rules, without I/O. A decision that must be stored is returned; the
    caller stores it before it answers a claimant.
    """

    def __init__(self, recovered: Iterable[Grant] = ()) -> None:
        self._grants: dict[str, dict[str, Grant]] = {}
        for grant in recovered:
            self._grants.setdefault(grant.node_id, {})[grant.session] = grant

    def ask(self, node_id: str, session: str, claimant: str, round_: int) -> tuple[bool, str, Grant | None]:
        """Decide about a request for a vote.

        Returns (granted, why not, the decision that must be on the disk before the answer).

        A vote that is given again is stored again: that it was given before does not prove that it
        is on the disk yet.
        """
        if any(_order(known) > _order(session) for known in self._grants.get(node_id, ())):
            # A later session began with a backup that was up to date. The loser of an earlier one
            # has older data.
            return False, "the vote is about an earlier interruption", None
        grant = self._of(node_id, session)
        if round_ <= grant.withdrawn.get(claimant, -1):
            return False, "the broker has withdrawn this round", None
        if grant.claimant is not None and grant.claimant != claimant:
            return False, f"already granted to {grant.claimant}", None
        if grant.claimant != claimant or grant.round < round_:
            grant.claimant = claimant
            grant.round = round_
        return True, "", grant

    def withdraw(self, node_id: str, session: str, claimant: str, round_: int) -> Grant | None:
        """Take back a claimant's rounds up to ``round_``, which it gave up. Returns the change."""
        grant = self._of(node_id, session)
        if round_ <= grant.withdrawn.get(claimant, -1):
            return None
        grant.withdrawn[claimant] = round_
        if grant.claimant == claimant and grant.round <= round_:
            grant.claimant = None
        return grant

    def holder(self, node_id: str, activation: int, besides: str) -> str | None:
        """Return the claimant, other than ``besides``, that holds a vote about a node ID.

        The vote is about this life of the node ID or a later one. None if there is no such
        claimant.
        """
        return next(
            (
                grant.claimant
                for session, grant in self._grants.get(node_id, {}).items()
                if grant.claimant not in (None, besides) and _order(session)[0] >= activation
            ),
            None,
        )

    def forgotten(self, node_id: str) -> list[Grant]:
        """Drop, and return, the decisions of the earliest sessions, which are never asked for."""
        sessions = self._grants.get(node_id, {})
        old = sorted(sessions, key=_order)[: max(0, len(sessions) - SESSIONS_KEPT)]
        return [sessions.pop(session) for session in old]

    def _of(self, node_id: str, session: str) -> Grant:
        sessions = self._grants.setdefault(node_id, {})
        grant = sessions.get(session)
        if grant is None:
            grant = sessions[session] = Grant(node_id, session, None, 0, {})
        return grant


def session_name(activation: int, count: int, chance: int) -> str:
    """Return the name of a replication session; later ones of a node ID compare as later."""
    return f"{activation}.{count}.{chance:012x}"


def _order(session: str) -> tuple[int, int]:
    activation, _, rest = session.partition(".")
    count = rest.partition(".")[0]
    return (int(activation), int(count)) if activation.isdecimal() and count.isdecimal() else (0, 0)


class VoteCount:
    """Counts one vote: each voter once, and only answers to this very vote (ARTEMIS-2702)."""

    def __init__(self, vote: str, asked: Iterable[str], needed: int) -> None:
        self.vote = vote
        self.needed = needed
        self.granted: dict[str, None] = {}
        self.refused: dict[str, str] = {}
        """The reasons of brokers that did not grant it, by node ID."""
        self._asked = set(asked)

    def __str__(self) -> str:
        refused = "".join(f"; {node}: {reason}" for node, reason in sorted(self.refused.items()))
        reached = f"{len(self._asked)} other live brokers in reach"
        return f"{len(self.granted)} of {self.needed} needed votes granted, {reached}{refused}"

    def answer(self, voter: str, reply: m.VoteAnswer) -> None:
        """Count the reply of the broker that we asked as ``voter``."""
        if reply.vote != self.vote or reply.voter != voter or voter not in self._asked:
            return
        if reply.granted:
            self.granted[voter] = None
            self.refused.pop(voter, None)
        elif voter not in self.granted:
            self.refused[voter] = reply.reason

    @property
    def passed(self) -> bool:
        """True if enough voters have granted it."""
        return len(self.granted) >= self.needed

    @property
    def hopeless(self) -> bool:
        """True if it would not pass even if all voters that have not answered yet agreed."""
        return len(self._asked) - len(self.refused) < self.needed


async def vote(
    membership: Membership,
    node_id: str,
    session: str,
    round_: int,
    *,
    stays: bool,
    needed: int,
    timeout_s: float,
) -> VoteCount:
    """Ask every other live broker that we are linked with for its vote.

    Ends when it is decided, or after ``timeout_s`` (``quorum-vote-wait``).

    Neither our own vote nor that of a broker of our own node ID counts. A broker that cannot be
    reached counts as no. A failed round must be withdrawn (``withdraw``) by a claimant that is
    certainly not live.
    """
    claimant = membership.own.name
    name = f"{node_id}/{session}/{claimant}/{round_}"
    voters = {node: link for node, (_, link) in membership.directory.lives().items() if node != node_id}
    count = VoteCount(name, voters, needed)

    async def ask(voter: str, link: ClusterLink) -> None:
        try:
            reply = await link.call(
                m.VoteRequest(link.number(), name, node_id, session, claimant, round_, stays), timeout_s
            )
        except (LinkError, TimeoutError) as error:
            count.refused[voter] = str(error) or "no answer in time"
        else:
            if isinstance(reply, m.VoteAnswer):
                count.answer(voter, reply)

    if count.hopeless:
        return count
    asking = {asyncio.create_task(ask(voter, link), name=f"ask {voter}") for voter, link in voters.items()}
    try:
        async with asyncio.timeout(timeout_s):
            pending = asking
            while pending and not count.passed and not count.hopeless:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        pass
    finally:
        for task in asking:
            task.cancel()
    return count


def withdraw(membership: Membership, node_id: str, session: str, round_: int) -> None:
    """Free the grants of a claimant that is not live by them, and will not become so."""
    membership.neighbours.broadcast(m.VoteWithdrawal(node_id, session, membership.own.name, round_))


class Voter:
    """The live broker as a voter: it answers for as long as it is live.

    ``keep`` makes a decision durable and then calls back; ``drop`` deletes old ones. With
    ``partner_gone``, a backup gets no vote while its live is in reach (``backup-vote``).
    """

    def __init__(
        self,
        node_id: str,
        grants: Grants,
        keep: Callable[[Grant, Callable[[], None]], None],
        drop: Callable[[Sequence[Grant]], None],
        in_doubt: Callable[[], bool],
        *,
        partner_gone: bool = True,
    ) -> None:
        self._node_id = node_id
        self._grants = grants
        self._keep = keep
        self._drop = drop
        self._in_doubt = in_doubt
        self._partner_gone = partner_gone
        self._membership: Membership | None = None
        self._starting: dict[str, tuple[ClusterLink, int]] = {}
        """The link and the activation of each broker that starts again, by node ID.

        It was told that no broker was voted into its place.
        """

    def install(self, membership: Membership) -> None:
        """Begin to answer."""
        self._membership = membership
        membership.handlers[m.VoteRequest] = self.asked
        membership.handlers[m.VoteWithdrawal] = self.withdrawn
        membership.handlers[m.StartRequest] = self.starts

    def remove(self, membership: Membership) -> None:
        """Stop answering: a claimant then hears nothing, which counts as no."""
        membership.handlers.pop(m.VoteRequest, None)
        membership.handlers.pop(m.VoteWithdrawal, None)
        membership.handlers.pop(m.StartRequest, None)

    def asked(self, link: ClusterLink, request: m.VoteRequest) -> None:
        """Decide, store the decision, then answer."""
        decision: Grant | None = None
        granted, reason = False, self._successor(request)
        if not reason and not request.stays and self._in_doubt():
            # Another broker may be live in our own place by now and vote, too: there would be two
            # electorates (bug 35).
            reason = "the voter is waiting for a decision itself"
        if not reason and not request.stays and self._partner_gone:
            reason = self._partner(request)
        if not reason:
            granted, reason, decision = self._grants.ask(
                request.node_id, request.session, request.claimant, request.round
            )
        _log.info(
            "vote: %s asks to be live under node ID %s: %s",
            request.claimant,
            request.node_id,
            "granted" if granted else f"refused: {reason}",
        )
        answer = m.VoteAnswer(request.number, request.vote, self._node_id, granted, reason)
        if decision is None:
            link.send(answer)
        else:
            self._keep(decision, lambda: link.send(answer))
            if old := self._grants.forgotten(request.node_id):
                self._drop(old)

    def starts(self, link: ClusterLink, request: m.StartRequest) -> None:
        """Tell a broker that starts again who was voted into its place; if none, none will be."""
        member = link.member
        assert member is not None
        claimant = self._grants.holder(request.node_id, request.activation - 1, member.name)
        if claimant is None:
            self._starting[request.node_id] = (link, request.activation)
        link.send(m.StartAnswer(request.number, claimant))

    def _partner(self, request: m.VoteRequest) -> str:
        """Return that the live which the claimant would replace is in reach; else "".

        Then only the link between the two is gone.
        """
        found = (
            self._membership.directory.lives().get(request.node_id) if self._membership is not None else None
        )
        there = found is not None and found[0].name != request.claimant
        return f"{found[0].name} is in reach and live" if found is not None and there else ""

    def _successor(self, request: m.VoteRequest) -> str:
        """Return who is live, or about to be, in a later life than the interrupted one; else "".

        Then the claimant is late, whichever it is.

        Whether the live of the interrupted life itself is a reason is a matter of ``backup-vote``
        (decision 1).
        """
        interrupted, _ = _order(request.session)
        found = (
            self._membership.directory.lives().get(request.node_id) if self._membership is not None else None
        )
        if found is not None and found[0].name != request.claimant and found[0].activation > interrupted:
            return f"{found[0].name} is live by now, activation {found[0].activation}"
        link, activation = self._starting.get(request.node_id, (None, 0))
        if link is None or not link.is_open or link.member is None:
            return ""
        later = link.member.name != request.claimant and activation > interrupted
        return f"{link.member.name} starts again, activation {activation}" if later else ""

    def withdrawn(self, _: ClusterLink, withdrawal: m.VoteWithdrawal) -> None:
        """Free what was granted in a claimant's round that failed."""
        changed = self._grants.withdraw(
            withdrawal.node_id, withdrawal.session, withdrawal.claimant, withdrawal.round
        )
        if changed is not None:
            self._keep(changed, _nothing)


def _nothing() -> None:
    pass
