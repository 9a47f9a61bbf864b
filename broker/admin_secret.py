"""The secret of the admin port: where it is, and whether others could read it."""

from __future__ import annotations

import stat
from pathlib import Path

from broker.config import BrokerConfig, ConfigurationError
from broker.contradictions import MAKE_SECRET

READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def secret_of(config: BrokerConfig) -> str | None:
    """What who asks must know; None: open to this machine. Raises ConfigurationError."""
    section = config.admin
    if section.secret_file:
        directory = Path(config.path).resolve().parent if config.path else Path()
        return read_secret(directory / section.secret_file, "admin.secret-file")
    if section.secret:
        return section.secret
    return config.cluster.cluster_password if config.cluster is not None else None


def read_secret(path: Path, named_by: str) -> str:
    """The text of a file that only its owner can read. Raises ConfigurationError with a remedy."""
    try:
        with path.open("rb") as file:
            content = file.read(4096)
    except OSError as error:
        raise ConfigurationError(
            f"{named_by}: {path} cannot be read: {error.strerror or error}; make a secret: (umask 077; "
            f"{MAKE_SECRET} > {path})"
        ) from None
    refuse_readable(path, named_by)
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret:
        raise ConfigurationError(
            f"{named_by}: {path} is empty; make a secret: (umask 077; {MAKE_SECRET} > {path})"
        )
    return secret


def refuse_readable(path: Path, named_by: str) -> None:
    """Raises ConfigurationError for a file that others than its owner can read."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise ConfigurationError(f"{named_by}: {path} cannot be read: {error.strerror or error}") from None
    if mode & READABLE_BY_OTHERS:
        raise ConfigurationError(f"{named_by}: others can read {path} (mode {mode:03o}): chmod 600 {path}")


def exposed(config: BrokerConfig) -> str:
    """What is wrong with the mode of a configuration file that holds secrets, "" if nothing."""
    cluster, database = config.cluster, config.database_store
    secrets = [
        name
        for name, value in (
            ("acceptor.users", config.acceptor.users),
            ("admin.secret", config.admin.secret),
            ("cluster.cluster-password", cluster and cluster.cluster_password),
            ("database-store.password", database and database.password),
        )
        if value
    ]
    mode = stat.S_IMODE(Path(config.path).stat().st_mode)
    if not secrets or not mode & READABLE_BY_OTHERS:
        return ""
    return (
        f"others can read {config.path} (mode {mode:03o}), and {', '.join(secrets)} in it: chmod 600 "
        f"{config.path}"
    )
