"""Delivery counts that did not grow though their message had been given back: count-stuck.

Only deliveries by one process of a broker, or in one session, are compared. Whether counts outlive
the process is another promise.
"""

from __future__ import annotations

import numpy as np

from checkers.acknowledgements import acks, given_before
from checkers.deaths import Deaths
from checkers.ends import Ends
from checkers.refusals import Redeliveries, Refusals
from checkers.rows import FOREVER, NONE, Flags, Rows, marked, ordered
from checkers.running import highest_before, segments
from checkers.verdict import Promises


def stuck(
    rows: Rows,
    ends: Ends,
    promises: Promises,
    deaths: Deaths,
    refusals: Refusals,
    deliveries: Redeliveries,
) -> Flags:
    """Flag the deliveries whose count is not above that of an earlier one that was given back."""
    at = deliveries.at
    result = np.zeros(len(at), dtype=bool)
    count = rows.delivery_count[at]
    if promises.counts == "never" or not promises.single:
        return result
    ids, index = rows.id[at], rows.index[at]
    order = ordered(ids, index)
    most = np.full(len(at), NONE, dtype=np.int64)
    most[order] = highest_before(segments(ids[order]), count[order])
    low = np.flatnonzero((count != NONE) & (most >= count))
    if not len(low):
        return result
    if promises.nack != "requeue":
        refusals = refusals.some(~refusals.nack)
    suspects = np.unique(ids[low])
    refused = refusals.by_message(suspects.tolist())
    run, session = rows.run[at], rows.session[at]
    over = ends.sessions.find("over", run, session)
    failed = _failed(rows, marked(suspects, rows.messages))
    by_message: dict[int, list[int]] = {other: [] for other in refused}
    for n in order[np.isin(ids[order], ids[low])].tolist():
        by_message[int(ids[n])].append(n)

    def given_back(earlier: int, read: int) -> bool:
        """Return whether something before row ``read`` gave a delivery back.

        The end of its session did, an ack of it that failed, or a refusal that was asked for.
        """
        if over[earlier] != NONE and over[earlier] < read:
            return True
        if failed.get(int(at[earlier]), FOREVER) < read:
            return True
        return any(
            refusals.held[other] == index[earlier] and refusals.asked[other] < read
            for other in refused[int(ids[earlier])]
        )

    def served_by_one(earlier: int, later: int) -> bool:
        if session[earlier] == session[later]:
            return True
        broker = rows.broker.at(int(at[later]))
        return rows.broker.at(int(at[earlier])) == broker and deaths.one_process(
            int(run[later]), broker, int(index[earlier]), int(index[later]), int(rows.time[at[later]])
        )

    for n in low.tolist():
        result[n] = any(
            count[other] >= count[n]
            and (session[other] == session[n] or deliveries.possible[n] > index[other])
            and given_back(other, int(index[n]))
            and served_by_one(other, n)
            for other in by_message[int(ids[n])]
            if index[other] < index[n]
        )
    return result


def _failed(rows: Rows, flagged: Flags) -> dict[int, int]:
    """Return the row of the first ack that failed, by the position of the acked delivery."""
    failed_acks = acks(rows, flagged)
    failed_acks = failed_acks.some(failed_acks.failed)
    deliveries = given_before(rows, failed_acks.at)
    answered = zip(deliveries[deliveries >= 0], rows.index[failed_acks.at[deliveries >= 0]], strict=True)
    result: dict[int, int] = {}
    for delivery, row in answered:
        result[int(delivery)] = min(int(row), result.get(int(delivery), FOREVER))
    return result
