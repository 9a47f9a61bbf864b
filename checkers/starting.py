"""A Spark session on its way, or one that may never be needed.

Why not always at once: a history of a few million rows is judged in this process before a JVM would
have started, so nobody waits for one after a simulated run of two seconds. Where brokers are
deployed it starts meanwhile and costs no time: there Spark decides. Whoever names a master gets it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Starting:
    """A session at ``master``.

    Without one it is every core of this machine, and starts only when it is asked for.

    ``wanted``: Spark is to decide, whatever the size of the history; so it starts now.
    """

    def __init__(self, master: str | None, *, wanted: bool = False) -> None:
        self.wanted = wanted or master is not None
        self._future: Future[SparkSession] = Future()
        self._master = master
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        if self.wanted:
            self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="spark-start", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            from checkers import session  # noqa: PLC0415 - imports Spark, see above

            started = session.start(self._master, hurried=self.wanted)
            if self.wanted:
                session.warm_up(started)
        except BaseException as error:  # noqa: BLE001 - carried to whoever asks for the result
            self._future.set_exception(error)
        else:
            self._future.set_result(started)

    def done(self) -> bool:
        """Whether ``result`` would return at once."""
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> SparkSession:
        """The session; raises what ``session.start`` raises, or TimeoutError."""
        self._begin()
        return self._future.result(timeout_s)

    def stop(self) -> None:
        """End the JVM; a start that is under way is cut off."""
        if self._thread is not None:
            from checkers import session  # noqa: PLC0415 - as above

            session.stop()
            self._thread.join()
            session.stop()  # of a start that had not begun before
