"""The times of Classic that tests shorten; its own are those of its classes and of its manual."""

from __future__ import annotations

from typing import Final

from harness.systems.shortened import Group, Time

GROUPS: Final = (
    Group(
        "the lock of a shared directory",
        20,
        (
            Time("shared-file-locker.lockAcquireSleepInterval", 10_000, 500),
            Time(
                "kahaDB.lockKeepAlivePeriod",
                0,
                500,
                "the default is never to check that the lock is still held; this is the period of its check",
            ),
        ),
    ),
    Group(
        "the lock of a database",
        20,
        (Time("database-locker.lockAcquireSleepInterval", 10_000, 500),),
    ),
    Group(
        "the lease in a database, as in the example of the manual",
        5,
        (
            Time("lease-database-locker.lockAcquireSleepInterval", 10_000, 2000),
            Time(
                "jdbcPersistenceAdapter.lockKeepAlivePeriod",
                30_000,
                1000,
                "with the default the lease has two masters (Classic 2); the manual's example has 5000",
            ),
            Time("leaseLockerIOExceptionHandler.resumeCheckSleepPeriod", 5000, 1000),
        ),
    ),
    Group(
        "the links of a network",
        10,
        (
            Time("networkConnector.wireFormat.maxInactivityDuration", 30_000, 3000),
            Time("static.initialReconnectDelay", 1000, 100),
            Time(
                "static.maxReconnectDelay",
                30_000,
                500,
                "in proportion, a bridge might wait for longer than a test gives a cluster to recover",
            ),
        ),
    ),
)
