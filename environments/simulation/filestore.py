"""The file server of a world.

It has files that several machines share, with the leases, locks and grace period of NFSv4.

Why so much of NFS and so little of files: brokers on a shared store do not break because bytes get
lost, but because of who is believed to hold a lock. So the server forgets a silent client when its
lease runs out. It refuses what that client then sends under its old locks and open files
(NFS4ERR_EXPIRED). It may stand still with requests in its socket. It does them when it goes on,
though the clients that waited for them may be long gone. After a restart, it gives its clients a
grace period to claim what they held, and gives nothing new to anybody (RFC 7530, 9.6).

A request that names a path needs no open file, so it is *not* refused: a rename that a client had
sent before it lost its lease may still happen. The client's side is `mount`. Whatever was answered
is on the server's disk.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from environments.simulation.scheduler import Scheduler
from environments.simulation.trace import Trace

LATENCY_S: Final = (0.0001, 0.0006)
"""The time from client to server, or back."""

SERVICE_S: Final = (0.0002, 0.0008)
"""The time of a change of a file, with its way to the server's disk."""

RENEWAL: Final = 1 / 3
"""The share of a lease after which a client renews it: its last renewal is at most that old."""

State = Literal["up", "stalled", "down"]


class ExpiredError(OSError):
    """The client's lease ran out: it has lost what it had locked and opened."""

    def __init__(self, path: str) -> None:
        super().__init__(
            errno.EIO, "input/output error (NFS4ERR_EXPIRED: the lease of this client ran out)", path
        )


@dataclass(slots=True, eq=False)
class StoredFile:
    """The bytes of a file under one or more names."""

    data: bytearray = field(default_factory=bytearray)

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes at an offset; a gap between the end and the offset is filled with zeros."""
        self.data.extend(bytes(max(0, offset - len(self.data))))
        self.data[offset : offset + len(data)] = data


@dataclass(slots=True, eq=False)
class Client:
    """The server's record of one machine; ``generation`` grows with each loss of its state."""

    name: str
    generation: int = 0
    cut: bool = False
    expires_ns: int | None = None
    """The end of its lease, unless the client is heard again; None while it is heard."""
    parked: list[FileRequest] = field(default_factory=list)
    """The requests that it cannot send, and replies (``answered``) that cannot reach it."""


@dataclass(slots=True, eq=False)
class Lock:
    """A locked byte of a file."""

    path: str
    offset: int
    client: Client
    generation: int
    process: int


@dataclass(slots=True, eq=False)
class FileRequest:
    """A call on its way.

    ``answer`` gets the result of ``work``, if a caller wants it. ``abandoned`` says that no caller
    waits, and that the request is not sent again.
    """

    client: Client
    work: Callable[[], Any]
    answer: asyncio.Future[Any] | None = None
    new_state: bool = True
    """True if the request asks for something that the client does not hold yet.

    Such a request has to wait for the end of a grace period.
    """
    changes: bool = False
    abandoned: bool = False
    answered: bool = False
    result: Any = None
    error: OSError | None = None


