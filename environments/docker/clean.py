"""Removes what killed runs left in the engine.

Containers, networks, volumes, all found by their labels.

Containers of a killed harness go on running (their faults have healed themselves); nothing else is
needed to remove them than the engine. Images are a cache and stay, unless asked for.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from environments.docker.base_image import REPOSITORY
from environments.docker.engine import RUN_LABEL, connect, harness_of
from environments.labels import NOTE, in_use
from harness.interface import InfrastructureError

_NETWORK_ATTEMPTS: Final = 5
_AT_ONCE: Final = 8


def leftovers(*, force: bool = False) -> list[str]:
    """One line for each run in the engine that nobody uses any more.

    Notes for those that somebody does.

    ``force`` counts those as well. Raises InfrastructureError if no engine answers.
    """
    client = connect()
    try:
        lines, abandoned = _survey(client, force=force)
        return lines + [f"docker run {run}: {', '.join(_describe(client, run))}" for run in abandoned]
    finally:
        client.close()


def remove(*, force: bool = False, images: bool = False) -> list[str]:
    """Remove what `leftovers` lists, with ``images`` also the cached images.

    One line for each thing removed.

    Raises InfrastructureError if no engine answers, or naming what it refused to remove.
    """
    client = connect()
    try:
        lines, abandoned = _survey(client, force=force)
        for run in abandoned:
            lines.append(f"docker run {run}: removed {', '.join(remove_run(client, run))}")
        if images:
            lines += _remove_images(client)
        return lines
    finally:
        client.close()


def remove_run(client: Any, run: str) -> list[str]:
    """Remove everything of one run, running or not.

    First what uses the network and the volumes, then those.

    Goes on after a failure, so that one stubborn container does not keep the rest alive. Raises
    InfrastructureError naming what stayed.
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

    containers, networks, volumes = _things(client, run)
    # At once: the engine takes some tenths of a second for each.
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        for container in containers:
            threads.submit(attempt, f"container {container.name}", container.remove, force=True, v=True)
    for network in networks:
        for last in [False] * (_NETWORK_ATTEMPTS - 1) + [True]:
            before = len(problems)
            if attempt(f"network {network.name}", network.remove) or last:
                break
            del problems[before:]  # an endpoint of a container that is still going away
    for volume in volumes:
        attempt(f"volume {volume.name}", volume.remove, force=True)
    if problems:
        raise InfrastructureError(
            f"the engine did not remove {'; '.join(problems)}; `jepsen-run clean` tries again"
        )
    return done


def _things(client: Any, run: str | None) -> tuple[list[Any], list[Any], list[Any]]:
    chosen = {"label": RUN_LABEL if run is None else f"{RUN_LABEL}={run}"}
    containers = client.containers.list(all=True, filters=chosen, ignore_removed=True)
    return containers, client.networks.list(filters=chosen), client.volumes.list(filters=chosen)


def _labels(thing: Any) -> dict[str, str]:
    attributes = thing.attrs
    return dict(attributes.get("Labels") or attributes.get("Config", {}).get("Labels") or {})


def _describe(client: Any, run: str) -> list[str]:
    kinds = ("container", "network", "volume")
    return [
        f"{kind} {thing.name}"
        for kind, things in zip(kinds, _things(client, run), strict=True)
        for thing in things
    ]


def _survey(client: Any, *, force: bool) -> tuple[list[str], list[str]]:
    """Notes on runs that are left alone, and the names of those that are not."""
    runs: dict[str, dict[str, str]] = {}
    for things in _things(client, None):
        for thing in things:
            found = _labels(thing)
            runs.setdefault(found.get(RUN_LABEL, ""), found)
    notes: list[str] = []
    abandoned: list[str] = []
    for run, found in sorted(runs.items()):
        if note := in_use(f"docker run {run}", harness_of(found), force=force):
            notes.append(note)
        else:
            abandoned.append(run)
    return notes, abandoned


def _remove_images(client: Any) -> list[str]:
    from docker.errors import APIError  # noqa: PLC0415

    lines = []
    images = client.images.list(filters={"reference": f"{REPOSITORY}/*"})
    # Those made from others first: they are younger.
    for image in sorted(images, key=lambda image: str(image.attrs["Created"]), reverse=True):
        for tag in image.tags:
            try:
                client.images.remove(tag)
            except APIError as error:
                lines.append(f"{NOTE}image {tag} stays: {error.explanation or error}")
            else:
                lines.append(f"image {tag}: removed")
    return lines
