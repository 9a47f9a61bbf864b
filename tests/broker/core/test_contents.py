"""What a live says that its queues hold is what a copy of its journal says."""

import asyncio

from engines import Broker, settings
from test_paging import PAGED, filled

from broker.core.contents import served, stored
from broker.storage.journal import Journal


def run(scenario):
    return asyncio.run(scenario())


async def copied(broker):
    """What the journal says on the disk as it is."""
    journal, recovered = await Journal.open(broker.volume, "journal")
    held = await stored(recovered.records, broker.volume)
    await journal.close()
    return held


async def both(broker):
    await broker.settle()
    said = await served(broker.engine)
    await broker.engine.journal.close()
    return said, await copied(broker)


def test_a_live_and_its_journal_hold_the_same():
    async def main():
        broker = await Broker.start()
        for number in range(5):
            broker.send(str(number))
        client = broker.consume(window=2)
        await broker.settle()
        broker.engine.acknowledge(client.held[:1])
        said, stored_ = await both(broker)
        assert said == stored_
        assert said["q"].startswith("4 messages (")

    run(main)


def test_what_is_on_pages_counts_and_what_is_on_a_missing_page_does_not():
    async def main():
        broker = await filled(made_of=PAGED)
        said, stored_ = await both(broker)
        assert said == stored_
        page = (await broker.volume.list("paging"))[0]
        await broker.volume.remove(f"paging/{page}")
        assert (await copied(broker))["q"] != said["q"]

    run(main)


def test_another_message_is_another_content_though_as_many_are_there():
    async def main():
        told = []
        for sent, acknowledged in ((3, 0), (4, 1)):
            broker = await Broker.start(made_of=settings())
            for number in range(sent):
                broker.send(str(number))
            client = broker.consume(window=1)
            await broker.settle()
            if acknowledged:
                broker.engine.acknowledge(client.held)
            await broker.settle()
            told.append((await served(broker.engine))["q"])
        assert [words.partition(" (")[0] for words in told] == ["3 messages"] * 2
        assert told[0] != told[1]

    run(main)
