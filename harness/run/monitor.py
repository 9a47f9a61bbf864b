"""The role monitor: which broker was live when, as intervals that can be trusted.

Why intervals: split-brain and zombie findings rest on *when* a broker changed its role, and a poll
only ever knows two moments. A broker that answered "live" to a request was live at some instant
after the request was sent; so the change away from live came after that. The first answer with the
new role proves that the change came before it arrived. The change is therefore certain to lie
within

    [the last request that was answered with the old role was *sent*, the first answer with the new
    role *arrived*]

Both stamps err in the safe direction: a busy event loop, a slow network or a paused broker widen
the interval and never make it wrong. Takeovers that brokers report are dated in the same way. Equal
roles with different epochs mean that the role changed and changed back between two polls: an
"unreachable" row ends the certainty. "stopped" is claimed only when the process is known to be
gone. An admin port that refuses while the process exists (it starts, or it hangs) is "unreachable",
which claims nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from checkers.schema import MONITOR
from harness.interface import LIVE, InfrastructureError, Recorder, Server, Status

UNREACHABLE: Final = "unreachable"
STOPPED: Final = "stopped"

INTERVAL_S: Final = 0.07
SILENCE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Watched:
    """A node that the monitor watches.

    It has a name, a way to ask its broker, and a way to see whether its process exists.
    """

    name: str
    ask: Callable[[], Awaitable[Status]]
    running: Callable[[], Awaitable[bool]]
    look: Callable[[], Status] | None = None
    """The broker's answer at once, for a broker that lives in this very process; else None.

    Raises as ``ask`` does; a broker that is silent raises TimeoutError.
    """

    shares: bool = False
    """True if the node's data lie in a store or a database that its backup uses, too."""


@dataclass(slots=True)
class _Track:
    """The monitor's knowledge of one server.

    ``recorded`` is what the last row says of the server; ``low`` is when the last request that
    confirmed it was sent (ns).
    """

    low: int
    recorded: Server | None = None


