"""Asking a node of Erlang by the program that Erlang/OTP has for it, ``erl_call``.

It reaches the distribution port itself, without epmd, and is gone after each question.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.interface import Address
from harness.systems.rabbitmq.configuration import COOKIE

PATIENCE_S: Final = 30

_DONE: Final = b"{ok, done}"


async def evaluate(program: Path, address: Address, cookie: str, expressions: str) -> bytes:
    """What the expressions print; the last of them has the value ``done``.

    Raises OSError where nobody answers, or they fail.
    """
    with _home(cookie) as home:
        process = await asyncio.create_subprocess_exec(
            program,
            *("-address", str(address), "-timeout", str(PATIENCE_S), "-r", "-fetch_stdout", "-e"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "HOME": home},
        )
        try:
            said, _ = await process.communicate(expressions.encode())
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if not said.endswith(_DONE):
        raise OSError(f"{address}: {said[-300:].decode(errors='replace').strip() or 'no answer'}")
    return said.removesuffix(_DONE)


@contextlib.contextmanager
def _home(cookie: str) -> Iterator[str]:
    """A directory with the cookie in it: on a command line others could read it."""
    with tempfile.TemporaryDirectory(prefix="jepsen-run-") as home:
        secret = Path(home, COOKIE)
        secret.write_text(cookie)
        secret.chmod(0o400)
        yield home
