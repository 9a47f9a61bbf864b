"""``jepsen-run search``: simulated runs drawn one after the other until one breaks the guarantee.

Why in the simulation only: a run costs a second or two there, and the one that fails can be had
again, made smaller and looked into. Each run has a phase under faults; then everything heals, and
the run itself demands that every pair serves, operations succeed and queues drain ("not-recovered",
"stuck", "unavailable" are findings). What a campaign of runs never saw is named, because it was
never tested.

A run is decided by the seed of the search and its own number. Runs are begun in order and those
that were begun are finished, so that with a number of runs as the only limit the first finding is
the same however many processes there are.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import msgspec

from environments import scratch
from harness.explore.campaign import FILE as CAMPAIGN
from harness.explore.campaign import Tally, Tried, campaign, closing, counts, how, run_seed
from harness.explore.shrink import shrink as shrinking
from harness.explore.swarm import Swarm, draw
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import InfrastructureError
from harness.report.summary import size
from harness.run import reproduction
from harness.run.simulate import Simulated, simulate
from nemesis.registry import KINDS

TOLD_EVERY_S: Final = 10.0
_FORKLESS: Final = "spawn"  # a fork would take half-built state of whoever starts a search along


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a search was asked for.

    ``runs`` or ``time_limit_s`` None is without that limit; ``jobs`` are processes.

    ``shrink_limit_s`` is for making a finding smaller afterwards; 0 leaves it as it was found.
    """

    swarm: Swarm
    seed: int
    runs: int | None = None
    time_limit_s: float | None = None
    jobs: int = 1
    keep_going: bool = False
    shrink_limit_s: float = shrinking.SECONDS
    root: Path = stores.DEFAULT
    as_json: bool = False


def attempt(swarm: Swarm, seed: int, number: int) -> Tried:
    """Draw and run one. An error of ours is an answer too: the search must say which run it was."""
    spec, schedule = draw(swarm, run_seed(seed, number))
    try:
        run = simulate(spec, schedule)
    except Exception:  # noqa: BLE001 - told with its seed, and ends the search as a bug
        return Tried(number=number, spec=spec, schedule=schedule, bug=traceback.format_exc())
    return Tried(
        number=number,
        spec=run.spec,
        schedule=schedule,
        valid=run.valid,
        grave=run.grave,
        trouble=run.trouble,
        virtual_s=run.virtual_s,
        coverage=run.coverage,
    )


def tried(request: Request) -> Generator[Tried, None, None]:
    """The runs of a search as they end, until a limit, or until one ends invalid or by a bug
    (unless told to keep going).

    Closing the iterator, or an interrupt, ends the processes at once.
    """
    deadline = None if request.time_limit_s is None else time.monotonic() + request.time_limit_s

    def open_for(number: int) -> bool:
        below = request.runs is None or number < request.runs
        return below and (deadline is None or time.monotonic() < deadline)

    yield from _alone(request, open_for) if request.jobs == 1 else _together(request, open_for)


def _stops(request: Request, one: Tried) -> bool:
    return bool(one.bug) or (one.valid is False and not request.keep_going)


def _alone(request: Request, open_for: Callable[[int], bool]) -> Iterator[Tried]:
    number = 0
    while open_for(number):
        one = attempt(request.swarm, request.seed, number)
        yield one
        if _stops(request, one):
            return
        number += 1


def _together(request: Request, open_for: Callable[[int], bool]) -> Iterator[Tried]:
    with scratch.directory("search") as place:
        pool = ProcessPoolExecutor(
            request.jobs,
            mp_context=multiprocessing.get_context(_FORKLESS),
            initializer=_begin,
            initargs=(str(place),),
        )
        yield from _shared_out(request, open_for, pool)


