"""How fast the safety rules judge a large history on a cluster, and with how much memory.

    python -m bench.cluster --times 10

A master and two workers of one core each on this machine. The history is that of ``bench.checking``
(``--events``), each of its files linked so many ``--times`` under other names, which are as many
parts to read and to judge: rows of a part know nothing of other parts. What the control rows tell
is there once. Needs a whole Java 17 or newer on PATH.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pyspark

from bench.checking import _resident, everything, history
from checkers import session

WORKERS = 2


@contextlib.contextmanager
def cluster(memory: str) -> Iterator[tuple[str, list[psutil.Process]]]:
    """The address of a master, and the processes of its workers."""
    home = Path(pyspark.__path__[0])
    port = 17_077
    with (
        tempfile.TemporaryDirectory(prefix="jepsen-bench-cluster-") as scratch,
        contextlib.ExitStack() as stack,
    ):

        def start(*words: str) -> psutil.Process:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *words],
                env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
                cwd=scratch,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return psutil.Process(process.pid)

        deploy = "org.apache.spark.deploy"
        address = f"spark://127.0.0.1:{port}"
        start(f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "18080")
        time.sleep(5)
        workers = [
            start(
                f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", memory,
                "--work-dir", f"{scratch}/{n}", address,
            )
            for n in range(WORKERS)
        ]  # fmt: skip
        time.sleep(5)
        yield address, workers


@contextlib.contextmanager
def peaks(workers: list[psutil.Process]) -> Iterator[dict[str, float]]:
    """The highest memory in GB of the driver with its JVM, and of each worker with its executor."""
    peak = {"driver": 0.0, **{f"worker {n + 1}": 0.0 for n in range(len(workers))}}
    done = threading.Event()
    mine = psutil.Process()

    def watch() -> None:
        jvm = psutil.Process(session.process_id())
        while not done.wait(1.0):
            now = [_resident(jvm) + mine.memory_info().rss, *(_resident(worker) for worker in workers)]
            for name, bytes_ in zip(list(peak), now, strict=True):
                peak[name] = max(peak[name], bytes_ / 1e9)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def main() -> int:
    """Measure, and fail if the rules found anything in a correct history."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=50_000_000, help="rows of the history")
    parser.add_argument("--changes", type=int, default=5000, help="changes of role in it")
    parser.add_argument("--times", type=int, default=10, help="how often each of its files is judged")
    parser.add_argument("--memory", default="2g", help="of each worker")
    options = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_MASTER_WEBUI_PORT", "18080")
    made = history(options.events, options.changes)
    with tempfile.TemporaryDirectory(prefix="jepsen-bench-links-", dir=made.parent) as directory:
        large = Path(directory)
        (large / "control.parquet").hardlink_to(made / "control.parquet")
        files = sorted(made.glob("part-*.parquet")) * options.times
        for number, file in enumerate(files):
            (large / f"part-{number:05d}.parquet").hardlink_to(file)
        events = sum(pq.read_metadata(file).num_rows for file in large.iterdir())
        print(f"{events:,} events in {len(files)} files and the control rows", flush=True)
        with cluster(options.memory) as (address, workers):
            spark = session.start(address)
            everything(spark, history(min(options.events, 2_000_000)), only_safety=True)
            with peaks(workers) as peak:
                begun = time.monotonic()
                wrong = everything(spark, large, only_safety=True)
                took = time.monotonic() - begun
            session.stop()
    memory = ", ".join(f"{name} {gb:.1f} GB" for name, gb in peak.items())
    print(f"{took:.0f} s, {events / took / 1e6:.2f} million events/s; at most {memory}")
    if wrong:
        print(f"error: the history is correct, yet found: {', '.join(sorted(set(wrong)))}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