class FileServer:
    """An exported directory. ``lease_s`` and ``grace_s`` are as in the server's configuration."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        trace: Trace,
        chance: random.Random,
        *,
        lease_s: float,
        grace_s: float,
    ) -> None:
        self.name = name
        self.files: dict[str, StoredFile] = {}
        self.directories: set[str] = set()
        self.owners: dict[str, tuple[int, int]] = {}
        """Directory -> user and group of the process that made it."""
        self.state: State = "up"
        self.locks: dict[tuple[str, int], Lock] = {}
        self._clients: dict[str, Client] = {}
        self._scheduler = scheduler
        self._trace = trace
        self._chance = chance
        self._lease_ns = round(lease_s * 1e9)
        self._grace_ns = round(grace_s * 1e9)
        self._grace_until_ns = 0
        self._stalled_since_ns = 0
        self._backlog: list[FileRequest] = []

    @property
    def in_grace(self) -> bool:
        """True while the server grants only what was held before the restart."""
        return self._scheduler.now_ns < self._grace_until_ns

    def client(self, name: str) -> Client:
        """Return the record of the machine of that name."""
        return self._clients.setdefault(name, Client(name))

    def remove(self, path: str) -> None:
        """Remove a name and the locks of its file, so that a new file of this name has none."""
        self.files.pop(path, None)
        for place in [place for place in self.locks if place[0] == path]:
            del self.locks[place]

    # ------------------------------------------------------------------------------------- requests

    def send(self, request: FileRequest) -> None:
        """Take a request from a client's kernel; it arrives, if it can, a moment later."""
        self._after(LATENCY_S, lambda: self._arrive(request))

    def _arrive(self, request: FileRequest) -> None:
        if request.client.cut or self.state == "down":
            request.client.parked.append(request)
        elif self.state == "stalled":
            self._backlog.append(request)
        elif request.new_state and self.in_grace:
            self._scheduler.at(self._grace_until_ns, lambda: self._arrive(request))
        elif request.changes:
            self._after(SERVICE_S, lambda: self._do(request))
        else:
            self._do(request)

    def _do(self, request: FileRequest) -> None:
        if self.state != "up":
            self._arrive(request)
            return
        self._reap()
        try:
            request.result = request.work()
        except OSError as error:
            request.error = error
        request.answered = True
        self._after(LATENCY_S, lambda: self._reply(request))

    def _reply(self, request: FileRequest) -> None:
        if request.client.cut or self.state != "up":
            request.client.parked.append(request)
        elif not request.abandoned and request.answer is not None and not request.answer.done():
            if request.error is None:
                request.answer.set_result(request.result)
            else:
                request.answer.set_exception(request.error)

    def _resend(self, client: Client) -> None:
        """Let a reachable client repeat what was not answered and is still waited for."""
        parked, client.parked = client.parked, []
        for request in parked:
            if request.answered:
                self._after(LATENCY_S, lambda request=request: self._reply(request))  # type: ignore[misc]
            elif not request.abandoned:
                self.send(request)

    def _after(self, range_s: tuple[float, float], call: Callable[[], None]) -> None:
        delay_ns = round(self._chance.uniform(*range_s) * 1e9)
        self._scheduler.at(self._scheduler.now_ns + delay_ns, call)

    # --------------------------------------------------------------------------------------- leases

    def silence(self, client: Client) -> None:
        """Note that the client is not heard any more (its cable, its power).

        Its lease runs from its last renewal.
        """
        if client.expires_ns is None:
            age_ns = round(self._chance.uniform(0, RENEWAL) * self._lease_ns)
            client.expires_ns = self._scheduler.now_ns + self._lease_ns - age_ns

    def heard(self, client: Client) -> None:
        """Note that the client is heard again, too late if its lease has run out."""
        if self.state == "up":
            self._reap()
        client.expires_ns = None
        self._resend(client)

    def expire(self, client: Client) -> None:
        """Forget what the client holds."""
        client.generation += 1
        client.expires_ns = None
        for place in [place for place, lock in self.locks.items() if lock.client is client]:
            del self.locks[place]
        self._tell(f"{client.name} lost its state")

    def _reap(self) -> None:
        now = self._scheduler.now_ns
        for client in self._clients.values():
            if client.expires_ns is not None and now >= client.expires_ns:
                self.expire(client)

    # ---------------------------------------------------------------------- the server's own faults

    def set_state(self, state: State) -> None:
        """Stall the server, take it down, or let it go on.

        A server that was stalled does what is in its socket. A restarted one begins with a grace
        period.
        """
        before, self.state = self.state, state
        if state == before:
            return
        self._tell(f"server {state}")
        now = self._scheduler.now_ns
        if state == "stalled":
            self._stalled_since_ns = now
        elif state == "down":
            # The requests in its socket are lost with it; clients that still wait send them again.
            for request in self._backlog:
                request.client.parked.append(request)
            self._backlog.clear()
        elif before == "stalled":
            self._go_on(now)
        else:
            self._grace_until_ns = now + self._grace_ns
            for client in self._clients.values():
                if client.expires_ns is not None:
                    client.expires_ns = self._grace_until_ns
        if state == "up":
            for client in self._clients.values():
                if not client.cut:
                    self._resend(client)

    def _go_on(self, now: int) -> None:
        """Go on after a stall, in which no client could renew its lease.

        The order of the look at the leases and of the renewals in the socket is random, since no
        server promises one.
        """
        for client in self._clients.values():
            age_ns = round(self._chance.uniform(0, RENEWAL) * self._lease_ns)
            over = now - self._stalled_since_ns + age_ns > self._lease_ns
            if over and client.expires_ns is None and self._chance.random() < 0.5:
                self.expire(client)
        backlog, self._backlog = self._backlog, []
        for request in backlog:
            self._arrive(request)

    def _tell(self, what: str) -> None:
        self._trace.record(self._scheduler.now_ns, f"store {self.name}", what)
