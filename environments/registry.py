"""The environments by name, and the choice between them when the user leaves it open.

A module is imported only when its environment is chosen: the docker SDK takes time to import and
may be of no use on this machine.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.interface import Environment, UsageError

ENVIRONMENTS: Final[Mapping[str, str]] = {
    "local": "processes of this machine, links through a userspace proxy; needs no root and no containers",
    "docker": "containers with networks of their own; partitions by packet filters inside the nodes",
    "ssh": "your machines, one for each broker; needs root or sudo there, and --hosts hosts.toml",
    "attached": "a cluster that already runs, however it was deployed; needs --attach FILE",
    "simulation": "everything in one process on virtual time: one seed gives one history, a minute "
    "takes a second; never chosen by auto",
}
"""Name -> one line about the environment, for ``jepsen-run list``."""

_CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    "local": ("environments.local.environment", "LocalEnvironment"),
    "docker": ("environments.docker.environment", "DockerEnvironment"),
    "ssh": ("environments.ssh.environment", "SshEnvironment"),
    "attached": ("environments.attached.environment", "AttachedEnvironment"),
    "simulation": ("environments.simulation.environment", "SimulationEnvironment"),
}


def create(name: str, hosts: Sequence[str] = ()) -> Environment:
    """Return an environment by its name; it touches nothing until it is deployed.

    Raises UsageError for an unknown name, and names the nearest.
    """
    if name not in _CLASSES:
        near = difflib.get_close_matches(name, ["auto", *_CLASSES], n=1)
        meant = f'did you mean "{near[0]}"? ' if near else ""
        raise UsageError(f'unknown environment "{name}": {meant}there are auto, {", ".join(_CLASSES)}')
    module, attribute = _CLASSES[name]
    make = getattr(importlib.import_module(module), attribute)
    environment: Environment = make(hosts) if hosts and name == "ssh" else make()
    return environment


def attach(cluster: Mapping[str, Any]) -> Environment:
    """Return the environment of a cluster that already runs. Raises UsageError if invalid."""
    of = importlib.import_module("environments.attached.cluster")
    make = importlib.import_module("environments.attached.environment").AttachedEnvironment
    environment: Environment = make(of.checked("the attached cluster", cluster))
    return environment


def choose(name: str, hosts: Sequence[str] = ()) -> tuple[Environment, str]:
    """Return the environment for ``--environment NAME``, and a line that says which and why.

    ``hosts`` are the machines of "ssh", as ``--hosts`` or ``--host`` name them. Where they are
    given, "auto" is ssh, and any other environment raises UsageError. Otherwise "auto" is docker if
    an engine answers, because a real network loses packets and a proxy cannot; else local.
    """
    if hosts and name not in ("auto", "ssh"):
        raise UsageError(f"--hosts and --host name machines for --environment ssh, not {name}")
    if hosts:
        return create("ssh", hosts), "environment ssh: " + (
            "chosen with --environment" if name == "ssh" else "chosen because hosts are named"
        )
    if name != "auto":
        return create(name), f"environment {name}: chosen with --environment"
    problem = engine_problem()
    if problem:
        return create("local"), f"environment local: {problem}"
    return create("docker"), "environment docker: an engine answers"


def engine_problem() -> str:
    """Return why no Docker engine can be used, "" if one answers."""
    try:
        engine = importlib.import_module("environments.docker.engine")
        importlib.import_module("environments.docker.environment")
    except ImportError as error:
        return f"the docker environment cannot be imported ({error})"
    answers, reason = engine.engine_answers()
    return "" if answers else str(reason)
