"""The server in a container, mounted from this host and from another container."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from nfs_container import ServerContainer
from nfs_store import SAFE

from environments.docker.engine import connect, labels
from environments.docker.file_store import CLIENT_OPTIONS, PORT, store_image
from environments.docker.network import create_network, host_address
from environments.nfs_mounting import mount
from harness.interface import Address


def heard(ask, wanted):
    """An engine on a busy machine now and then loses what a short command says.

    One that says it is asked no more.
    """
    for _ in range(20):
        if ask() == wanted:
            return
    assert ask() == wanted


@pytest.mark.docker
@pytest.mark.nfs
def test_a_server_in_a_container_serves_this_host_and_other_containers_and_outlives_its_kill(tmp_path):
    run = f"jepsen-run-nfs-test-{os.getpid()}"
    client = connect()
    image = store_image(client, lambda line: print(line, file=sys.stderr))
    network, subnet = create_network(client, run, internal=False)
    made = []
    try:
        server = ServerContainer(
            client, run, image, network.name, host_address(subnet, 0), lease_s=6, grace_s=6
        )
        made.append(server)
        server.start()

        async def scenario():
            options = f"hard,{SAFE},timeo=100"
            here = await mount(
                Address(server.address, PORT),
                "/store",
                tmp_path / "m",
                options,
                tmp_path / "log",
            )
            try:
                await asyncio.to_thread(with_another_container, here.directory)
            finally:
                await here.unmount()

        def with_another_container(directory: Path):
            (directory / "from-host").write_bytes(b"1")
            other = client.containers.create(
                image,
                [
                    "sh",
                    "-c",
                    f"mkdir /m; exec python3 -m filesystems.nfs.mount {server.address}/store /m -o {SAFE}",
                ],
                network=network.name,
                labels=labels(run),
                **CLIENT_OPTIONS,
            )
            try:
                other.start()
                lines = other.logs(stream=True, follow=True)
                assert any(line.startswith(b"mounted /m") for line in lines)
                words = ["sh", "-c", "cat /m/from-host; printf 2 > /m/from-container"]
                heard(lambda: tuple(other.exec_run(words)), (0, b"1"))
                assert (directory / "from-container").read_bytes() == b"2"
                server.kill()
                server.start()
                assert (directory / "from-container").read_bytes() == b"2"
                heard(lambda: server.run("cat", "/srv/store/from-host"), "1")
                heard(lambda: "NFS SERVER INITIALIZED" in server.log(), True)
            finally:
                other.remove(force=True)

        asyncio.run(scenario())
    finally:
        for server in made:
            server.remove()
        network.remove()
        client.close()
