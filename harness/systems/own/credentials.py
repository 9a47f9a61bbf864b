"""The secrets of one run: what its brokers must know of each other, and whoever asks them.

Why new ones for each run (each process of the harness, where it runs several): two runs on one
machine, or a stranger on the network of one, must not get hold of each other's brokers. In the
simulation there are no strangers, and one seed must give one run: there they come from the seed.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from typing import Final

_PROCESS: Final = secrets.token_bytes(32)
"""Drawn when this is imported: within a simulation nothing may be."""
_instances = itertools.count()


class Credentials:
    """The passwords and nonces of one run.

    ``cluster`` and ``admin`` are passwords, of one length in every run, so that what is sent is as
    long, too. ``seed`` None: nobody can foresee them.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._salt = _PROCESS + b"%d" % next(_instances) if seed is None else b"%d" % seed
        self._handshakes = itertools.count()
        self.cluster = self._derived("cluster").hex()
        self.admin = self._derived("admin").hex()

    def nonce(self) -> bytes:
        """A nonce for one handshake: never the same twice.

        That is all that keeps what was overheard from being repeated.
        """
        return self._derived(f"nonce {next(self._handshakes)}")

    def _derived(self, what: str) -> bytes:
        return hashlib.sha256(self._salt + what.encode()).digest()
