"""The consumers that each queue may have had, from the rows that ask for them.

A consumer may have existed from the invocation of its subscribe on, unless that was refused. It
ended when its unsubscribe was answered, or when the process that served it was seen to be gone. A
lost connection does not end it for certain. A session that asks for several queues is a consumer of
each; one that names no queue may consume from any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.asked import Selector, selector_of
from checkers.deaths import Deaths
from checkers.ends import Ends
from checkers.rows import FOREVER, NONE, numbers_of, texts_of

_COLUMNS: Final = ("run", "index", "process", "type", "queue", "session", "broker", "value")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A session that may have consumed from a queue from row ``begun`` to row ``over``.

    ``queue`` is None where no row names it. ``selector`` is None where the session wants every
    message.
    """

    run: int
    queue: str | None
    session: int
    selector: Selector | None
    begun: int
    over: int


def read(control: pa.Table, ends: Ends, deaths: Deaths) -> list[Consumer]:
    """Return the consumers from all control rows, in the order in which they were asked for."""
    rows = control.filter(
        pa.array(texts_of(control, "f").are("subscribe") & (numbers_of(control, "session") != NONE))
    )
    present = [name for name in _COLUMNS if name in rows.column_names]
    subscribes: list[Mapping[str, Any]] = []
    refused: set[int] = set()
    waiting: dict[tuple[int, int, int], int] = {}
    served: dict[tuple[int, int], tuple[str | None, int]] = {}
    for row in sorted(rows.select(present).to_pylist(), key=lambda one: one["index"]):
        run, session = row.get("run") or 0, row["session"]
        asking = run, row["process"], session
        if row["type"] == "invoke":
            waiting[asking] = len(subscribes)
            subscribes.append(row)
            continue
        question = waiting.pop(asking, None)
        if row["type"] == "ok":
            served.setdefault((run, session), (row.get("broker"), row["index"]))
        elif row["type"] == "fail" and question is not None:
            refused.add(question)
    runs = np.array([row.get("run") or 0 for row in subscribes], dtype=np.int64)
    sessions = np.array([row["session"] for row in subscribes], dtype=np.int64)
    result = []
    for n, answered in enumerate(ends.sessions.find("answered", runs, sessions).tolist()):
        if n in refused:
            continue
        run, session, row = int(runs[n]), int(sessions[n]), subscribes[n]
        broker, since = served.get((run, session), (None, FOREVER))
        over = [answered] if answered != NONE else []
        over += [at for at in deaths.rows.get((run, broker or ""), ()) if at > since][:1]
        selector = selector_of(row.get("value"))
        result.append(
            Consumer(run, row.get("queue"), session, selector, row["index"], min(over, default=FOREVER))
        )
    return result
