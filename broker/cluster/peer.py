"""Our link to one other broker: dial it, keep the link, dial again.

Why each broker dials each other: two one-way relations need no agreement on which of the two keeps
which connection, and losing one direction does not hide the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from broker.cluster.link import ClusterLink, LinkError, LinkRefusedError, Terms, connect
from broker.seams import Seams
from broker.section import ClusterSection

_log = logging.getLogger(__name__)


class Peer:
    """Keeps a link to the broker that answers at ``address`` (logical), until ``stop``.

    ``tried`` is set when the first attempt has ended, successfully (the other broker has said whom
    it knows) or not. ``on_open`` is called with each new link before any message is delivered, and
    ``check`` before each attempt with the address and where it leads; it may raise LinkError.
    """

    def __init__(
        self,
        address: str,
        terms: Terms,
        section: ClusterSection,
        seams: Seams,
        on_open: Callable[[Peer, ClusterLink], None],
        check: Callable[[str, tuple[str, int]], Awaitable[None]],
    ) -> None:
        self.address = address
        self.link: ClusterLink | None = None
        self.is_accepted = False
        """True once the other broker has accepted the present link: something came over it."""
        self.refusal = ""
        """Why the other broker refused the last link after its handshake; "" if it did not."""
        self.tried = asyncio.Event()
        self._terms = terms
        self._section = section
        self._seams = seams
        self._on_open = on_open
        self._check = check
        self._hurry = asyncio.Event()
        self._last_error = ""
        self._task = asyncio.create_task(self._run(), name=f"link to {address}")

    def hurry(self) -> None:
        """Dial now, if not linked, because a broker probably answers."""
        self._hurry.set()

    async def stop(self) -> None:
        """Close the link and stop dialling."""
        self.retire()
        await asyncio.gather(self._task, return_exceptions=True)

    def retire(self) -> None:
        """Close the link and stop dialling, as ``stop`` does, without waiting."""
        self._task.cancel()
        if self.link is not None:
            self.link.close("stopping")
        self.tried.set()

    async def _run(self) -> None:
        section = self._section
        wait_s = section.retry_interval / 1000
        attempts = 0
        while True:
            attempts += 1
            self._hurry.clear()
            try:
                target = self._seams.resolve(self.address)
                await self._check(self.address, target)
                link = await connect(
                    self._terms,
                    target,
                    "cluster",
                    opened=self._opened,
                    # An attempt at a dead address must not take longer than a lost link is noticed.
                    timeout_s=min(self._terms.call_timeout_s, self._terms.ttl_s),
                )
            except (LinkError, OSError, TimeoutError, ValueError) as error:
                self._failed(error)
                self.tried.set()
                limit = section.initial_connect_attempts if self._never_linked else section.reconnect_attempts
                if 0 <= limit <= attempts:
                    _log.warning(
                        "cluster: gave up connecting to broker %s after %d attempts", self.address, attempts
                    )
                    return
            else:
                wait_s = section.retry_interval / 1000
                attempts = 0
                self._never_linked = False
                await link.ended.wait()
                self.tried.set()
                if not self.is_accepted:  # Do not try again at once: it answers, but refuses us.
                    self._hurry.clear()
            jitter = 0.5 + self._seams.random.random() / 2
            try:
                async with asyncio.timeout(wait_s * jitter):
                    await self._hurry.wait()
            except TimeoutError:
                wait_s = min(
                    wait_s * section.retry_interval_multiplier,
                    max(section.max_retry_interval, section.retry_interval) / 1000,
                )

    _never_linked = True

    def _opened(self, link: ClusterLink) -> None:
        self.link = link
        self.is_accepted = False
        self._last_error = ""
        self._on_open(self, link)

    def _failed(self, error: Exception) -> None:
        """Log one line per kind of trouble, not one per attempt."""
        text = str(error) or type(error).__name__
        if text != self._last_error:
            self._last_error = text
            level = logging.WARNING if isinstance(error, LinkRefusedError | ValueError) else logging.DEBUG
            _log.log(level, "cluster: cannot connect to broker %s: %s", self.address, text)
