"""A Spark session that starts in the background, or only when it is needed.

Why not always at once: this process judges a history of a few million rows before a JVM would have
started, so no simulated run of two seconds waits for one. Where brokers are deployed, Spark judges;
it starts while they run and costs no time. It also starts at once if a master is named.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Starting:
    """A Spark session at ``master`` that is starting or may be started.

    Without a master it uses every core of this machine, and starts only when it is asked for.
    ``wanted``: Spark shall judge, whatever the size of the history; so the session starts at once.
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
        except BaseException as error:  # noqa: BLE001 - raised again when the result is asked for
            self._future.set_exception(error)
        else:
            self._future.set_result(started)

    def done(self) -> bool:
        """Return whether ``result`` would return at once."""
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> SparkSession:
        """Return the session; raise TimeoutError, or what ``session.start`` raises."""
        self._begin()
        return self._future.result(timeout_s)

    def stop(self) -> None:
        """End the JVM; a start that is under way is cut off."""
        if self._thread is not None:
            from checkers import session  # noqa: PLC0415 - as above

            session.stop()
            self._thread.join()
            session.stop()  # ends a start that had not begun before
