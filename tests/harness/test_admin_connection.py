"""A broker that goes away between two questions is a broker that does not answer, on every kind
of event loop.
"""

import asyncio
import json

import pytest
import uvloop

from broker.handshake import NONCE_BYTES, proof
from harness.interface import Address
from harness.systems.own.admin import AdminClients
from harness.systems.own.credentials import Credentials

THEIRS = b"n" * NONCE_BYTES
STATUS = {"ok": True, "name": "a1", "role": "live", "epoch": 1}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_that_was_reset_after_an_answer_is_an_error_once_and_made_again(run):
    async def main():
        resets = asyncio.Queue()

        credentials = Credentials()

        async def serve(reader, writer):
            writer.write(
                json.dumps({"authentication": "hmac-sha256", "nonce": THEIRS.hex()}).encode() + b"\n"
            )
            ours = bytes.fromhex(json.loads(await reader.readline())["nonce"])
            digest = proof(credentials.admin, "admin", "accepting", ours, THEIRS)
            writer.write(json.dumps({"ok": True, "proof": digest.hex()}).encode() + b"\n")
            await reader.readline()
            writer.write(json.dumps(STATUS).encode() + b"\n")
            await resets.get()
            writer.transport.abort()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
            clients = AdminClients(credentials)
            assert (await clients.status(address)).role == "live"
            transport = clients._connections[address]._streams[1].transport
            resets.put_nowait(None)
            while not transport.is_closing():
                transport.write(b"\n")  # the answer to what nobody reads any more is a reset
                await asyncio.sleep(0)
            with pytest.raises(OSError, match="closed the admin connection"):
                await clients.status(address)
            assert (await clients.status(address)).role == "live"
            resets.put_nowait(None)

    run(main())
