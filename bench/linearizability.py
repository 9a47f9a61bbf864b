"""How fast FIFO linearizability is judged, and that it is judged rightly.

    python -m bench.linearizability                # the bars, on this machine
    python -m bench.linearizability --spark        # the same through a session of Spark
    python -m bench.linearizability --porcupine    # beside a search that knows nothing of queues
    python -m bench.linearizability --prove 7      # all histories of 7 operations

The bars of one process: a million operations in a thousand queues within 10 s, in one queue within
60 s, and with 16 sends at a time at most half slower than with one.

``--prove``: the algorithm and all runs of a queue say the same of every history of so many
operations, answered or not, up to isomorphism (``tests/checkers/queue_histories.py``).

``--porcupine``: needs Go, which fetches github.com/anishathalye/porcupine as a module. Each history
is one queue, of which the searcher gets a growing prefix until it needs longer than a limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "checkers"))

from checkers import ends, fifo, part
from checkers.arrow_schema import SCHEMA
from checkers.linearizability import Values, not_linearizable, violations
from checkers.source import FilePart

_LIMIT_S: Final = 20
_GO: Final = """package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type op struct {
	Enqueue      bool
	Value        int
	Call, Return int64
}

var queue = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		content, of := state.(string), input.(op)
		value := fmt.Sprintf("%d,", of.Value)
		if of.Enqueue {
			return true, content + value
		}
		if len(content) < len(value) || content[:len(value)] != value {
			return false, content
		}
		return true, content[len(value):]
	},
}

func main() {
	var history []op
	if json.NewDecoder(os.Stdin).Decode(&history) != nil {
		os.Exit(1)
	}
	var given []porcupine.Operation
	for n, one := range history {
		given = append(given, porcupine.Operation{ClientId: n, Input: one, Call: one.Call, Output: nil,
			Return: one.Return})
	}
	begun := time.Now()
	result := porcupine.CheckOperationsTimeout(queue, given, LIMIT*time.Second)
	fmt.Println(result, time.Since(begun).Seconds())
}
""".replace("LIMIT", str(_LIMIT_S))


def history(values: int, queues: int, overlapping: int, *, wrong: bool = False) -> Values:
    """Of a queue that works: so many sends at a time, each value taken some time after its send.

    ``wrong``: the two values in the middle of the first queue are taken in the wrong order, and had
    been sent one after the other.
    """
    chance = np.random.default_rng(7)
    each = values // queues
    queue = np.repeat(np.arange(queues), each)
    place = np.tile(np.arange(each), queues)
    effect = 16 * place + chance.integers(0, 8, len(place))
    before, after = (chance.integers(0, 16 * overlapping, len(place)) for _ in range(2))
    one = overlapping == 1
    invoke = effect if one else np.maximum(effect - before // 2, 0)
    returned = effect + (4 if one else 1 + after // 2)
    taken = effect + 16 * overlapping + 100
    if wrong:
        m = each // 2
        invoke[m], returned[m] = 16 * m - 1, 16 * m
        invoke[m + 1], returned[m + 1] = 16 * m + 1, 16 * m + 2
        taken[m], taken[m + 1] = taken[m + 1], taken[m]
    return Values(
        queue=queue, name=np.arange(len(place)), enqueue_invoke=invoke, enqueue_return=returned,
        dequeue_invoke=taken, dequeue_return=taken + 3,
    )  # fmt: skip


def written(some: Values, directory: str) -> FilePart:
    """As clients would have recorded it: each value's send, its answer, and its delivery."""
    size = len(some.name)
    at = np.concatenate([some.enqueue_invoke, some.enqueue_return, some.dequeue_return])
    order = np.argsort(at, kind="stable")
    index = np.arange(len(order))
    f = np.repeat(np.array(["send", "send", "deliver"]), size)
    type_ = np.repeat(np.array(["invoke", "ok", "ok"]), size)
    thrice = np.tile(np.arange(size), 3)[order]
    columns = {
        "index": index, "time": index, "process": np.ones(len(index), dtype=np.int64), "type": type_[order],
        "f": f[order], "queue": np.full(len(index), "q"),
        "group": np.char.add("g", some.queue[thrice].astype(str)), "message": some.name[thrice],
        "producer": np.ones(len(index), dtype=np.int64), "session": np.ones(len(index), dtype=np.int64),
        "sequence": some.name[thrice],
    }  # fmt: skip
    schema = pa.schema([one for one in SCHEMA if one.name in columns])
    table = pa.table({one.name: pa.array(columns[one.name]).cast(one.type) for one in schema}, schema=schema)
    path = Path(directory) / "part-00000.parquet"
    pq.write_table(table, path, compression="zstd")
    return FilePart(0, str(path), len(table))


def judged(some: Values) -> tuple[float, int]:
    """As a task of Spark does it: from the file to what is found."""
    with tempfile.TemporaryDirectory() as directory:
        file = written(some, directory)
        question = part.Question(ends=ends.read(SCHEMA.empty_table()), examples=10, bound_ns=10**10)
        begun = time.process_time()
        answer = part.answer(file, question, {}, {"fifo": part.GROUP_FAMILIES["fifo"]})
        took = time.process_time() - begun
        assert not answer.failed, answer.failed
        found = answer.results["fifo"][0].get(0, {}).get(fifo.NAME)
        return took, 0 if found is None else found.count


