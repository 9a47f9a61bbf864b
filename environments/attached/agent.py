"""The agent of one attached cluster: it runs the hooks, and undoes them when the harness is gone.

Why a process of its own: the harness may be killed while a fault is in force, and the undo must
then still be run. The environment starts it as

    python -m environments.attached.agent RECORD

Its standard input ends with the harness, however that ends. RECORD is a file that says what is in
force. ``jepsen-run clean`` reads it if this process is killed, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from environments.attached import records
from environments.attached.cluster import checked
from environments.attached.hooks import HookRunner, parts
from environments.links_agent import LinksAgent, run
from harness.interface import UsageError


class HooksAgent(LinksAgent):
    """The agent that runs the hooks of one cluster."""

    def __init__(self, record: Path, cluster: Mapping[str, Any]) -> None:
        self._cluster = checked("the attached cluster", cluster)
        self._record = record
        runner = HookRunner(self._cluster, _say, self._note)
        self._note(())
        super().__init__(0.0, *parts(self._cluster, runner))

    def check(self, nodes: Sequence[str]) -> None:
        """Raise UsageError if one of the nodes is not in the cluster."""
        for node in nodes:
            self._cluster.named(node.partition("/")[0])

    async def end(self) -> None:
        """Undo all that is in force, then remove the record, if nothing is left in it."""
        await super().end()
        records.remove_if_empty(self._record)

    def _note(self, lines: Sequence[str]) -> None:
        try:
            records.write(self._record, lines)
        except OSError as error:  # a full disk must not keep hooks from being undone
            _say(f"cannot record what is in force: {error}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run an agent in the foreground; the cluster is in the record when this starts."""
    record = Path(sys.argv[1])
    cluster = records.cluster_of(record)
    if cluster is None:
        raise UsageError(f"{record} names no cluster")
    run(lambda: HooksAgent(record, cluster))


if __name__ == "__main__":
    main()
