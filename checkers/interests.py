"""The news of subscriptions between brokers: since when a broker knew of those at other brokers.

A message to a topic goes to the subscriptions at other brokers only if the broker that took it knew
of them. A broker answers a SUBSCRIBE when all brokers that it is linked with have the news. One
that it cannot reach gets the news later, at a time that no row tells, and the subscription is owed
nothing of what that broker takes until then.

So a message that a broker of another node took is owed only if a ``subscribe`` of that subscription
was ``ok`` before the send, and its news cannot have been held up: no fault that can silence one of
the two brokers, or a link between them, was in force from its request to its answer, or had ended
less than the recovery bound before (``Excuses.may_cut``). Every ``subscribe`` counts, also one of a
subscription that exists, because its answer waits for the news, too. If an answer names no broker,
the message is owed. If no answer to a send tells which broker took it, that may have been any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from checkers.deaths import Deaths
from checkers.excuses import Excuses
from checkers.facts import Facts
from checkers.restores import NEVER, Request
from checkers.rows import NONE, SEND_OK, Flags, Numbers, PlaceTable, Rows, first
from checkers.subscriptions import Subscriptions
from checkers.verdict import CheckOptions


@dataclass(frozen=True, slots=True)
class Interests:
    """The faults of each run under which news of subscriptions may have come late.

    A run without such faults has no entry.
    """

    excuses: Mapping[int, Excuses] = field(default_factory=dict)
    deaths: Deaths = field(default_factory=Deaths)

    def known(
        self, rows: Rows, places: PlaceTable, sent: Numbers, number: Numbers, subscriptions: Subscriptions
    ) -> Flags:
        """Return for which messages their broker knew of the subscription when they were sent.

        ``sent`` is the first send of each message that may have reached it, ``number`` the number
        of its subscription (``NONE``: it has none, and the answer is yes).
        """
        known = np.ones(rows.messages, dtype=bool)
        if not self.excuses:
            return known
        oks = rows.of(SEND_OK)
        unnamed = len(rows.broker.values)
        codes = rows.broker.codes[oks].astype(np.int64)
        broker = first(rows.id[oks], np.where(codes < 0, unnamed, codes), rows.messages)
        run = places.runs()[rows.place[rows.first_row]]
        doubtful = (number != NONE) & (broker != unnamed) & np.isin(run, list(self.excuses))
        at = np.flatnonzero(doubtful)
        for subscription, code in np.unique(np.column_stack([number[at], broker[at]]), axis=0).tolist():
            chosen = at[(number[at] == subscription) & (broker[at] == code)]
            requests = subscriptions.histories[subscription].lasting_subscribes()
            taker = None if code == NONE else rows.broker.values[code]
            answers = [
                request.answered for request in requests if self._told(int(run[chosen[0]]), request, taker)
            ]
            known[chosen] = sent[chosen] > min(answers, default=NEVER)
        return known

    def _told(self, run: int, request: Request, broker: str | None) -> bool:
        """Return whether a broker (None: any) certainly knew of a subscription by a request."""
        excuses, home = self.excuses[run], request.broker
        others = excuses.pairs.together if broker is None else (broker,)
        if home is None or all(self.deaths.of_one_node(run, other, home) for other in others):
            return True
        brokers = () if broker is None else (broker, home)
        return not excuses.may_cut(request.asked_ns, request.answered_ns, brokers)


def read(
    facts_by_run: Mapping[int, Facts], subscriptions: Subscriptions, deaths: Deaths, options: CheckOptions
) -> Interests:
    """Return the faults of each run that has subscriptions to topics."""
    runs = {run for run, _ in subscriptions.numbers}
    excuses = {run: facts.excuses(options) for run, facts in facts_by_run.items() if run in runs}
    return Interests({run: found for run, found in excuses.items() if found.effects}, deaths)