def timed(some: Values) -> tuple[float, int]:
    begun = time.process_time()
    found = violations(some)
    return time.process_time() - begun, len(found)


def measure() -> None:
    for queues, overlapping in ((1_000, 1), (1_000, 16), (1, 1), (1, 16)):
        for wrong in (False, True):
            some = history(500_000, queues, overlapping, wrong=wrong)
            took, found = timed(some)
            in_all, told = judged(some)
            assert found == told == wrong
            print(
                f"1,000,000 operations in {queues:>5,} groups, {overlapping:>2} sends at a time: "
                f"{took:.2f} s of processor time, {in_all:.2f} s from the file to what was found: "
                f"{found} not linearizable",
                flush=True,
            )


def through_spark() -> None:
    """By the clock, from the question to what was found, once a first question has warmed up."""
    from checkers import session  # noqa: PLC0415 - starts a JVM
    from checkers.spark_source import FileSource  # noqa: PLC0415 - as above

    spark = session.start()
    question = part.Question(ends=ends.read(SCHEMA.empty_table()), examples=10, bound_ns=10**10)
    work = partial(part.answer, question=question, rows={}, groups={"fifo": part.GROUP_FAMILIES["fifo"]})
    for warm, queues, overlapping in ((0, 1, 1), (1, 1_000, 1), (1, 1_000, 16), (1, 1, 1), (1, 1, 16)):
        with tempfile.TemporaryDirectory() as directory:
            file = written(history(500_000, queues, overlapping, wrong=True), directory)
            begun = time.monotonic()
            answers = FileSource(spark, [file], SCHEMA.empty_table(), {0: 0}, file.rows).ask(work)
            took = time.monotonic() - begun
            assert answers[0].results["fifo"][0][0][fifo.NAME].count == 1
            if warm:
                print(f"{queues:>5,} groups, {overlapping:>2} sends at a time: {took:.2f} s", flush=True)
    session.stop()


def porcupine() -> None:
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        (here / "main.go").write_text(_GO)
        (here / "go.mod").write_text("module searching\n\ngo 1.19\n")
        for words in (("get", "github.com/anishathalye/porcupine@v1.0.0"), ("build", "-o", "searching")):
            subprocess.run(["go", *words], cwd=here, check=True, capture_output=True)
        for overlapping in (1, 8, 16):
            for wrong in (False, True):
                for values in (10, 20, 40, 60, 120, 1_000, 10_000):
                    some = history(values, 1, overlapping, wrong=wrong)
                    took, found = timed(some)
                    given = json.dumps(operations(some)).encode()
                    told = (
                        subprocess.run([here / "searching"], input=given, capture_output=True, check=True)
                        .stdout.decode()
                        .split()
                    )
                    print(
                        f"{values:>6} values, {overlapping:>2} sends at a time: "
                        f"{'not linearizable' if found else 'linearizable'} in {1000 * took:.1f} ms; "
                        f"Porcupine: {told[0]} in {float(told[1]):.3f} s",
                        flush=True,
                    )
                    if told[0] == "Unknown":
                        break
                    assert (told[0] == "Illegal") == bool(found)


def operations(some: Values) -> list[dict[str, Any]]:
    sides = (
        (True, some.enqueue_invoke, some.enqueue_return),
        (False, some.dequeue_invoke, some.dequeue_return),
    )
    return [
        {"Enqueue": enqueue, "Value": name, "Call": call, "Return": back}
        for enqueue, calls, backs in sides
        for name, call, back in zip(some.name.tolist(), calls.tolist(), backs.tolist(), strict=True)
    ]


def prove(size: int) -> None:
    from queue_histories import Columns, encoded, kinds, last_of, legal, orders  # noqa: PLC0415 - of the tests

    begun, count, bad, number = time.process_time(), 0, 0, 0
    for number, order in enumerate(orders(size), start=1):
        some = kinds(size, last_of(order))
        for low in range(0, len(some), 1 << 17):
            part = some[low : low + (1 << 17)]
            columns = Columns.of(order, part)
            found = np.zeros(len(part), dtype=bool)
            found[not_linearizable(columns.values, columns.dequeues)] = True
            wrong = np.flatnonzero(found == np.isin(encoded(part), legal(order)))
            if len(wrong):
                sys.exit(f"not so: {order}, {part[wrong[0]].tolist()}")
            count, bad = count + len(part), bad + int(found.sum())
        if number % 100 == 0:
            print(f"{number} orders, {count:,} histories, {time.process_time() - begun:.0f} s", flush=True)
    print(
        f"{size} operations: {number:,} orders, {count:,} histories, {bad:,} without a linearization: all "
        f"as the runs of a queue say, in {time.process_time() - begun:.0f} s of processor time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge FIFO linearizability fast, and rightly.")
    parser.add_argument("--prove", type=int, metavar="OPERATIONS")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--porcupine", action="store_true")
    arguments = parser.parse_args()
    if arguments.prove is not None:
        prove(arguments.prove)
    elif arguments.spark:
        through_spark()
    elif arguments.porcupine:
        porcupine()
    else:
        measure()


if __name__ == "__main__":
    main()
