"""Multicast sockets of this machine, over its loopback interface."""

import asyncio

import pytest
import uvloop

from broker.multicast import open_multicast

GROUP = "231.7.7.7"
LOOPBACK = ("127.0.0.1", 0)


class Ear(asyncio.DatagramProtocol):
    def __init__(self):
        self.heard = asyncio.Queue()

    def datagram_received(self, data, addr):
        self.heard.put_nowait(data)


async def free_port():
    ear = await open_multicast(Ear, (GROUP, 0), LOOPBACK, listens=True)
    port = ear.get_extra_info("sockname")[1]
    ear.close()
    return port


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop])
def run(request):
    def run(main):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main())

    return run


def test_each_socket_of_a_group_hears_what_is_sent_to_that_group_only(run):
    async def main():
        port = await free_port()
        ears = [Ear(), Ear(), Ear()]
        groups = [GROUP, GROUP, "231.7.7.8"]
        opened = [
            await open_multicast(lambda ear=ear: ear, (group, port), LOOPBACK, listens=True)
            for ear, group in zip(ears, groups, strict=True)
        ]
        speaker = await open_multicast(Ear, (GROUP, port), LOOPBACK, listens=False)
        speaker.sendto(b"to the first group", (GROUP, port))
        speaker.sendto(b"to the other group", ("231.7.7.8", port))
        heard = [await asyncio.wait_for(ear.heard.get(), 10) for ear in ears]
        assert all(ear.heard.empty() for ear in ears)
        for transport in (*opened, speaker):
            transport.close()
        return heard

    assert run(main) == [b"to the first group"] * 2 + [b"to the other group"]


def test_a_socket_that_sends_has_the_port_that_is_asked_for(run):
    async def main():
        port = await free_port()
        speaker = await open_multicast(Ear, (GROUP, 9876), ("127.0.0.1", port), listens=False)
        name = speaker.get_extra_info("sockname")
        with pytest.raises(OSError, match="in use"):
            await open_multicast(Ear, (GROUP, 9876), ("127.0.0.1", port), listens=False)
        speaker.close()
        return name == ("127.0.0.1", port)

    assert run(main)


def test_an_interface_that_is_not_there_is_an_error(run):
    async def main():
        with pytest.raises(OSError, match="device"):
            await open_multicast(Ear, (GROUP, 9876), ("192.0.2.1", 0), listens=True)

    run(main)
