"""The errors that end a simulation early, each of which says whose fault it is."""

from __future__ import annotations


class DeadlockError(RuntimeError):
    """Nothing can ever happen again and the run has not ended.

    The code under test waits for something that never comes.

    The text names each task that waits and where. What the world's tasks held can no longer be
    relied on.
    """


class StallError(RuntimeError):
    """The nodes run without end while no virtual time passes.

    This is a livelock, such as a callback that schedules itself at once.

    The text names the callbacks that were running. The remedy is to wait for something, or for some
    time.
    """


class EndlessRunError(RuntimeError):
    """The run took many times as many steps as usual for its kind, and has not ended.

    Virtual time passes, so it is no livelock. Something is done again and again, such as a request
    that is repeated at once. It is a bug of the code under test or of ours, and the same seed shows
    it again.

    The text names the callbacks that were running when the bound was reached.
    """


class ForbiddenCallError(RuntimeError):
    """Code in a world used time, chance, threads or sockets outside its seams.

    The seed then does not decide any more what happens.

    The text names the call, the place, and what to use instead. It ends the run even if the caller
    swallows it.
    """
