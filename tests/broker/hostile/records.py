"""TLS as a client speaks it over two streams, with its records within reach.

To be sent, changed, or sent twice.
"""

import asyncio
import ssl

CHUNK = 1 << 16


def context(version=ssl.TLSVersion.TLSv1_3, key_store=None):
    """Of a client that takes any server, and speaks that version and no later one."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.maximum_version = version
    if key_store is not None:
        made.load_cert_chain(key_store)
    return made


class Secured:
    """One connection; ``readuntil`` reads what was within its records."""

    def __init__(self, made, reader, writer):
        self._reader, self._writer = reader, writer
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = made.wrap_bio(self._arrived, self._leaving)
        self._data = b""

    def hello(self):
        """The first flight."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._leaving.read()
        raise AssertionError("a handshake without an answer")

    async def handshake(self):
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._exchange()
            else:
                self._writer.write(self._leaving.read())
                return

    def records(self, data):
        """The same, encrypted."""
        if data:
            self._tls.write(data)
        return self._leaving.read()

    async def readuntil(self, end):
        while end not in self._data:
            try:
                self._data += self._tls.read(CHUNK)
            except ssl.SSLWantReadError:
                await self._exchange()
        found, end, self._data = self._data.partition(end)
        return found + end

    async def _exchange(self):
        self._writer.write(self._leaving.read())
        data = await self._reader.read(CHUNK)
        if not data:
            raise asyncio.IncompleteReadError(b"", None)
        self._arrived.write(data)
