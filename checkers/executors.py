"""The reasons why the executors of a Spark cluster ended, from their logs.

Why: the driver hears of a failed executor only that its command exited with code 1, and logs
"Ignoring error". The reason (an old Java, no memory, an unreachable driver) stands in the
executor's standard error, on the machine of its worker. The master's page has the address of the
worker's page, and the worker's page has the executor's log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import urllib.parse
import urllib.request
from typing import Any, Final

_ADDED: Final = re.compile(r"Executor added: (?P<app>\S+)/(?P<number>\d+) on (?P<worker>\S+)")
_ENDED: Final = re.compile(
    r"Executor updated: (?P<app>\S+)/(?P<number>\d+) is now (?:FAILED|LOST|EXITED|KILLED)(?: "
    r"\((?P<words>.*)\))?$",
    re.MULTILINE,
)
_MASTER: Final = re.compile(r"spark://(?P<host>\[[^\]]+\]|[^:,]+)")
_TELLING: Final = re.compile(
    r"error|exception|fail|insufficient|cannot|could not|unable|unsupported|not found|no such|denied",
    re.IGNORECASE,
)
_NOT_TELLING: Final = re.compile(
    r"^\s+at |^\s*\.\.\. \d+ more|error report file|^# /|A fatal (exception|error) has"
)
_PAGE_PORT: Final = "8080"
_PATIENCE_S: Final = 3.0
_LOG_BYTES: Final = 16_384


def ended(log: str) -> int:
    """Return how many executors have ended, by the driver's log."""
    return len(_ENDED.findall(log))


def last_words(master: str, log: str) -> str | None:
    """Return why the executor that ended last did so; None if none has ended.

    ``log`` is the driver's log, ``master`` the address of the master.
    """
    over = list(_ENDED.finditer(log))
    if not over:
        return None
    last = over[-1]
    reason = (last["words"] or "it did not say why").strip()
    added = [
        match for match in _ADDED.finditer(log) if match.group("app", "number") == last.group("app", "number")
    ]
    worker = added[-1]["worker"] if added else ""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        cause = telling(_log_of(master, worker, last["app"], last["number"]))
        if cause:
            return f"{cause} ({reason})"
    return f"{reason}; its log is on {worker or 'the machine of its worker'}"


def telling(text: str) -> str:
    """Return the last line of a log that says what was wrong; its last line, if none does."""
    lines = [line for line in text.splitlines() if line.strip() and not _NOT_TELLING.search(line)]
    return next(
        (line.strip() for line in reversed(lines) if _TELLING.search(line)),
        lines[-1].strip() if lines else "",
    )


def _log_of(master: str, worker: str, app: str, number: str) -> str:
    """Return an executor's standard error.

    Raises OSError, ValueError or KeyError for a bad page.
    """
    match = _MASTER.match(master)
    if match is None:
        raise ValueError(master)
    port = os.environ.get("SPARK_MASTER_WEBUI_PORT", _PAGE_PORT)
    state: dict[str, Any] = json.loads(_page(f"http://{match['host']}:{port}/json/"))
    (address,) = [
        state_of_worker["webuiaddress"]
        for state_of_worker in state["workers"]
        if state_of_worker["id"] == worker
    ]
    query = urllib.parse.urlencode(
        {"appId": app, "executorId": number, "logType": "stderr", "byteLength": _LOG_BYTES}
    )
    return _page(f"{address}/log/?{query}").partition("\n")[2]


def _page(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(
        url, timeout=_PATIENCE_S
    ) as answer:  # "http" alone: the address is a master's or of its workers
        text: str = answer.read().decode(errors="replace")
    return text