class Monitor:
    """A monitor that polls every node's admin port and records ``role`` rows.

    Admin ports are outside every partition. ``run`` watches until it is cancelled. ``roles`` and
    ``statuses`` hold the latest observation for the nemesis, the display and whatever waits for a
    state (``until``).

    Args:
        watched: the nodes, each with a way to ask it and to see whether its process exists.
        recorder: takes the ``role`` rows.
        on_change: called with (node, role) after each row that was recorded.
    """

    def __init__(
        self,
        watched: Sequence[Watched],
        recorder: Recorder,
        *,
        on_change: Callable[[str, str], None] | None = None,
        interval_s: float = INTERVAL_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._watched = tuple(watched)
        self._sharing = {node.name for node in self._watched if node.shares}
        self._recorder = recorder
        self._on_change = on_change
        self._interval_s = interval_s
        self._silence_s = silence_s
        self._roles: dict[str, str] = {node.name: STOPPED for node in self._watched}
        self._statuses: dict[str, Status] = {}
        self._seen = asyncio.Event()

    def roles(self) -> Mapping[str, str]:
        """Return the latest observed role of each node, including "unreachable" and "stopped"."""
        return self._roles

    def statuses(self) -> Mapping[str, Status]:
        """Return the latest answer of each node that answers now."""
        return self._statuses

    async def until(self, holds: Callable[[Mapping[str, Status]], bool], timeout_s: float) -> bool:
        """Wait until ``holds`` is true of the latest answers; return False after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds(self._statuses):
                    await self._seen.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Watch all nodes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for node in self._watched:
                if node.look is None:
                    group.create_task(self._watch(node), name=f"monitor-{node.name}")
            near = [node for node in self._watched if node.look is not None]
            if near:
                group.create_task(self._look_at(near), name="monitor")

    async def _look_at(self, near: Sequence[Watched]) -> None:
        """Look at all given nodes in one turn, as often as the other nodes are asked.

        Question and answer are of the same instant.
        """
        tracks = {node.name: {node.name: _Track(low=self._recorder.now_ns())} for node in near}
        while True:
            now = self._recorder.now_ns()
            for node in near:
                assert node.look is not None
                try:
                    status = node.look()
                except OSError:
                    status = await self._unanswered(node)
                self._update(node.name, tracks[node.name], status, now, now)
            await asyncio.sleep(self._interval_s)

    async def _watch(self, node: Watched) -> None:
        tracks = {node.name: _Track(low=self._recorder.now_ns())}
        while True:
            sent = self._recorder.now_ns()
            observed = await self._observe(node)
            high = self._recorder.now_ns()
            self._update(node.name, tracks, observed, sent, high)
            await asyncio.sleep(self._interval_s)

    async def _observe(self, node: Watched) -> Status:
        """Return the broker's answer, or a status of the monitor's for a gone or silent process."""
        try:
            async with asyncio.timeout(self._silence_s):
                return await node.ask()
        except OSError:
            # This includes TimeoutError: a container that is gone keeps silent, and a process that
            # is gone refuses.
            return await self._unanswered(node)

    async def _unanswered(self, node: Watched) -> Status:
        try:
            has_ended = not await node.running()
        except (OSError, InfrastructureError):
            has_ended = False
        return _our_own(node.name, STOPPED if has_ended else UNREACHABLE)

    def _update(self, node: str, tracks: dict[str, _Track], new: Status, sent: int, arrived: int) -> None:
        """Apply an answer of a node to every server that the node has had.

        The answer may be a status of the monitor's, for a node that did not answer. A server that
        an answer leaves out has been stopped.
        """
        answers = {node: new, **{server.name: server for server in new.others}}
        absent = new if new.role in {UNREACHABLE, STOPPED} else _our_own(node, STOPPED)
        low = tracks[node].low
        for name in dict.fromkeys((*tracks, *answers)):
            track = tracks.setdefault(name, _Track(low=low))
            shares = node in self._sharing
            self._follow(name, track, answers.get(name, absent), sent, arrived, shares=shares)
        last = tracks[node].recorded
        has_answered = last is not None and last.role not in {UNREACHABLE, STOPPED}
        role = STOPPED if last is None else LIVE if has_answered and new.serves else last.role
        self._notice(node, role, new if has_answered else None)

    def _follow(
        self, name: str, track: _Track, new: Server, sent: int, arrived: int, *, shares: bool
    ) -> None:
        """Record the changes of one server since its last row."""
        old = track.recorded
        if new.role == UNREACHABLE:
            # A stopped broker that refuses connections is still not live: it stays "stopped" until
            # it answers. ``low`` stays that of the last answer: nothing is known from there on.
            if old is not None and old.role not in {UNREACHABLE, STOPPED}:
                self._record_role(name, new, track.low, arrived)
                # The server keeps its takeovers, so that a later answer does not record them again.
                track.recorded = msgspec.structs.replace(new, takeovers=old.takeovers)
            return
        same = old is not None and _identity(old) == _identity(new)
        taken_before = () if old is None else old.takeovers
        if not same and not (old is None and new.role == STOPPED):
            if old is not None and old.role == new.role and new.role != STOPPED:
                self._record_role(name, _our_own(name, UNREACHABLE), track.low, arrived)
            self._record_role(name, new, track.low, arrived)
        # The server owns these data from now on: the rules judge by this what the old owner does
        # afterwards, and who else takes them over.
        for taken in new.takeovers:
            if taken not in taken_before:
                self._record("takeover", name, taken.node_id, track.low, arrived, str(taken.life))
        # While a live has no up-to-date backup, what it acknowledges exists nowhere else, which
        # explains a loss. Shared data have no copy that could be out of date.
        was = None if old is None or old.role != LIVE else old.replicating
        if new.role == LIVE and new.replicating is not was and not shares:
            words = "replicated" if new.replicating else "unreplicated"
            self._record("replication", name, new.node_id, track.low, arrived, words)
        track.recorded = new
        track.low = sent

    def _record_role(self, name: str, status: Server, low: int, high: int) -> None:
        life = None if status.life is None or status.role != LIVE else str(status.life)
        self._record("role", name, status.node_id, low, high, life, role=status.role)

    def _record(
        self,
        f: str,
        name: str,
        node_id: str | None,
        low: int,
        high: int,
        value: str | None,
        *,
        role: str | None = None,
    ) -> None:
        self._recorder.event(
            MONITOR,
            "info",
            f,
            broker=name,
            node_id=node_id,
            role=role,
            time_low=low,
            time_high=high,
            value=value,
        )

    def _notice(self, name: str, role: str, status: Status | None) -> None:
        changed = self._roles[name] != role
        self._roles[name] = role
        before = self._statuses.get(name)
        if status is None:
            self._statuses.pop(name, None)
        else:
            self._statuses[name] = status
        if before != status:
            self._seen.set()
            self._seen = asyncio.Event()
        if changed and self._on_change is not None:
            self._on_change(name, role)


def _our_own(name: str, role: str) -> Status:
    """Return the status that the monitor gives a broker that does not answer."""
    return Status(name=name, node_id=None, role=role, epoch=-1)


def _identity(server: Server) -> tuple[str, int, str | None]:
    return server.role, server.epoch, server.node_id
