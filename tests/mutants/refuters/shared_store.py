"""The refuters of the rows about policy ``shared-store`` on a directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import (
    FORGETS,
    LARGE,
    LEASE,
    PAGES,
    WAITS,
    WAITS_FOR_EVER,
    Lack,
    Refuter,
    begins_without,
    without,
)

_CANDIDATE: Final = "broker/policies/shared_store/candidate.py"

_DIRECTORY: Final = "broker/policies/shared_store/directory.py"

_LIVE_ROLE: Final = "broker/policies/shared_store/live.py"

_POLICY: Final = "broker/policies/shared_store/policy.py"

_WRITES_AGAIN: Final = Replacement(
    "broker/storage/log.py",
    "        await file.sync()\n        segment = batch.segment\n",
    "        while True:\n            try:\n                await file.sync()\n                break\n  "
    "          except OSError:\n                await asyncio.sleep(0.1)\n        segment = batch.segment\n",
)

_TRIES_AGAIN: Final = Refuter(
    without="a live goes on and retries when its store reports an error",
    fails="a1 stopped after",
    changes=(
        _WRITES_AGAIN,
        Replacement(
            _LIVE_ROLE,
            "        except OSError as error:\n            raise LeaseLostError",
            "        except OSError as error:\n            await asyncio.sleep(0.1)\n"
            "            return await self._verify()\n            raise LeaseLostError",
        ),
    ),
)


def lacking(lack: Lack) -> Refuter:
    """Return a refuter in which a broker that begins a later life of the store lacks something."""
    begun = "    return Inherited(life, node_id, journal, recovered)\n"
    return begins_without(lack, _DIRECTORY, begun, condition="life > 1")


def knows_losses(*changes: Replacement) -> tuple[Replacement, ...]:
    """Return changes in which a candidate knows whether it has lost a broker.

    In ``changes`` its ``self.alone()`` says whether it has lost the link to a broker that it was
    linked with.
    """
    return (
        Replacement(
            _POLICY,
            "        return await self._compete(candidate, stopping)\n",
            "        met = []\n\n"
            "        def alone():\n"
            "            linked = list(self.membership.neighbours.linked())\n"
            "            met.extend(linked)\n"
            "            return bool(met) and not linked\n\n"
            "        candidate.alone = alone\n"
            "        return await self._compete(candidate, stopping)\n",
        ),
        *changes,
    )


REFUTERS: Final[Mapping[str, Refuter]] = {
    "SS1": lacking(FORGETS),
    "SS1-large": lacking(LARGE),
    "SS1-paging": lacking(PAGES),
    "SS2": Refuter(
        without="a backup that hears nothing from its live takes over without the live lock",
        fails="a2 became live",
        changes=knows_losses(
            Replacement(
                _CANDIDATE,
                'lock = await self._places.take("live")\n',
                'lock = await self._places.take("live")\n'
                "        if lock is None and self.alone():\n            lock = await "
                'self._places._store.try_lock("journal/server.lock", 90)\n',
            )
        ),
    ),
    "SS4-true": without(
        "a live that is stopped forbids a takeover, whatever failover-on-shutdown is",
        _LIVE_ROLE,
        "else LIVE if self.failover_on_shutdown else PAUSED",
        "else PAUSED",
        fails="no broker took over",
    ),
    "SS4-false": without(
        "a live that is stopped leaves its place to a waiting backup, whatever failover-on-shutdown is",
        _LIVE_ROLE,
        "else LIVE if self.failover_on_shutdown else PAUSED",
        "else LIVE",
        fails="a2 became live",
    ),
    "SS5-true": without(
        "a slave never gives the place back",
        _POLICY,
        "isinstance(self.section, SharedStoreSlave) and self.section.allow_failback\n",
        "False\n",
        fails="a2 took over a1's data",
    ),
    "SS5-false": without(
        "a slave gives the place back, whatever allow-failback is",
        _POLICY,
        "isinstance(self.section, SharedStoreSlave) and self.section.allow_failback\n",
        "isinstance(self.section, SharedStoreSlave)\n",
        fails="a1 became live",
    ),
    "SS5-stop": without(
        "a slave that gave the place back becomes a backup again, whatever restart-backup is",
        _POLICY,
        "isinstance(self.section, SharedStoreSlave) and not self.section.restart_backup:",
        "False:",
        fails="a2 did not end itself",
    ),
    "SS6": without(
        "a slave gives the place back even if another backup waits",
        _CANDIDATE,
        'if not await places.held("backup"):',
        "if True:",
        fails="a1 became live",
    ),
    "SS6-next": without(
        "a backup that waited behind another backup never becomes the next in line",
        _CANDIDATE,
        "self._waiting = await self._places.take(",
        'self._waiting = None if self._place.startswith("behind") else await self._places.take(',
        fails="a2 took over a1's data",
    ),
    "SS7-soft": _TRIES_AGAIN,
    "SS7-hard": without(
        "a live whose store is silent gives up within a second, whatever lock-expiration is",
        LEASE,
        "max(end_s, self._asked_s + self._expiration_s / 2)",
        "self._asked_s + 0.5",
        fails="a2 became live",
    ),
    "SS7-minutes": Refuter(
        without="a live waits for its mount while its store is silent, whatever lock-expiration is",
        fails="a1 stopped after",
        changes=(WAITS_FOR_EVER,),
    ),
    "SS7-minutes-lease": _TRIES_AGAIN,
    "SS9": Refuter(
        without="a live whose lock is lost goes on and retries its writes",
        fails="split-brain",
        changes=(
            _WRITES_AGAIN,
            Replacement(
                _LIVE_ROLE,
                '            raise LeaseLostError(f"the live lock is lost',
                '            return asked_s\n            raise LeaseLostError(f"the live lock is lost',
            ),
        ),
    ),
    "SS9-server": WAITS,
    "SS8": without(
        "a start reads all stored records once for every 200 of them",
        "broker/policies/shared_store/directory.py",
        "    return Inherited(life, node_id, journal, recovered)\n",
        "    for _ in range(0, len(recovered.records), 200):\n        sum(record.id for "
        "record in recovered.records)\n    return Inherited(life, node_id, journal, recovered)\n",
        fails="the time grows with the stored messages",
    ),
}
