"""The NFS client of a machine, with a mount program that is none."""

import asyncio

from environments.agent import store_client
from environments.agent.store_client import StoreClient


def test_a_mount_that_could_not_be_started_is_tried_again(tmp_path, monkeypatch):
    async def test():
        said, tries = [], []
        client = StoreClient(tmp_path / "log", said.append)

        def start(*_):
            tries.append(len(tries))
            if tries == [0]:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            client.child.exited.clear()

        monkeypatch.setattr(client.child, "start", start)
        monkeypatch.setattr(store_client, "_AGAIN_S", 0.01)
        monkeypatch.setattr(store_client.fuse_device, "unmount", lambda _: None)
        client.begin("server:/export", str(tmp_path / "mount"), "hard")
        async with asyncio.timeout(5):
            while len(tries) < 2:
                await asyncio.sleep(0.01)
        assert said[0].startswith("the NFS client could not be started: ")

    asyncio.run(test())
