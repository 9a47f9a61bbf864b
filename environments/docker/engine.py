"""The Docker engine: whether one answers, how to reach it, and the labels of what a run creates.

Everything that is created carries labels: the run that it belongs to, and the harness process that
made it (pid and start time, because pids are used again, and where that pid is valid). So ``clean``
finds everything, and touches nothing that a living harness still needs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Final

from environments.labels import Process, identify
from harness.interface import InfrastructureError

RUN_LABEL: Final = "jepsen-run.id"
HARNESS_LABEL: Final = "jepsen-run.harness"
IMAGE_LABEL: Final = "jepsen-run.image"
_ORIGIN_LABELS: Final = {
    "boot": "jepsen-run.boot",
    "namespace": "jepsen-run.namespace",
    "host": "jepsen-run.host",
}

ANSWER_TIMEOUT_S: Final = 3.0
"""The patience with an engine that hangs; where there is no engine, the answer is immediate."""

CALL_TIMEOUT_S: Final = 60.0


def engine_answers() -> tuple[bool, str]:
    """Return whether a Docker engine answers (at once if there is none), and a line about it.

    The line has the engine's version, or what is wrong and what mends it.
    """
    try:
        with contextlib.closing(connect(ANSWER_TIMEOUT_S)) as client:
            version = client.version()
    except InfrastructureError as error:
        return False, str(error)
    except Exception as error:  # noqa: BLE001 - the SDK lets its transport's own errors through
        return False, _cannot_reach(error)
    return True, f"Docker {version.get('Version', 'engine')} ({version.get('Os')}/{version.get('Arch')})"


def connect(timeout_s: float = CALL_TIMEOUT_S) -> Any:
    """Return a client of the engine that ``DOCKER_HOST`` or the current Docker context names.

    Several threads may use it at the same time. Raises InfrastructureError if no engine answers.
    """
    try:
        import docker  # noqa: PLC0415 - takes 0.2 s, which runs without containers need not pay
        from docker.errors import DockerException  # noqa: PLC0415
    except ImportError as error:
        raise InfrastructureError(
            f"the docker package cannot be imported ({error}): pip install docker"
        ) from error

    try:
        client = docker.DockerClient(base_url=_endpoint(), timeout=timeout_s, max_pool_size=32)
        client.ping()
    except (DockerException, OSError) as error:
        raise InfrastructureError(_cannot_reach(error)) from error
    return client


def _endpoint() -> str | None:
    """Return the address of the engine, if ``DOCKER_HOST`` or a Docker context has one.

    Docker Desktop and others register a context.
    """
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    from docker.context import ContextAPI  # noqa: PLC0415

    try:
        context = ContextAPI.get_current_context()
    except Exception:  # noqa: BLE001 - an unreadable context file must not hide an engine on the default socket
        return None
    host = None if context is None else context.Host
    return None if host is None or host.startswith("http+unix") else str(host)


def _cannot_reach(error: BaseException) -> str:
    named = os.environ.get("DOCKER_HOST")
    begin = f"no Docker engine answers at {named}" if named else "no Docker engine answers"
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return f"{begin}: permission denied on its socket; join its group: sudo usermod -aG docker $USER"
    if "timed out" in text.lower() or isinstance(error, TimeoutError):
        return f"{begin}: it stays silent; restart it: sudo systemctl restart docker"
    if "FileNotFoundError" in text or "Connection refused" in text:
        mend = "unset DOCKER_HOST, or start it there" if named else "start it: sudo systemctl start docker"
        return f"{begin}: it is not running; {mend}"
    return f"{begin}: {' '.join(text.split())}"


def labels(run: str) -> dict[str, str]:
    """Return the labels of everything that this process creates for a run."""
    me = identify()
    assert me is not None, "this process runs"
    return {
        RUN_LABEL: run,
        HARNESS_LABEL: f"{me.pid}:{me.started}",
        **{label: getattr(me, field) for field, label in _ORIGIN_LABELS.items()},
    }


def harness_of(found: Mapping[str, str]) -> Process | None:
    """Return the harness that made something, by its labels; None if they do not say."""
    pid, _, started = found.get(HARNESS_LABEL, "").partition(":")
    if not pid.isdigit() or not started:
        return None
    origin = {field: found.get(label, "") for field, label in _ORIGIN_LABELS.items()}
    return Process(pid=int(pid), started=started, **origin)
