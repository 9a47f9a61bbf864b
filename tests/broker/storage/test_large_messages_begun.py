"""A large body whose connection ends while the disk still makes its file."""

import asyncio
import itertools

import pytest

from broker.storage.blobs import LARGE_MESSAGES, BlobFiles, Blobs
from broker.storage.memory import MemoryVolume


class Slow(MemoryVolume):
    """Opens a file when it is let; as a thread does, whether or not anybody still waits."""

    def __init__(self):
        super().__init__()
        self.asked = asyncio.Event()
        self.let = asyncio.Event()

    async def open(self, path):
        file = await super().open(path)
        self.asked.set()
        await self.let.wait()
        return file


def test_a_file_that_is_made_after_its_sender_has_gone_is_removed():
    async def main():
        volume = Slow()
        store = Blobs(BlobFiles(volume, LARGE_MESSAGES), itertools.count(1).__next__)
        beginning = asyncio.create_task(store.begin())
        await volume.asked.wait()
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        assert list(volume.image()) == [f"{LARGE_MESSAGES}/1.msg"]
        volume.let.set()
        await store.close()
        assert volume.image() == {}

    asyncio.run(main())
