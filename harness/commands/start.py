"""The console script ``jepsen-run``, which can be interrupted from its first moment on.

Why apart from the command line: importing that takes a third of a second. Meanwhile Ctrl-C would
end in a traceback of whatever module was being imported.
"""

from __future__ import annotations

import os
import signal
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""The exit status of ``harness.history.judge``, which is not imported yet."""


def main() -> NoReturn:
    """Import the command line and run it."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else started by nohup or &
    if heeded:
        signal.signal(signal.SIGINT, _end)
    from harness.commands import cli  # noqa: PLC0415 - what takes its time

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


def _end(*_: object) -> NoReturn:
    os.write(2, b"jepsen-run: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
