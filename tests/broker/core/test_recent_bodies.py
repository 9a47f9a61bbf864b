"""Bodies in files that are remembered for a while."""

from types import SimpleNamespace

from broker.core.blobs import RECENT_MAX, LargeBodies
from broker.storage.blobs import Blob

BODY = bytes(RECENT_MAX // 4)


def test_the_latest_shared_bodies_are_remembered_and_no_more_than_so_many_bytes():
    bodies = LargeBodies(None, SimpleNamespace(), SimpleNamespace())
    blobs = [Blob(number, len(BODY), 0) for number in range(6)]
    for blob in blobs:
        bodies.remember(blob, BODY)
    assert [bodies.recent(blob) for blob in blobs] == [None, None, BODY, BODY, BODY, BODY]
