"""Removal of what killed runs left in the engine: containers, networks, volumes.

They are found by their labels.

Containers of a killed harness go on running (their faults have healed themselves). Removing them
takes nothing but the engine. Images are a cache and stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from environments.docker.engine import RUN_LABEL, connect, harness_of
from environments.labels import LEFT, in_use
from harness.interface import InfrastructureError

_NETWORK_ATTEMPTS: Final = 5
_AT_ONCE: Final = 8


def leftovers(*, force: bool = False) -> list[str]:
    """Return a line for each run in the engine whose harness is gone, and notes on the others.

    With ``force`` the others count, too. Raises InfrastructureError if no engine answers.
    """
    with contextlib.closing(connect()) as client:
        return [
            note or f"docker run {run}: {', '.join(f'{kind} {thing.name}' for kind, thing in things)}"
            for run, note, things in _runs(client, force=force)
        ]


def remove(*, force: bool = False) -> list[str]:
    """Remove what `leftovers` lists; return a line for each run, with `LEFT` if something stays.

    Raises InfrastructureError if no engine answers.
    """
    lines = []
    with contextlib.closing(connect()) as client:
        for run, note, _ in _runs(client, force=force):
            try:
                lines.append(note or f"docker run {run}: removed {', '.join(remove_run(client, run))}")
            except InfrastructureError as error:
                lines.append(f"{LEFT}docker run {run}: {error}")
    return lines


def remove_run(client: Any, run: str) -> list[str]:
    """Remove everything of one run, running or not: containers first, then network and volumes.

    It goes on after a failure, so that one stubborn container does not keep the rest alive. Raises
    InfrastructureError, which names what stayed.
    """
    from docker.errors import DockerException, NotFound  # noqa: PLC0415

    done: list[str] = []
    problems: list[str] = []

    def attempt(what: str, do: Any, **options: Any) -> bool:
        try:
            do(**options)
        except NotFound:
            return True
        except (DockerException, OSError) as error:
            problems.append(f"{what} ({getattr(error, 'explanation', None) or error})")
            return False
        done.append(what)
        return True

    things = _things(client, f"{RUN_LABEL}={run}")
    # All at the same time: the engine takes some tenths of a second for each.
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        for container in (thing for kind, thing in things if kind == "container"):
            threads.submit(attempt, f"container {container.name}", container.remove, force=True, v=True)
    for network in (thing for kind, thing in things if kind == "network"):
        for last in [False] * (_NETWORK_ATTEMPTS - 1) + [True]:
            before = len(problems)
            if attempt(f"network {network.name}", network.remove) or last:
                break
            del problems[before:]  # an endpoint of a container that is still going away
    for volume in (thing for kind, thing in things if kind == "volume"):
        attempt(f"volume {volume.name}", volume.remove, force=True)
    if problems:
        raise InfrastructureError(
            f"the engine did not remove {'; '.join(problems)}; `jepsen-run clean` tries again"
        )
    return done


def _things(client: Any, label: str) -> list[tuple[str, Any]]:
    """Return everything with this label: its kind, and the object."""
    chosen = {"label": label}
    containers = client.containers.list(all=True, filters=chosen, ignore_removed=True)
    kinds = {
        "container": containers,
        "network": client.networks.list(filters=chosen),
        "volume": client.volumes.list(filters=chosen),
    }
    return [(kind, thing) for kind, things in kinds.items() for thing in things]


def _runs(client: Any, *, force: bool) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
    """Yield each run in the engine, a note if it is to be left alone (else ""), and its things."""
    runs: dict[str, list[tuple[str, Any]]] = {}
    for kind, thing in _things(client, RUN_LABEL):
        runs.setdefault(_labels(thing).get(RUN_LABEL, ""), []).append((kind, thing))
    for run, things in sorted(runs.items()):
        harness = harness_of(_labels(things[-1][1]))
        yield run, in_use(f"docker run {run}", harness, force=force), things


def _labels(thing: Any) -> dict[str, str]:
    return dict(thing.attrs.get("Labels") or thing.attrs.get("Config", {}).get("Labels") or {})
