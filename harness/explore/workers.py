"""The workers that make runs: this process, processes of this machine, or tasks of Spark.

Runs are begun in order, and those that were begun are finished. So, with a number of runs as the
only limit, the first finding is the same whichever workers make them. An interrupt waits for no
run: each can be drawn again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from checkers.cause import in_a_line
from environments import scratch
from harness.explore.runs import ExploredRun
from harness.interface import InfrastructureError

Result = TypeVar("Result")
Work = Callable[[int], ExploredRun]
"""A function that makes the run of a number; picklable."""

_FORKLESS: Final = "spawn"  # a fork would copy half-built state of the parent process
_JOBS_AHEAD: Final = 3
"""The number of Spark jobs at a time: while one waits for its last run, others use the cores."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a search or sweep.

    ``lot`` is the number of runs that they take at once, ``ahead`` how many such lots are begun at
    a time.
    """

    submit: Callable[[Sequence[int]], Future[Sequence[ExploredRun]]]
    lot: int = 1
    ahead: int = 1

    def runs(self, numbers: Iterator[int], last: Callable[[ExploredRun], bool]) -> Iterator[ExploredRun]:
        """Yield the runs as they end, until there are no more numbers, or after a last one."""
        under_way: set[Future[Sequence[ExploredRun]]] = set()
        over = False
        while True:
            while not over and len(under_way) < self.ahead and (batch := list(islice(numbers, self.lot))):
                under_way.add(self.submit(batch))
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for record in (record for future in done for record in future.result()):
                over = over or last(record)
                yield record


@contextlib.contextmanager
def workers(work: Work, jobs: int, spark_master: str | None) -> Iterator[Workers]:
    """Give tasks of Spark if a master is named, else so many processes; one is this one."""
    with (
        on_spark(work, spark_master)
        if spark_master is not None
        else processes(work, jobs)
        if jobs > 1
        else contextlib.nullcontext(Workers(partial(_in_this_process, work)))
    ) as pool:
        yield pool


def _in_this_process(work: Work, numbers: Sequence[int]) -> Future[Sequence[ExploredRun]]:
    future: Future[Sequence[ExploredRun]] = Future()
    future.set_result(_all(work, numbers))
    return future


def _all(work: Work, numbers: Sequence[int]) -> Sequence[ExploredRun]:
    return [work(number) for number in numbers]


@contextlib.contextmanager
def processes(work: Work, jobs: int) -> Iterator[Workers]:
    """Give processes of this machine, which are killed if this process ends early."""
    with scratch.directory("explore") as place:
        pool = ProcessPoolExecutor(
            jobs,
            mp_context=multiprocessing.get_context(_FORKLESS),
            initializer=_begin,
            initargs=(str(place),),
        )
        try:
            yield Workers(lambda numbers: pool.submit(_all, work, numbers), ahead=jobs)
        except (KeyboardInterrupt, GeneratorExit):
            for process in multiprocessing.active_children():
                process.kill()
            raise
        except BrokenProcessPool:
            raise InfrastructureError(
                "a process that simulates was killed, perhaps for lack of memory: try fewer --jobs"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(place: str) -> None:
    """Prepare a worker process, before it does anything else.

    Ctrl-C goes to the whole process group; only the parent decides what it means, and no worker
    outlives the parent. Temporary files of a run lie where the parent removes them, since a process
    that is killed cannot.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = place
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def on_spark(work: Work, master: str | None) -> Iterator[Workers]:
    """Give tasks of Spark, one for each run, in jobs of as many runs as there are cores."""
    spark = in_thread(partial(start_spark, master)).result()
    cores = spark.sparkContext.defaultParallelism
    yield Workers(lambda numbers: in_thread(partial(_job, spark, work, numbers)), cores, _JOBS_AHEAD)


@dataclass(frozen=True, slots=True)
class _Task:
    number: int


def _job(spark: Any, work: Work, numbers: Sequence[int]) -> Sequence[ExploredRun]:
    """Make runs as one job; raise InfrastructureError of a run or of the cluster."""
    from checkers.spark_source import on_tasks  # noqa: PLC0415 - Spark, which most do without

    def task(item: _Task) -> ExploredRun | str:
        try:
            return work(item.number)
        except InfrastructureError as error:
            return str(error)

    with clusters_fault():
        made = on_tasks(spark, [_Task(number) for number in numbers], task)
    for record in made.values():
        if isinstance(record, str):
            raise InfrastructureError(record)
    return [record for record in made.values() if isinstance(record, ExploredRun)]


def in_thread(work: Callable[[], Result]) -> Future[Result]:
    """Do work that waits for Spark in a thread.

    Spark's client takes an interrupt for a broken connection and prints pages about it.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - an error of the work, raised to the waiting caller
            future.set_exception(error)

    threading.Thread(target=run, name="explore-spark", daemon=True).start()
    return future


@contextlib.contextmanager
def clusters_fault() -> Iterator[None]:
    """Raise InfrastructureError for a job that ended because a process or a machine was lost.

    An error within a task is a bug of ours and is passed on.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's, which the command line does without
    from pyspark.errors import PySparkException, PythonException  # noqa: PLC0415 - as above

    try:
        yield
    except PythonException:
        raise
    except (Py4JError, PySparkException, ConnectionError) as error:
        raise InfrastructureError(f"Spark could not end its job: {in_a_line(error)}") from error


def start_spark(master: str | None) -> Any:
    """Return the session; raise InfrastructureError if Spark cannot be started."""
    from checkers import api  # noqa: PLC0415 - as above
    from checkers.java import GatewayError, NoJavaError  # noqa: PLC0415 - as above

    try:
        return api.start(master)
    except (NoJavaError, GatewayError) as error:
        raise InfrastructureError(str(error)) from error


def stop_spark() -> None:
    """Stop Spark at once, whatever it is doing; do nothing if it was never started."""
    from checkers import api  # noqa: PLC0415 - as above

    with contextlib.suppress(Exception):
        api.stop(at_once=True)
