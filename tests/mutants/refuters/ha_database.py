"""The refuters of the rows about policy ``ha-database``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import (
    LARGE,
    NEVER_IN_DOUBT,
    PAGES,
    SUBSCRIPTIONS,
    WAITS_FOR_EVER,
    Lack,
    Refuter,
    begins_without,
    without,
)

_LIFE: Final = "broker/policies/ha_database/life.py"

_STEERING: Final = "broker/policies/ha_database/steering.py"

_WATCH: Final = "broker/policies/ha_database/watch.py"

_JOURNAL: Final = "broker/storage/database/journal.py"

_REGISTRY: Final = "broker/storage/database/registry.py"


def _lacking(lack: Lack) -> Refuter:
    return begins_without(lack, _LIFE, "        session = max(gained)\n", broker="a taker", records="records")


REFUTERS: Final[Mapping[str, Refuter]] = {
    "HA1": without(
        "brokers never find that a broker has failed",
        _WATCH,
        "if not self._confirmed(row):\n            return None",
        "if True:\n            return None",
        fails="no broker took over",
    ),
    "HA1-large": _lacking(LARGE),
    "HA1-paging": _lacking(PAGES),
    "HA2": Refuter(
        without="a takeover is no compare-and-set: every broker that has seen the failure takes over",
        fails="took over a1's data",
        changes=(
            Replacement(_REGISTRY, 'conditions = "epoch = ?"', 'conditions = "epoch >= ?"'),
            Replacement(
                _REGISTRY,
                "        if not forced:\n            conditions +=",
                "        if False:\n            conditions +=",
            ),
        ),
    ),
    "HA3-load": _lacking(SUBSCRIPTIONS),
    "HA4": Refuter(
        without="a broker serves and writes although its lease has ended and another broker has taken over",
        fails="found double-delivery",
        changes=(
            NEVER_IN_DOUBT,
            WAITS_FOR_EVER,
            Replacement(
                _REGISTRY,
                '_OWN: Final = "WHERE cluster_id = ? AND broker_id = ? AND epoch = ?"',
                '_OWN: Final = "WHERE cluster_id = ? AND broker_id = ? AND epoch >= ?"',
            ),
            Replacement(
                _REGISTRY,
                "THEN 0 WHEN state = ? THEN entry ELSE ? END",
                "THEN entry WHEN state = ? THEN entry ELSE ? END",
            ),
        ),
    ),
    "HA4-patient": without(
        "brokers suspect a silent broker after 3 s, whatever lock-expiration is",
        "broker/policies/ha_database/policy.py",
        "expiration_ms=self.store.lock_expiration,",
        "expiration_ms=3000,",
        fails="took over a1's data",
    ),
    "HA5": without(
        "a takeover that has begun belongs to its taker for ever",
        _WATCH,
        "if row.state != TAKEOVER_STARTED and row.state not in RUNNING:",
        "if row.state not in RUNNING:",
        fails="no broker took over",
    ),
    "HA6-true": without(
        "no shutdown leaves the broker's messages to other brokers",
        _LIFE,
        "SHUTDOWN_FAILOVER if self.failover_on_shutdown else SHUTDOWN_COMPLETE",
        "SHUTDOWN_COMPLETE",
        fails="no broker took over",
    ),
    "HA6-false": without(
        "every shutdown leaves the broker's messages to other brokers",
        _LIFE,
        "SHUTDOWN_FAILOVER if self.failover_on_shutdown else SHUTDOWN_COMPLETE",
        "SHUTDOWN_FAILOVER",
        fails="took over a1's data",
    ),
    "HA6-by-hand": without(
        "a takeover by command, too, works only on a broker that has failed",
        _STEERING,
        "row, forced=True)",
        "row, forced=False)",
        fails="no broker took over",
    ),
    "HA6-forced": without(
        "the process of a broker that was taken over ends",
        "broker/policies/ha_database/policy.py",
        'if await self._live_once(stopping) == "stopped":',
        'if await self._live_once(stopping) != "failed":',
        fails="a1 had ended by itself",
    ),
    "HA6-forced-paused": without(
        "a forced takeover does not wait until the victim has stopped serving",
        _REGISTRY,
        "(entry = ? OR heartbeat < clock_ms() - ?)",
        "(entry >= ? OR heartbeat < clock_ms() - ?)",
        fails='is taken over with" first',
    ),
    "HA7-load": without(
        "a quiescing broker refuses no connection",
        _STEERING,
        'life.store_sessions.closed = f"{self._broker_id} is quiescing: it takes no new connections"',
        'life.store_sessions.closed = ""',
        fails="new clients meanwhile",
    ),
    "HA11-stall": Refuter(
        without="a broker answers clients until it drops its messages, however old its lease is",
        fails="answers and deliveries meanwhile",
        changes=(NEVER_IN_DOUBT,),
    ),
    "HA11-restart": without(
        "a broker does not retry a batch that the database did not accept",
        _JOURNAL,
        "                await asyncio.sleep(RETRY_S)\n                continue\n",
        "                return\n",
        fails="lost besides",
    ),
    "HA11-disconnect": without(
        "a broker assumes that a batch was written although the connection broke",
        _JOURNAL,
        "in_doubt = in_doubt or isinstance(error, OutcomeUnknownError)",
        "in_doubt = True\n                if isinstance(error, OutcomeUnknownError):\n      "
        "              return",
        fails="lost besides",
    ),
    "HA11-cut-off": Refuter(
        without="a broker without a confirmed lease answers no client, but never drops its messages",
        fails='another broker logged "a1 is taken over with" first',
        changes=(WAITS_FOR_EVER,),
    ),
    "HA3": without(
        "a taker treats the messages of a killed broker as never delivered",
        "broker/core/engine.py",
        "            least = image.least_deliveries_in(queue.name)\n",
        "            least = 0\n",
        fails="a message that may have been delivered before is marked as redelivered",
    ),
    "HA12": without(
        "a taker never cleans the temporary queues of a failed broker",
        "broker/core/transient.py",
        "            self._end(queue)\n",
        "            self.keep(queue)\n",
        fails="the taker cleans the queue after the waiting period",
    ),
    "HA12-in-time": without(
        "a taker cleans the temporary queues of a failed broker at once",
        "broker/core/transient.py",
        "        if not self.wait_s or not queue",
        "        if self.wait_s or not queue",
        fails="the taker keeps the queue",
    ),
    "HA8": without(
        "a broker ignores a list of brokers without a warning",
        "broker/policies/ha_database/policy.py",
        "if config.cluster.static_connectors:",
        "if False:",
        fails="the broker ignores its list of brokers and logs a warning",
    ),
    "HA8-id": without(
        "a broker that registers takes an id from the broker that has it",
        "broker/storage/database/registry.py",
        'f" AND (address = ? OR state NOT IN',
        'f" AND (1 = 1 OR address = ? OR state NOT IN',
        fails="a second broker with an id that is in use",
    ),
    "HA6-takeover": without(
        "a takeover by command asks no question, even if the broker runs",
        _STEERING,
        "if row.state in RUNNING and row.silence_ms < registry.expiration_ms and not force:",
        "if False:",
        fails="the command shows the last access of a broker that seems to run",
    ),
    "HA7-shutdown": without(
        "every shutdown leaves the broker's messages to other brokers",
        "broker/policies/ha_database/life.py",
        "SHUTDOWN_FAILOVER if self.failover_on_shutdown else SHUTDOWN_COMPLETE",
        "SHUTDOWN_FAILOVER",
        fails="no broker takes it over after its shutdown",
    ),
    "HA9": without(
        "the list shows no taker",
        _STEERING,
        '"taker": row.taker or None,',
        '"taker": None,',
        fails="the list shows a takeover that has begun",
    ),
    "HA10": without(
        "the tool considers no broker to be running",
        "broker/database_tool/store.py",
        "AND heartbeat >= clock_ms() - ?{one}",
        "AND heartbeat >= clock_ms() + ?{one}",
        fails="remove-broker, restore and reset-locks are refused while brokers run",
    ),
}
