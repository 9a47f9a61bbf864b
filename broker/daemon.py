"""``brokerd``: one broker process from its configuration to its end.

Exit status: 0 after a clean stop (SIGTERM, SIGINT, or ``brokerctl stop``), 1 when the broker could
not start or could not go on, 3 when it lost the live vote or the lock of its shared store, 31, 43
or 47 when an instance of a queue manager has no place beside those that run
(``policies.multi_instance.candidate``), 254 for wrong usage or configuration. Every event is one
line on standard error: time, level, broker, what happened.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TextIO

from broker import config as configuration
from broker import moved_messages, open_files, tls
from broker.admin import AdminServer
from broker.admin_secret import exposed, secret_of
from broker.config import BrokerConfig
from broker.masking import MaskError
from broker.policies import registry as policies
from broker.policies.policy import BrokerPolicy
from broker.seams import Seams, real_seams
from broker.start_error import StartError
from broker.storage import mount_lease
from broker.storage.database import Database
from broker.storage.database.opening import open_database
from broker.storage.directory import DirectoryVolume
from broker.storage.shared_directory import SharedDirectoryVolume
from broker.storage.volume import Volume
from broker.strangers import printable
from broker.turn_watch import TurnWatch

_log = logging.getLogger("broker")

LEASE_PATIENCE_S: Final = 2.0
"""How long the start waits to hear of the file server's lease."""

USAGE = "usage: brokerd --config broker.toml"


class LineFormatter(logging.Formatter):
    """``2026-11-21T07:00:00.123Z INFO a1 serving STOMP on 0.0.0.0:61613``.

    A traceback follows on lines of its own.

    Why every message is made printable here: what strangers send ends up in some of them, and none
    may forge a line or steer a terminal.
    """

    def __init__(self, broker: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)s {broker.replace('%', '%%')} %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's own
        """ISO 8601, UTC, milliseconds."""
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own
        """The line, without a traceback."""
        return printable(super().formatMessage(record))


def set_up_logging(broker: str, level: str, stream: TextIO | None = None) -> None:
    """One line per event to standard error, which whoever started the broker redirects."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(broker))
    logging.basicConfig(level=level, handlers=[handler], force=True)


async def serve(
    config: BrokerConfig,
    seams: Seams,
    volume: Volume,
    stopping: asyncio.Event,
    observed: Callable[[BrokerPolicy], None] | None = None,
    database: Callable[[], Database] | None = None,
) -> int:
    """Run a broker until ``stopping`` is set or its policy ends it; the exit status of its process.

    Why apart from the process: the same life runs in a simulation, where signals, directories and
    processes are of other making. Everything from outside comes in by the arguments; the volume
    stays the caller's to close. ``observed`` is told of the policy once the admin port answers:
    whoever lives in this process may look at its role there.
    """
    try:
        policy = policies.create(config, seams, volume, database)
        secret = secret_of(config)
        tls.check(config)
        admin = AdminServer(config.admin, config.broker.name, policy, stopping, secret, seams.nonce)
        await admin.start()
        if observed is not None:
            observed(policy)
        try:
            await policy.run(stopping)
        finally:
            await admin.stop()
    except configuration.ConfigurationError as error:
        _log.error("%s", error)
        return configuration.EXIT_USAGE
    except MaskError as error:
        _log.error("database-store: %s", error)
        return StartError.status
    except StartError as error:
        _log.error("%s", error)
        return error.status
    _log.info("stopped")
    return 0


async def _serve_as_process(config: BrokerConfig) -> int:
    """``serve`` with the signals, the disk, the clock and the chance of this machine."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, number, stopping)
    volume: DirectoryVolume
    chosen = config.ha_policy.chosen
    lock_ms = None if chosen is None else chosen.directory_lock_ms
    try:
        if lock_ms is not None:
            volume = SharedDirectoryVolume(config.data_path)
        else:
            volume = DirectoryVolume(config.data_path)
    except OSError as error:
        _log.error(
            "data directory %s cannot be used: %s (broker.data-directory)", config.data_path, error.strerror
        )
        return StartError.status
    database = None
    if (
        lock_ms is not None
        and isinstance(volume, SharedDirectoryVolume)
        and (problem := await _lease_problem(config, volume, lock_ms))
    ):
        _log.error("%s", problem)
        await volume.close()
        return configuration.EXIT_USAGE
    if config.database_store is not None:
        database = partial(open_database, config.database_store, config.path, os.environ)
    watch = TurnWatch(config.broker.longest_turn) if config.broker.longest_turn > 0 else None
    try:
        seams = real_seams(
            config.resolved_hosts(),
            connections=open_files.for_clients(),
            turn_watch=watch,
            open_directory=SharedDirectoryVolume,
            configuration=partial(asyncio.to_thread, configuration.load, config.path),
        )
        if watch is not None:
            watch.start()
        return await serve(config, seams, volume, stopping, database=database)
    finally:
        if watch is not None:
            watch.stop()
        await volume.close()


async def _lease_problem(config: BrokerConfig, volume: SharedDirectoryVolume, lock_ms: int) -> str:
    """Why ``lock-expiration`` is too long for the file server's lease; "" if not, or unknown."""
    try:
        async with asyncio.timeout(LEASE_PATIENCE_S):
            lease_s = await volume.call(mount_lease.lease_s, config.data_path)
    except TimeoutError:
        return ""  # it does not answer: the policy waits for it, and says so
    if lease_s is None or lock_ms <= 1000 * lease_s:
        return ""
    return (
        f"{config.path}: lock-expiration is {lock_ms}: the file server of "
        f"{config.data_path} keeps the locks of a silent"
        f" broker for {lease_s} s only, so it must be at most {1000 * lease_s}"
    )


SWITCH_S: Final = 0.0005
"""The seconds after which the loop's thread lets another one run, the one that syncs above all.

A thread that waits for the interpreter begins to count anew whenever the loop looks at its sockets.
A turn of a busy loop takes 2 to 3 ms, so with Python's 5 ms a sync that the disk had finished was
noticed up to a second later.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if len(words) == 1 and words[0].startswith("--config="):
        words = ["--config", words[0].removeprefix("--config=")]
    if len(words) != 2 or words[0] != "--config":
        print(f"brokerd: {USAGE}", file=sys.stderr)
        return configuration.EXIT_USAGE
    try:
        config = configuration.load(words[1])
    except configuration.ConfigurationError as error:
        print(f"brokerd: {error}", file=sys.stderr)
        return configuration.EXIT_USAGE
    set_up_logging(config.broker.name, config.broker.log_level)
    for warning in filter(None, (exposed(config), *moved_messages.warnings(config))):
        _log.warning("%s", warning)
    # Messages are many, long-lived and free of cycles: collecting all as often as the interpreter
    # likes to would stop the broker for nothing. The young are few, since a collection is one turn:
    # of 50,000 objects it took 30 to 50 ms, and of 20 times as many 130. All are looked at only
    # where the old have become a quarter more.
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve_as_process(config))


def _stop(number: int, stopping: asyncio.Event) -> None:
    _log.info("received %s: this broker stops", signal.Signals(number).name)
    stopping.set()


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return uvloop.Loop


if __name__ == "__main__":
    sys.exit(main())
