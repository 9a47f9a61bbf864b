"""An event loop whose time the test advances.

No sockets, no waiting, the same order of callbacks in every run.

Why the stock loop with another selector: order of callbacks, tasks and timers are asyncio's own, so
what holds here holds on the real loop. ``inside`` lets a test call the broker synchronously without
giving the loop a turn, and ``turn`` gives exactly one: a rule of a state machine then decides how
much may happen between two calls.
"""

import asyncio
import contextlib
import selectors
from asyncio import events

RESOLUTION_S = 1e-6
"""Timers that are due within it are due now, as on the stock loop."""


class StuckError(AssertionError):
    """Nothing is ready and no timer is set: what is awaited can never happen."""


class _Clock:
    """Stands where the selector does: instead of waiting for a file, time passes."""

    def __init__(self, loop):
        self._loop = loop

    def select(self, timeout):
        if timeout is None:
            raise StuckError("nothing will ever happen on this loop")
        self._loop.now += max(timeout, 0.0)
        return []

    def close(self):
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """``complaints`` has what callbacks raised and nobody caught.

    On a real loop it would only be logged.
    """

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.complaints = []
        self._selector = _Clock(self)
        self._clock_resolution = RESOLUTION_S
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    def time(self):
        return self.now

    def _process_events(self, event_list: list[tuple[selectors.SelectorKey, int]]):
        pass

    def _write_to_self(self):
        pass

    @contextlib.contextmanager
    def inside(self):
        """Within it this loop is the running one, but does not run.

        What is called soon stays for the next turn.
        """
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(None)

    def run(self, work):
        """Await something, with as many turns and as much time as it takes."""
        return self.run_until_complete(work)

    def turn(self, count=1):
        """Run what is ready, and what that makes ready only in the next turn. Time stands still."""
        for _ in range(count):
            if not self._busy():
                return
            self.call_soon(self.stop)
            self.run_forever()

    def settle(self):
        """Turn until nothing is ready. Time stands still."""
        for _ in range(100_000):
            if not self._busy():
                return
            self.turn()
        raise StuckError("the loop never comes to rest")

    def advance(self, seconds):
        """Let time pass, timer by timer, each with all that follows from it."""
        end = self.now + seconds
        self.settle()
        while self._scheduled and self._scheduled[0]._when < end + RESOLUTION_S:
            self.now = max(self.now, min(self._scheduled[0]._when, end))
            self.settle()
        self.now = end

    def until(self, condition, seconds):
        """Let time pass, timer by timer, until the condition holds, but no longer than
        ``seconds``.
        """
        end = self.now + seconds
        self.settle()
        while not condition() and self._scheduled and self._scheduled[0]._when <= end:
            self.now = max(self.now, self._scheduled[0]._when)
            self.settle()

    def _busy(self):
        return self._ready or (self._scheduled and self._scheduled[0]._when < self.now + RESOLUTION_S)

    def discard(self):
        """Cancel what still runs and close."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.close()
