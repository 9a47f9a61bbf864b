"""The Spark session of this process: one JVM, which ends with the process.

The first ``start`` takes many seconds. ``checkers.starting`` calls it in a thread and then judges a
small made-up history once (``warm_up``), so that the code of the real plan is loaded, generated and
compiled before the test ends.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from checkers import executors, java
from checkers.gateway import Gateway
from checkers.java import GatewayError

_HEAP_MAX_MB: Final = 5 * 1024
_HEAP_MIN_MB: Final = 1024
_HEAP_SHARE: Final = 0.35  # a part of the memory: the cluster under test runs here, too
_EXECUTORS_S: Final = 60.0
_TRIES: Final = 5
"""The number of executors that may end before one lives; after so many, none will."""
_POLL_S: Final = 0.05
_STARTING: Final = "Error initializing SparkContext."  # Spark logs this for every error at its start

_lock: Final = threading.RLock()
_gateway: Gateway | None = None


def heap_mb() -> int:
    """Return the size of the JVM's heap in MiB.

    With the other memory that Java and Python need, the process stays under 8 GB.
    """
    try:
        machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return 2 * _HEAP_MIN_MB
    return max(_HEAP_MIN_MB, min(_HEAP_MAX_MB, int(machine_mb * _HEAP_SHARE)))


def start(master: str | None = None, *, hurried: bool = False) -> SparkSession:
    """Return the session of this process; start it if there is none yet.

    ``master`` None means every core of this machine.

    ``hurried`` is for one history of a run that has just ended (see ``Gateway``), not for tens of
    millions of rows.

    On a cluster, tasks run the Python of PYSPARK_PYTHON, else one with the same path as here.

    Raises checkers.java.NoJavaError or checkers.gateway.GatewayError if the machine cannot run
    Spark; the message says what would mend it.
    """
    global _gateway  # noqa: PLW0603 - a process has one SparkContext, so one JVM
    with _lock:
        active = SparkSession.getActiveSession()
        if active is not None and active.sparkContext._jsc is not None:  # noqa: SLF001 - no public way to ask
            return active
        if _gateway is None:
            _gateway = Gateway(java.find(), heap_mb(), hurried=hurried)
            atexit.register(stop)
        if not _elsewhere(master) or "PYSPARK_PYTHON" not in os.environ:
            os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        try:
            handle = _gateway.connect()
            SparkContext._ensure_initialized(gateway=handle)  # noqa: SLF001 - the only way in for a gateway of one's own
            session = SparkSession.builder.config(
                conf=_configuration(master, _gateway.directory)
            ).getOrCreate()
            if master is not None and _elsewhere(master):
                _wait_for_executors(session, master, _gateway)
        except Py4JError as error:
            words = _words(error, _gateway, master or "")  # it asks the JVM, which must not have ended
            stop()
            raise GatewayError(f"Spark did not start at {master or 'local[*]'}: {words}") from None
        except BaseException:
            stop()
            raise
        return session


def _elsewhere(master: str | None) -> bool:
    """Return whether tasks run in other JVMs than the driver's, with their own Python workers."""
    return master is not None and re.fullmatch(r"local(\[.*\])?", master) is None


def _wait_for_executors(session: SparkSession, master: str, gateway: Gateway) -> None:
    """Wait until an executor lives; raise GatewayError if none does.

    Why: Spark itself would wait for ever, without a message.
    """
    give_up = time.monotonic() + _EXECUTORS_S
    context = session.sparkContext._jsc.sc()  # noqa: SLF001 - no public way to ask
    while context.getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if executors.ended(gateway.log()) >= _TRIES:
            raise GatewayError(
                f"Spark at {master} gave no executor: they end at once: "
                f"{executors.last_words(master, gateway.log())}"
            )
        if time.monotonic() > give_up:
            last_reason = executors.last_words(master, gateway.log())
            raise GatewayError(
                f"Spark at {master} gave no executor within {_EXECUTORS_S:.0f} s: it needs a worker "
                "with a free core and "
                f"{os.environ.get('SPARK_EXECUTOR_MEMORY', '1g')} of memory (SPARK_EXECUTOR_MEMORY) "
                "that can connect to this machine (SPARK_LOCAL_IP)"
                + (f"; the last one ended: {last_reason}" if last_reason is not None else "")
            )
        time.sleep(_POLL_S)


def _words(error: Py4JError, gateway: Gateway, master: str) -> str:
    """Return why Spark did not start, in one line.

    That is the last error of its executors, else its last error in the log, which says more than
    the exception.
    """
    ended = executors.last_words(master, gateway.log())
    if ended is not None:
        return f"its executors ended: {ended}"
    logged = [line for line in gateway.errors() if line != _STARTING]
    try:
        return logged[-1] if logged else str(error.java_exception.getMessage()).splitlines()[0]
    except (AttributeError, Py4JError, OSError, IndexError):
        return type(error).__name__


def _configuration(master: str | None, scratch: Path) -> SparkConf:
    cores = os.cpu_count() or 1
    chosen = master or "local[*]"
    settings = {
        "spark.app.name": "jepsen-run",
        "spark.master": chosen,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": "checkers.worker",
        # It walks the stack for every column expression, for messages that are never shown.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Tasks go to the files, and nothing is planned twice. Compiling code that runs once would
        # take longer than running it.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.files.maxPartitionBytes": "256m",
        # Python's workers keep the memory that one rule frees for the next rule: getting each array
        # from the kernel anew takes a tenth of their time.
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(512 * 2**20),
        "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",  # Arrow's allocator likewise
        "spark.cleaner.periodicGC.interval": "60min",
        "spark.driver.maxResultSize": "1g",
    }
    if chosen.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def process_id() -> int:
    """Return the process id of the JVM, to measure it; raise RuntimeError if none runs."""
    if _gateway is None:
        raise RuntimeError("no Spark session was started by this process")
    return _gateway.process.pid


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def stop(*, at_once: bool = False) -> None:
    """End the session and its JVM; no Java process is left behind.

    It may be called at any time, and more than once.

    ``at_once`` is for an interrupt: it cuts off Spark's work, and a thread that waits for that gets
    an error. If another thread is starting the session, its start is cut off in any case.
    """
    global _gateway
    # py4j logs errors about a JVM that ended, partly by the root logger. They are of no use: py4j
    # raises all of them, too.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)
    while not _lock.acquire(timeout=_POLL_S):
        if _gateway is not None:
            _gateway.kill()
    try:
        gateway, _gateway = _gateway, None
        if gateway is None:
            return
        if at_once:
            _kill(gateway)
        atexit.unregister(stop)
        with contextlib.suppress(Exception):  # a JVM that has died already has nothing left to stop
            active = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001
            if active is not None:
                active.stop()
        with contextlib.suppress(Exception):
            handle = SparkContext._gateway  # noqa: SLF001
            if handle is not None:
                handle.shutdown()
        # A later start must get a JVM of its own, whatever an unfinished stop left behind.
        SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
        SparkContext._gateway = None  # noqa: SLF001
        SparkContext._jvm = None  # noqa: SLF001
        SparkContext._active_spark_context = None  # noqa: SLF001 - still there where the start failed half way
        gateway.close()
    finally:
        _lock.release()


def _kill(gateway: Gateway) -> None:
    """End the JVM without PySpark's traceback about a server whose peer is gone."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - no public way to ask
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
    gateway.kill()


def warm_up(spark: SparkSession) -> None:
    """Judge a made-up history with every rule, so that the next history is judged quickly."""
    from checkers.warmup import judge_once  # noqa: PLC0415 - it imports the judge, which is not needed before

    judge_once(spark)
