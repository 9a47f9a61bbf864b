"""The refuters of the rows about the change record of a conventional cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import Refuter, without

_MASTER: Final = "broker/cluster/change_master.py"
_DIVERGED: Final = "found diverged"


def _by_itself(fails: str) -> Refuter:
    return without(
        "a broker that does not reach the master makes durable subscriptions by itself",
        "broker/stomp/session.py",
        "        if self.engine.changes is None or not subscription.durable:\n",
        "        joined = getattr(self.engine.changes, 'feed', self.engine.changes.has_master or None)\n"
        "        if joined is None or not subscription.durable:\n",
        fails=fails,
    )


_ENDS_FEEDS: Final = without(
    "the loss of one member ends what the master tells the others",
    _MASTER,
    "        self._feeds.pop(link, None)\n",
    "        self._feeds.clear()\n",
    fails=_DIVERGED,
)


REFUTERS: Final[Mapping[str, Refuter]] = {
    "CV3": without(
        "a broker that is back gets only the changes that are made from then on",
        _MASTER,
        "record.changes_since(0 if is_whole else message.sequence)",
        "record.changes_since(head.sequence)",
        fails=_DIVERGED,
    ),
    "CV3-in-time": without(
        "a broker that is back asks for changes after six seconds",
        "broker/cluster/change_member.py",
        "        link.send(m.ChangesWanted(head.incarnation, head.sequence, self._question))\n",
        "        wanted = m.ChangesWanted(head.incarnation, head.sequence, self._question)\n"
        "        asyncio.get_running_loop().call_later(6.0, link.send, wanted)\n",
        fails="c1 did not have change",
    ),
    "CV3-away": _ENDS_FEEDS,
    "CV3-load": without(
        "a queue that was deleted and created again keeps its messages at a broker that was down",
        "broker/core/change_record.py",
        "            return former.place != change.place\n",
        "            return change.value is None\n",
        fails="found resurrected",
    ),
    "CV3-destinations": without(
        "a destination that was dropped and made again keeps its messages at a broker that was down",
        "broker/core/change_record.py",
        "            return former.place != change.place\n",
        "            return change.value is None\n",
        fails="b1 has no messages of the former destination",
    ),
    "CV3-clients": without(
        "a broker does not care which clients connect to others",
        "broker/cluster/client_claims.py",
        "            if client in self._claims and (number, other)",
        "            if not client and (number, other)",
        fails="its connection to a1 is ended",
    ),
    "CV4": _by_itself("subscribe requests for that reason"),
    "CV4-member": _ENDS_FEEDS,
    "CV4-commands": _by_itself("without the master, durable subscribe"),
    "CV5": _by_itself("without a master configured, durable subscribe"),
    "CV8": without(
        "a restored record keeps the incarnation that it had",
        "broker/core/restoration.py",
        "incarnation=incarnation,",
        "incarnation=backup.head.incarnation,",
        fails="changes since the backup are gone",
    ),
    "CV8-master": without(
        "a member joins whatever record the master has",
        "broker/cluster/change_member.py",
        "        if head is None or not head.incarnation or head.incarnation in given.ancestors:\n",
        "        if True:\n",
        fails="a member does not join the record",
    ),
    "CV14": Refuter(
        without="the master numbers changes by its wall clock",
        fails=_DIVERGED,
        changes=(
            Replacement(
                "broker/core/change_record.py",
                "head.sequence + 1, request, kind, key, value, dropped)",
                "self._engine.now() * 1000 + (head.sequence + 1) % 1000, request, kind, key, value, dropped)",
            ),
            Replacement(
                "broker/cluster/change_member.py", " or change.sequence > head.sequence + 1:\n", ":\n"
            ),
        ),
    ),
}
