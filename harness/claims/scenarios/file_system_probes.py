"""The demands of multi-instance queue managers on the file system: rows MI3 and MI6.

These are also the demands on the ids on both hosts, as the document on them says.

A mount without locks is made at the seam of system calls, so that it exists on every machine; the
tests of ``filesystems.nfs`` check real NFS mounts. Two hosts whose ids differ are two nodes of a
simulated world.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Final

import msgspec

from broker.filesystem_check.basic import BasicCheck
from broker.filesystem_check.calls import Calls
from broker.filesystem_check.concurrent import ConcurrentCheck
from broker.filesystem_check.mounts import mount_table, unsafe
from broker.filesystem_check.results import CheckResult
from harness.claims.scenarios.probe import Notes, Probe
from harness.claims.scenarios.workbench import ProbeProcess, Workbench, on_bench
from harness.interface import Fault, InfrastructureError, Schedule, TestSpec

_SOURCE: Final = "WMQ"
_PASSED: Final = "The tests on the directory completed successfully."
_LOCK_CALL: Final = "System call: fcntl(fd,F_SETLK,F_WRLCK)"


class NoLocks(Calls):
    """A mount whose server has no locks."""

    def lock(self, descriptor: int, kind: int) -> bool:
        """Raise ENOLCK, as NFS without a lock manager answers."""
        del descriptor, kind
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


class OwnLocks(Calls):
    """A mount with the option nolock: each host has locks of its own."""

    def lock(self, descriptor: int, kind: int) -> bool:
        """Grant the lock, whichever other host has it."""
        del descriptor, kind
        return True


@on_bench
async def _mi3(bench: Workbench) -> None:
    place = bench.directory / "mqdata"
    place.mkdir()
    if problem := unsafe(place, mount_table(), os.environ):
        raise InfrastructureError(f"{place} is no good mount to begin with: {problem}")
    result = await bench.command("brokerctl", "check-filesystem", str(place))
    bench.compare("the basic check of a good mount", (0, [_PASSED]), (result.status, result.lines))
    processes = [
        await bench.start(name, "brokerctl", "check-filesystem", "-c", str(place)) for name in ("one", "two")
    ]
    statuses = [await process.wait() for process in processes]
    bench.compare(
        "-c, on two hosts at once",
        ([0, 0], True),
        (statuses, all(_PASSED in process.output for process in processes)),
    )
    await _wait_for_the_lock(bench, place)
    failed = await BasicCheck(place, NoLocks(_quiet), mount_table(), os.environ).run()
    bench.compare("a mount without locks: the test that fails", ["lock"], _failed(failed))
    first, second = await asyncio.gather(
        *(ConcurrentCheck(place, OwnLocks(_quiet), _quiet, name=name).run() for name in ("one", "two"))
    )
    named = "lock-denied-to-the-other-host"
    bench.compare(
        "-c fails on both hosts if each host has its own locks",
        [True, True],
        [named in _failed(failed_check) for failed_check in (first, second)],
    )


async def _wait_for_the_lock(bench: Workbench, place: Path) -> None:
    """Run -wv on two hosts: the second waits until the first gives the lock back."""
    first = await bench.start("first", "brokerctl", "check-filesystem", "-wv", str(place))
    await _says(bench, first, "File lock acquired")
    second = await bench.start("second", "brokerctl", "check-filesystem", "-wv", str(place))
    await _says(bench, second, "Waiting for the file lock.")
    bench.compare("-wv: the second host does not get the lock", False, "File lock acquired" in second.output)
    await first.type("\n")
    await _says(bench, second, "File lock acquired")
    await second.type("\n")
    bench.compare("-wv: both end", [0, 0], [await first.wait(), await second.wait()])
    bench.compare(
        "-wv prints each call", [True, True], [_LOCK_CALL in process.output for process in (first, second)]
    )


async def _says(bench: Workbench, process: ProbeProcess, words: str) -> None:
    async def has_said() -> bool:
        return words in process.output

    await bench.until(f"{process.name} says {words!r}", words, has_said)


def _failed(results: list[CheckResult]) -> list[str]:
    return [result.test for result in results if not result.passed]


def _quiet(_: str) -> None:
    """Ignore the text: a reader of a probe reads its steps."""


async def _mi6(notes: Notes) -> None:
    from harness.run.simulate import simulate  # noqa: PLC0415 - a whole world, which no other probe needs

    spec = TestSpec(
        name="mi6",
        policy="multi-instance",
        pairs=1,
        time_limit_s=6.0,
        rate=60.0,
        producers=2,
        consumers=2,
        groups=2,
    )
    late = Schedule(faults=(Fault(kind="late-start", start_s=0.0, duration_s=2.0, target="a2"),))
    for identity, ids, identities in (
        ("uid", {"uid.a2": 502}, "uid 502, gid 501"),
        ("gid", {"gid.a2": 502}, "uid 501, gid 502"),
    ):
        result = await asyncio.to_thread(
            simulate, msgspec.structs.replace(spec, properties={"store": ids}), late
        )
        log = result.logs["a2"]
        (notes.directory / f"{identity}.log").write_text("\n".join([*log, *result.logs["a1"]]) + "\n")
        errors = {line.partition(" ERROR a2 ")[2] for line in log if " ERROR " in line}
        expected = (
            f"qmgrs/QMA belongs to uid 501, gid 501, and this instance runs as {identities}:"
            " both must have the same numbers on all machines (usermod -u, groupmod -g); nothing was changed"
        )
        notes.compare(f"the second host has another {identity}", [expected], sorted(errors))
        became = {row["role"] for row in result.rows if row["f"] == "role" and row["broker"] == "a2"}
        notes.compare(
            "the second instance becomes neither live nor backup", [], sorted(became & {"live", "backup"})
        )
        notes.compare("the queue manager goes on undamaged", True, result.valid)


PROBES: Final = (
    Probe(
        id="MI3",
        claim="the file system check (amqmfsck) has a basic test, a concurrent test (-c) and a lock "
        "wait (-wv, prints each call)",
        source=_SOURCE,
        expected="a good mount passes; on a mount without locks the check names the test that fails",
        take=_mi3,
    ),
    Probe(
        id="MI6",
        claim="user and group ids must be the same on both hosts",
        source=_SOURCE,
        expected="an instance with other ids ends with a clear error before it does any damage",
        take=_mi6,
        place="in the simulation",
    ),
)
