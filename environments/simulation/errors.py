"""What ends a simulation early, and whose fault that is."""

from __future__ import annotations


class DeadlockError(RuntimeError):
    """Nothing can ever happen again and the run has not ended.

    The code under test waits for what never comes.

    The text names each task that waits and where. What the world's tasks held can no longer be
    relied on.
    """


class StallError(RuntimeError):
    """The nodes run without end while no virtual time passes.

    A livelock, such as a callback that schedules itself at once.

    The text names the callbacks that were running. The remedy is to wait for something, or for some
    time.
    """


class EndlessRunError(RuntimeError):
    """The run took many times as many steps as one of its kind does, and has not ended.

    Virtual time passes, so it is no livelock: something is done again and again, such as a request
    that is repeated at once. It is a bug of the code under test or of ours, and the same seed shows
    it again.

    The text names the callbacks that were running when the bound was reached.
    """


class ForbiddenCallError(RuntimeError):
    """Code in a world took something from outside its seams.

    Time, chance, threads or sockets: its seed says no longer what happens.

    The text names the call, the place, and what to use instead. It ends the run even if the caller
    swallows it.
    """
