"""What is logged of those who connect and have not proved who they are.

Bounded, however many of them come.

Why a limit: whoever may connect may be refused, and a line for each refusal lets a stranger fill
the disk that the journal is on (2,534 bad sessions wrote 224 KB). Why one for each address, too:
the flood of one stranger must not hide that a broker of ours has the wrong password. What was left
out is counted, and said in one line when the period ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

PERIOD_S: Final = 10.0
LINES_MAX: Final = 40
"""In one period, all addresses together."""
LINES_PER_ADDRESS_MAX: Final = 5
"""In one period, of one address."""
SERIES_S: Final = 600.0
"""A stranger that has stayed away for as long is told of again."""
SERIES_MAX: Final = 1000
"""The most strangers that are remembered, each with one text."""
LENGTH_MAX: Final = 300
"""Characters of one line; what a stranger sent is often in it."""


class StrangerLog:
    """The warnings of one port.

    ``what`` names it in the line that counts what was left out: "admin port", "cluster port",
    "acceptor".
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._lines: dict[str, int] = {}
        self._series: dict[tuple[str, str], float] = {}
        """When each text was last given to ``tell_once``, by address and text, oldest first."""
        self._together = 0
        self._left_out = 0
        self._ends: asyncio.TimerHandle | None = None

    def tell_once(self, address: str, text: str) -> None:
        """Log a warning about a stranger that tries again and again, at its first attempt only.

        An attempt is the first if that address did not cause the same text in the last
        ``SERIES_S`` seconds.
        """
        now = asyncio.get_running_loop().time()
        while self._series and now - next(iter(self._series.values())) > SERIES_S:
            del self._series[next(iter(self._series))]
        if self._series.pop((address, text), None) is not None or self.tell(address, text):
            self._series[address, text] = now
            if len(self._series) > SERIES_MAX:
                del self._series[next(iter(self._series))]

    def tell(self, address: str, text: str) -> bool:
        """Log a warning and return True, unless there were too many in this period.

        ``address``: of the stranger, without its port.
        """
        if self._ends is None:
            self._ends = asyncio.get_running_loop().call_later(PERIOD_S, self._end)
        lines = self._lines.get(address, 0)
        if lines >= LINES_PER_ADDRESS_MAX or self._together >= LINES_MAX:
            self._left_out += 1
            return False
        self._lines[address] = lines + 1
        self._together += 1
        self._log.warning("%s", text if len(text) <= LENGTH_MAX else text[: LENGTH_MAX - 3] + "...")
        return True

    def _end(self) -> None:
        if self._left_out:
            self._log.warning(
                "%s: %d more warnings like these in %g s were not logged",
                self._what,
                self._left_out,
                PERIOD_S,
            )
        self._ends = None
        self._lines.clear()
        self._together = self._left_out = 0


def address_of(peername: object) -> str:
    """The address in a transport's ``peername``, for ``StrangerLog.tell``."""
    return str(peername[0]) if isinstance(peername, tuple) and peername else "unknown"


def printable(text: str) -> str:
    """A text that steers no terminal and begins no line: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
