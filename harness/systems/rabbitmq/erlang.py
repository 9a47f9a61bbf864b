"""A client that asks an Erlang node by Erlang/OTP's own program, ``erl_call``.

The program connects to the distribution port directly, without epmd, and ends after each question.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.interface import Address
from harness.systems.rabbitmq.configuration import COOKIE

PATIENCE_S: Final = 30

_DONE: Final = b"{ok, done}"


async def evaluate(program: Sequence[str], address: Address, cookie: str, expressions: str) -> bytes:
    """Return what the expressions print; the last of them has the value ``done``.

    Raises OSError if there is no answer, or if the expressions fail.
    """
    with _home(cookie) as home:
        process = await asyncio.create_subprocess_exec(
            *program,
            *("-address", str(address), "-timeout", str(PATIENCE_S), "-r", "-fetch_stdout", "-e"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "HOME": home},
        )
        try:
            printed, _ = await process.communicate(expressions.encode())
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if not printed.endswith(_DONE):
        raise OSError(f"{address}: {printed[-300:].decode(errors='replace').strip() or 'no answer'}")
    return printed.removesuffix(_DONE)


@contextlib.contextmanager
def _home(cookie: str) -> Iterator[str]:
    """Give a directory with the cookie in it: on a command line others could read it."""
    with tempfile.TemporaryDirectory(prefix="jepsen-run-") as home:
        secret = Path(home, COOKIE)
        secret.write_text(cookie)
        secret.chmod(0o400)
        yield home
