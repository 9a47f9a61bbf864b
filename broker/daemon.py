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
from typing import TYPE_CHECKING, Final, TextIO, cast

from broker import config as configuration
from broker import moved_messages, open_files, tls
from broker.admin import AdminServer
from broker.admin_secret import exposed, secret_of
from broker.config import BrokerConfig
from broker.masking import MaskError
from broker.policies.policy import BrokerPolicy
from broker.seams import Seams, real_seams
from broker.start_error import StartError
from broker.storage import mount_lease
from broker.storage.database import Database
from broker.storage.database.opening import open_database
from broker.storage.directory import DirectoryVolume
from broker.storage.shared import SharedDirectory
from broker.storage.shared_directory import SharedDirectoryVolume
from broker.storage.volume import Volume
from broker.strangers import printable
from broker.turn_watch import TurnWatch

if TYPE_CHECKING:
    from broker.policies.shared_store.store import BrokerStore

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


def policy_of(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None = None
) -> BrokerPolicy:
    """The configured policy, if any; ``volume`` is shared where [ha-policy.shared-store] is."""
    if config.replication is not None:
        from broker.policies.replication import ReplicationPolicy  # noqa: PLC0415 - a broker starts fast with what it needs

        return ReplicationPolicy(config, seams, volume)
    if config.shared_store is not None:
        from broker.policies.shared_store import SharedStorePolicy  # noqa: PLC0415 - as above

        return SharedStorePolicy(config, seams, _shared_store(config, seams, volume, database))
    if config.ha_policy.multi_instance is not None:
        from broker.policies.multi_instance import MultiInstancePolicy  # noqa: PLC0415 - as above

        return MultiInstancePolicy(config, seams, cast("SharedDirectory", volume))
    if config.ha_policy.ha_database is not None:
        from broker.policies.ha_database import HaDatabasePolicy  # noqa: PLC0415 - as above

        assert database is not None, "a store in a database, and no database"
        return HaDatabasePolicy(config, seams, database)
    from broker.policies.standalone import StandalonePolicy  # noqa: PLC0415 - as above

    return StandalonePolicy(config, seams, volume)


def _shared_store(
    config: BrokerConfig, seams: Seams, volume: Volume, database: Callable[[], Database] | None
) -> BrokerStore:
    """The store of policy ``shared-store``, where the configuration says that it is."""
    assert config.shared_store is not None, "no shared store"
    if not config.shares_directory:
        from broker.policies.shared_store.database import DatabaseStore  # noqa: PLC0415 - as above

        assert database is not None, "a store in a database, and no database"
        return DatabaseStore(config, seams, database)
    from broker.policies.shared_store.directory import DirectoryStore  # noqa: PLC0415 - as above

    return DirectoryStore(config, config.shared_store, seams, cast("SharedDirectory", volume))


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
        policy = policy_of(config, seams, volume, database)
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
    try:
        if config.shares_directory:
            volume = SharedDirectoryVolume(config.data_path)
        else:
            volume = DirectoryVolume(config.data_path)
    except OSError as error:
        _log.error(
            "data directory %s cannot be used: %s (broker.data-directory)", config.data_path, error.strerror
        )
        return StartError.status
    database = None
    if isinstance(volume, SharedDirectoryVolume) and (problem := await _lease_problem(config, volume)):
        _log.error("%s", problem)
        await volume.close()
        return configuration.EXIT_USAGE
    if config.database_store is not None:
        database = partial(open_database, config.database_store, config.path, os.environ)
    watch = TurnWatch(config.broker.longest_turn) if config.broker.longest_turn > 0 else None
    try:
        seams = real_seams(config.resolved_hosts(), connections=open_files.for_clients(), turn_watch=watch)
        if watch is not None:
            watch.start()
        return await serve(config, seams, volume, stopping, database=database)
    finally:
        if watch is not None:
            watch.stop()
        await volume.close()


async def _lease_problem(config: BrokerConfig, volume: SharedDirectoryVolume) -> str:
    """Why ``lock-expiration`` is too long for the file server's lease; "" if not, or unknown."""
    section = config.shared_store or config.ha_policy.multi_instance
    assert section is not None, "a shared directory without a policy"
    try:
        async with asyncio.timeout(LEASE_PATIENCE_S):
            lease_s = await volume.call(mount_lease.lease_s, config.data_path)
    except TimeoutError:
        return ""  # it does not answer: the policy waits for it, and says so
    if lease_s is None or section.lock_expiration <= 1000 * lease_s:
        return ""
    return (
        f"{config.path}: lock-expiration is {section.lock_expiration}: the file server of "
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
