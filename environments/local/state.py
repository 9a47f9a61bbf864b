"""The files that a local deployment leaves on disk about itself.

With them, `clean` can end the deployment without the help of any process.

There is one directory per deployment, ``<state root>/local/<run id>``. The environment writes
``harness.json`` before anything starts. The agent writes ``agent.json`` whenever a broker starts or
ends. Each file has one writer and is replaced atomically.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import msgspec

from environments.labels import Process, state_root

LOG_FILE: Final = "agent.log"
MARKER_FILE: Final = ".jepsen-run"
"""The file within ``<directory>/nodes`` that has the run id.

With it, `clean` removes only a directory that this deployment made.
"""


class HarnessState(msgspec.Struct, frozen=True, kw_only=True):
    """The harness of a deployment, and the place of its nodes' directories."""

    FILE: ClassVar[str] = "harness.json"

    run_id: str
    harness: Process
    directory: str


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """The agent and the processes that it runs.

    ``brokers`` is node -> process, with the database's server as one of them; ``scratch`` is the
    server's directory.
    """

    FILE: ClassVar[str] = "agent.json"
    run_id: str
    agent: Process
    brokers: dict[str, Process]
    scratch: str = ""


S = TypeVar("S", HarnessState, AgentState)


def local_root() -> Path:
    """Return the directory of all local deployments' state directories."""
    return state_root() / "local"


def write(directory: Path, state: HarnessState | AgentState) -> None:
    """Replace a state file; a reader sees the old or the new content."""
    temporary = directory / f".{state.FILE}.tmp"
    temporary.write_bytes(msgspec.json.encode(state))
    os.replace(temporary, directory / state.FILE)  # noqa: PTH105 - Path.replace returns a path nobody needs


def read(directory: Path, kind: type[S]) -> S | None:
    """Return the content of a state file.

    Returns None if there is none or it cannot be read (its deployment was killed while being made).
    """
    try:
        return msgspec.json.decode((directory / kind.FILE).read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
