"""How many durable appends a second the journal takes.

Beside a plain file on the same disk in the same minutes.

Why: ten thousand durable messages a second through a broker (DESIGN.md) leave the journal a small
part of 100 microseconds each. Usage: ``python -m bench.journal [--seconds 5] [--directory DIR]``;
the directory decides which disk is measured.

Three figures per round: what an ``append`` of a 200-byte record costs the loop; durable appends a
second with a window of appends outstanding, as many clients waiting for their receipts make it; the
same number of bytes written to a plain file with as many fdatasyncs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from broker.storage.directory import DirectoryVolume
from broker.storage.entry import ADD, DELETE, Operation
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.options import JournalOptions

RECORD = b"x" * 200


async def append_cost_us(count: int = 50_000) -> float:
    """Microseconds of one append, flushes (to memory) not counted."""
    journal, _ = await Journal.open(MemoryVolume(), "journal", JournalOptions(compact_min_files=0))
    spent_s = 0.0
    for _ in range(count // 500):
        operations = [[Operation(ADD, 1, journal.next_id(), RECORD)] for _ in range(500)]
        begin = time.perf_counter()
        for one in operations:
            journal.append(one)
        spent_s += time.perf_counter() - begin
        await journal.flush()
    await journal.close()
    return spent_s / count * 1e6


async def durable(
    directory: Path, seconds: float, window: int, loading: str
) -> tuple[float, float, int, int]:
    """Measures durable appends with ``window`` of them outstanding.

    Returns (appends a second, median milliseconds to durable, bytes, syncs).

    ``loading`` "add" only adds; "queue" deletes each record a thousand later, as consumers do, so
    that segments are reclaimed.
    """
    volume = DirectoryVolume(directory)
    journal, _ = await Journal.open(volume, "journal")
    loop = asyncio.get_running_loop()
    begin = loop.time()
    end = begin + seconds
    sent: dict[int, float] = {}
    waits: list[float] = []
    syncs = 0
    written = 0
    done = loop.create_future()

    def fill() -> None:
        nonlocal written
        now = loop.time()
        while journal.last_sequence - journal.synced < window:
            id_ = journal.next_id()
            operations = [Operation(ADD, 1, id_, RECORD)]
            if loading == "queue" and id_ > 1000:
                operations.append(Operation(DELETE, 1, id_ - 1000))
            sequence = journal.append(operations)
            written += sum(14 + len(one.data) for one in operations) + 16
            if sequence % 64 == 0:
                sent[sequence] = now

    def on_synced(sequence: int) -> None:
        nonlocal syncs
        syncs += 1
        now = loop.time()
        waits.extend(now - sent.pop(one) for one in [one for one in sent if one <= sequence])
        if now < end:
            fill()
        elif not done.done():
            done.set_result(None)

    journal.on_synced = on_synced
    fill()
    await done
    rate = journal.synced / (loop.time() - begin)
    await journal.close()
    await volume.close()
    return rate, sorted(waits)[len(waits) // 2] * 1000, written, syncs


def plain(directory: Path, size: int, syncs: int) -> float:
    """Seconds to append so many bytes to one file, with so many fdatasyncs, evenly."""
    chunk = bytes(max(1, size // max(1, syncs)))
    descriptor = os.open(directory / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begin = time.perf_counter()
    for _ in range(syncs):
        os.write(descriptor, chunk)
        os.fdatasync(descriptor)
    spent_s = time.perf_counter() - begin
    os.close(descriptor)
    return spent_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Durable appends a second through the journal.")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round")
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to measure")
    arguments = parser.parse_args()
    print(f"append, 200 bytes: {asyncio.run(append_cost_us()):.2f} us   (target: below 5)")
    print("round              appends/s   median to durable   syncs/s   plain file, same bytes and syncs")
    for loading, window in (("add", 1), ("add", 100), ("add", 1000), ("queue", 1000)):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
            directory = Path(place)
            rate, wait_ms, size, syncs = asyncio.run(durable(directory, arguments.seconds, window, loading))
            appends = rate * arguments.seconds
            plain_s = plain(directory, size, syncs)
            print(
                f"{loading:5} window {window:5} {rate:10,.0f} {wait_ms:16.2f} ms "
                f"{syncs / arguments.seconds:9,.0f}"
                f"   {appends / plain_s:10,.0f}/s ({rate * plain_s / appends * 100:.0f} % of it reached)"
            )


if __name__ == "__main__":
    main()
