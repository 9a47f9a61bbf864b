"""The secrets of one run, which its brokers and their admin clients share.

Why new ones for each run (each process of the harness, if it runs several): two runs on one
machine, or a stranger on the network, must not get hold of each other's brokers. In the simulation
there are no strangers, and one seed must give one run: there the secrets come from the seed.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from typing import Final

_PROCESS: Final = secrets.token_bytes(32)
"""Random bytes drawn at import: within a simulation nothing may be drawn."""
_instances = itertools.count()


class Credentials:
    """The passwords and nonces of one run.

    ``cluster`` and ``admin`` are passwords, of one length in every run, so that messages have one
    length, too. ``seed`` None: they cannot be foreseen.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._salt = _PROCESS + b"%d" % next(_instances) if seed is None else b"%d" % seed
        self._handshakes = itertools.count()
        self.cluster = self._derived("cluster").hex()
        self.admin = self._derived("admin").hex()

    def nonce(self) -> bytes:
        """Return a nonce for one handshake, never the same twice.

        It alone keeps an overheard handshake from being repeated.
        """
        return self._derived(f"nonce {next(self._handshakes)}")

    def _derived(self, purpose: str) -> bytes:
        return hashlib.sha256(self._salt + purpose.encode()).digest()
