"""What a local deployment leaves on disk about itself.

So `clean` can end it without the help of any process.

One directory per deployment, ``<state root>/local/<run id>``: ``harness.json`` is written by the
environment before anything starts, ``agent.json`` by the agent whenever a broker starts or ends.
Each file has one writer and is replaced atomically.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import msgspec

from environments.labels import Process, state_root

LOG_FILE: Final = "agent.log"
MARKER_FILE: Final = ".jepsen-run"
"""Within ``<directory>/nodes``.

The run id, so that `clean` removes only a directory that this deployment made.
"""


class HarnessState(msgspec.Struct, frozen=True, kw_only=True):
    """Whose deployment it is and where its nodes' directories are."""

    FILE: ClassVar[str] = "harness.json"

    run_id: str
    harness: Process
    directory: str


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """The agent and what it runs.

    Node -> process, the database's server as one of them; the server's directory.
    """

    FILE: ClassVar[str] = "agent.json"
    run_id: str
    agent: Process
    brokers: dict[str, Process]
    scratch: str = ""


S = TypeVar("S", HarnessState, AgentState)


def local_root() -> Path:
    """The directory of all local deployments' state directories."""
    return state_root() / "local"


def write(directory: Path, state: HarnessState | AgentState) -> None:
    """Replace a state file; a reader sees the old or the new one."""
    temporary = directory / f".{state.FILE}.tmp"
    temporary.write_bytes(msgspec.json.encode(state))
    os.replace(temporary, directory / state.FILE)  # noqa: PTH105 - Path.replace returns a path nobody needs


def read(directory: Path, kind: type[S]) -> S | None:
    """A state file's content.

    None where there is none or it cannot be read (its deployment was killed while being made).
    """
    try:
        return msgspec.json.decode((directory / kind.FILE).read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