def _shared_out(
    request: Request, open_for: Callable[[int], bool], pool: ProcessPoolExecutor
) -> Iterator[Tried]:
    under_way: set[Future[Tried]] = set()
    number, stopping = 0, False
    try:
        while True:
            while not stopping and len(under_way) < request.jobs and open_for(number):
                under_way.add(pool.submit(attempt, request.swarm, request.seed, number))
                number += 1
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                one = future.result()
                stopping = stopping or _stops(request, one)
                yield one
    except (KeyboardInterrupt, GeneratorExit):
        # Nobody waits for the runs that are under way: they take as long as they take, and can be
        # drawn again.
        for process in multiprocessing.active_children():
            process.kill()
        raise
    except BrokenProcessPool:
        raise InfrastructureError(
            "a process of the search was killed, perhaps for lack of memory: try fewer --jobs"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(place: str) -> None:
    """The first thing that a process of the search does.

    Ctrl-C goes to the whole group; the searcher alone decides what it means. What a run needs on
    the disk lies where the searcher removes it, as a process that is killed cannot.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = place


def run(request: Request) -> int:
    """Search, tell, keep; the exit status.

    1 if something was found, 0 if not, 2 if no run could be decided.
    """
    talk = sys.stderr if request.as_json else sys.stdout
    tally = Tally()
    began = told = time.monotonic()
    interrupted = False
    _tell(talk, "\n".join(_opening(request)))
    trying = tried(request)
    try:
        for one in trying:
            tally.add(one)
            if one.word != "valid":
                _tell(talk, f"  run {one.number}: {how(one)}")
            if time.monotonic() - told >= TOLD_EVERY_S:
                told = time.monotonic()
                _tell(talk, f"  {counts(tally, told - began)}")
    except KeyboardInterrupt:
        interrupted = True
        _tell(talk, "interrupted: what was tried is kept")
    finally:
        trying.close()
    real_s = time.monotonic() - began
    store = stores.create(request.root, f"search-{request.swarm.base.policy}")
    found = tally.first("invalid")
    smallest: Simulated | None = None
    kept: Path | None = None
    if found is not None:
        origin = f"search {run_seed(request.seed, found.number)}"
        try:
            if not interrupted:
                smallest = simulate(found.spec, found.schedule)
                _same(found, smallest)
                smallest = _shrunk(request, smallest, talk)
        except KeyboardInterrupt:
            interrupted = True
            _tell(talk, "interrupted: what was found is kept as it is")
        if smallest is not None:
            kept = reproduction.keep(store, smallest, origin)
        else:
            bare = reproduction.of_found(found.spec, found.schedule, found.grave, origin)
            kept = stores.save(store, reproduction.FILE, bare)
    stopped = "interrupted" if interrupted else _stopped(request, tally)
    ended = campaign(tally, request.swarm, request.seed, real_s=real_s, stopped=stopped, kept=kept)
    stores.save(store, CAMPAIGN, ended)
    _tell(talk, "\n".join(closing(tally, ended, store, smallest)))
    if request.as_json:
        print(msgspec.json.format(msgspec.json.encode(ended), indent=1).decode())
    return judging.INTERRUPTED if interrupted else tally.status


def _stopped(request: Request, tally: Tally) -> str:
    """What ended a search that nobody interrupted."""
    if tally.ended["failed"]:
        return "a bug of jepsen-run"
    if tally.ended["invalid"] and not request.keep_going:
        return "a finding"
    return "all runs" if tally.runs == request.runs else "the time limit"


def _same(found: Tried, again: Simulated) -> None:
    assert again.grave == found.grave, (
        f"run {found.number} found {sorted(found.grave)}, and {sorted(again.grave)} when it was run again"
    )


def _shrunk(request: Request, run: Simulated, talk: TextIO) -> Simulated:
    """The run made smaller, if there is time for it and anything that can be taken away."""
    if not request.shrink_limit_s:
        return run
    anomaly = reproduction.ordered(run.grave)[0]
    _tell(talk, f"shrinking: {anomaly} with {shrinking.describe(shrinking.Case(run.spec, run.schedule))}")
    result = shrinking.shrink(
        run,
        anomaly,
        budget=shrinking.Budget(seconds=request.shrink_limit_s),
        tell=lambda text: _tell(talk, f"  {text}"),
    )
    why = "nothing more can be taken away" if result.complete else "the budget ended it"
    _tell(talk, f"  {result.runs} runs in {result.seconds:.0f} s: {why}")
    return result.evidence


def _opening(request: Request) -> Iterator[str]:
    swarm, base = request.swarm, request.swarm.base
    limits = [
        *([] if request.runs is None else [f"{request.runs} runs"]),
        *([] if request.time_limit_s is None else [f"{request.time_limit_s:g} s"]),
    ]
    yield (
        f"search: policy {base.policy}, {size(swarm.nodes)}, workload {base.workload}, "
        f"{base.time_limit_s:g} s of load a run, seed {request.seed}; at most "
        f"{' or '.join(limits) or 'for ever'}, "
        f"{request.jobs} {'process' if request.jobs == 1 else 'processes'}"
    )
    yield f"faults drawn from: {', '.join(swarm.kinds)}"
    if swarm.bounded and not base.nemeses:
        for name, kind in KINDS.items():
            why = kind.unpromised or kind.wants_quorum
            if why and name not in swarm.kinds:
                yield f"  not {name}: {why}"


def _tell(talk: TextIO, text: str) -> None:
    print(text, file=talk, flush=True)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


__all__ = ["CAMPAIGN", "Request", "attempt", "cores", "run", "tried"]
