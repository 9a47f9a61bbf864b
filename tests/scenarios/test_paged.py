"""The scenarios with little memory do what they are for.

Pages are written before the fault, and read by whoever takes over.
"""

import msgspec
import pytest

from broker.core import paging
from harness.claims.scenarios import named
from harness.run.simulate import simulate


@pytest.mark.parametrize("identifier", ["RP1-paging", "SS1-paging", "SS3-paging"])
def test_a_taker_reads_the_pages_of_the_one_before(identifier, monkeypatch):
    written, read = {}, {}
    bring, put = paging.Paging._write_page, paging.Paging.read

    async def write_page(self, queue, backlog):
        before = {page.id for page in backlog.items() if isinstance(page, paging.Page)}
        await bring(self, queue, backlog)
        for page in backlog.items():
            if isinstance(page, paging.Page) and page.id not in before:
                written[page.id] = self

    async def read_page(self, page):
        read.setdefault(page.id, []).append(self)
        return await put(self, page)

    monkeypatch.setattr(paging.Paging, "_write_page", write_page)
    monkeypatch.setattr(paging.Paging, "read", read_page)
    scenario = named(identifier)
    done = simulate(msgspec.structs.replace(scenario.spec, environment="simulation"), scenario.schedule)
    assert done.valid
    taken = [
        id_
        for id_, readers in read.items()
        if id_ in written and any(one is not written[id_] for one in readers)
    ]
    assert len(taken) >= 3, "pages of one life, read by another"
