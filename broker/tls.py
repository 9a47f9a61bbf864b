"""TLS between a transport and whatever protocol is spoken over it.

The acceptor, the links of a cluster, the admin port.

Why over ``ssl.MemoryBIO`` and not by the loop: the protocol within sees a transport like any other,
a network that knows no TLS (the simulated one) carries it as it is, and what is refused can be said
in one line on both sides, with its reason.

Who connects is as little trusted as before: a handshake has a time, and of too many the oldest
gives way. Certificates say who may connect at all; names in them are not compared with addresses.
So a trust store must hold the authority of this cluster (of these clients) alone, never one that
signs for everybody.
"""

# ruff: noqa: D102 - asyncio.Protocol says what its methods mean
from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from broker.admin_secret import refuse_readable
from broker.config import BrokerConfig, ConfigurationError
from broker.section import TlsSection
from broker.strangers import StrangerLog, address_of

HANDSHAKE_S_MAX: Final = 10.0
HANDSHAKES_MAX: Final = 256
"""Under way at one time at one port; beyond it the oldest gives way."""
CHUNK: Final = 64 * 1024


class TlsError(ConnectionError):
    """No TLS with the other side; the text says why. Mend the certificates or the configuration."""


class Layer:
    """How one section of the configuration speaks TLS, on both sides."""

    def __init__(self, section: TlsSection, config: BrokerConfig, name: str) -> None:
        self._accepts = _context(section, config, name, server=True)
        self._connects = _context(section, config, name, server=False) if section.trust_store_path else None
        self._shaking: dict[TlsProtocol, None] = {}

    @classmethod
    def of(cls, section: TlsSection, config: BrokerConfig, name: str) -> Layer | None:
        """None where not enabled. Raises ConfigurationError, with the property under ``name``."""
        return cls(section, config, name) if section.ssl_enabled else None

    def accepting(self, inner: asyncio.Protocol, strangers: StrangerLog, what: str) -> asyncio.Protocol:
        """For ``create_server``. Failures are told of in the log as those of ``what``."""

        def failed(protocol: TlsProtocol, reason: str) -> None:
            address = address_of(protocol.get_extra_info("peername"))
            strangers.tell(address, f"{what}: connection from {address} refused: {reason}")

        return TlsProtocol(self._accepts, inner, server_side=True, failed=failed, shaking=self._shaking)

    def connecting(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """For ``create_connection``.

        ``inner`` is told of a failure by ``connection_lost`` with a TlsError, even before
        ``connection_made``.
        """
        assert self._connects is not None, "nobody to trust: links want a trust store"

        def failed(_: TlsProtocol, reason: str) -> None:
            inner.connection_lost(TlsError(reason))

        return TlsProtocol(self._connects, inner, server_side=False, failed=failed, shaking={})


class TlsProtocol(asyncio.Protocol):
    """One connection.

    ``failed`` is called, once, when no handshake came about; ``inner`` has seen nothing of the
    connection then.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        inner: asyncio.Protocol,
        *,
        server_side: bool,
        failed: Callable[[TlsProtocol, str], None],
        shaking: dict[TlsProtocol, None],
    ) -> None:
        self._inner = inner
        self._failed = failed
        self._handshakes = shaking
        self._arrived = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_side=server_side)
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.TimerHandle | None = None
        self._shaken = False
        self._paused = False
        self._ended = False
        self._error: TlsError | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As a transport's."""
        if name == "ssl_object":
            return getattr(self, "_tls", None)
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    # -------------------------------------------------------------------------------- from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._late = asyncio.get_running_loop().call_later(
            HANDSHAKE_S_MAX, self.refuse, f"no TLS handshake within {HANDSHAKE_S_MAX:g} s"
        )
        self._handshakes[self] = None
        if len(self._handshakes) > HANDSHAKES_MAX:
            next(iter(self._handshakes)).refuse(f"more than {HANDSHAKES_MAX} TLS handshakes at one time")
        self._shake()

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._arrived.write(data)
        if not self._shaken:
            self._shake()
        if self._shaken:
            self.read()

    def eof_received(self) -> bool:
        if not self._shaken or self._ended:
            return False
        self._arrived.write_eof()
        self.read()
        return not self._ended

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._shaken:
            self.refuse("the connection ended within the TLS handshake")
        self._end()
        if self._shaken:
            self._inner.connection_lost(self._error or exc)
        # Tens of kilobytes, which would otherwise wait for the garbage collector: this and what is
        # within know each other.
        del self._tls, self._arrived, self._leaving

    def pause_writing(self) -> None:
        if self._shaken:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._shaken:
            self._inner.resume_writing()

    # --------------------------------------------------------------------- for the transport within

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt, and hand over."""
        if self._ended or not data:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            self._broken(error)
            return
        self._flush()

    def read(self) -> None:
        """Hand all that has arrived to the protocol within, as long as it wants it."""
        while not (self._paused or self._ended):
            try:
                data = self._tls.read(CHUNK)
            except ssl.SSLWantReadError:
                self._flush()
                return
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                data = b""
            except ssl.SSLError as error:
                self._broken(error)
                return
            if not data:
                if not self._inner.eof_received():
                    self.close()
                return
            self._inner.data_received(data)

    def pause(self, *, paused: bool) -> None:
        """Read no more for now, or go on."""
        self._paused = paused
        if self._transport is None or self._ended:
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self.read)

    def close(self) -> None:
        """Say that it is the end, and close when everything has left."""
        if self._ended:
            return
        with contextlib.suppress(ssl.SSLError):  # the other side's word is not waited for
            self._tls.unwrap()
        self._flush()
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it without another byte."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    # --------------------------------------------------------------------------------------- inside

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert: the other side shall know why, too
            self.refuse(reason_of(error))
            return
        self._flush()
        if self._transport is None:
            return
        self._shaken = True
        self._handshake_over()
        self._inner.connection_made(TlsTransport(self, self._transport))

    def refuse(self, reason: str) -> None:
        """End it before it has begun."""
        if self._shaken or self._ended:
            return
        self._end()
        self._failed(self, reason)
        if self._transport is not None:
            self._transport.close()

    def _broken(self, error: ssl.SSLError) -> None:
        """Takes in an error after the handshake.

        With TLS 1.3 it is only then that who connected hears that its certificate was refused.
        """
        self._error = TlsError(reason_of(error))
        self._flush()
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._leaving.pending and self._transport is not None:
            self._transport.write(self._leaving.read())

    def _end(self) -> None:
        self._ended = True
        self._handshake_over()

    def _handshake_over(self) -> None:
        self._handshakes.pop(self, None)
        if self._late is not None:
            self._late.cancel()


class TlsTransport(asyncio.Transport):
    """What the protocol within takes for its connection."""

    def __init__(self, tls: TlsProtocol, below: asyncio.Transport) -> None:
        super().__init__()
        self._tls = tls
        self._below = below

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        self._tls.close()

    def abort(self) -> None:
        self._tls.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._tls.write(data)

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._tls.pause(paused=True)

    def resume_reading(self) -> None:
        self._tls.pause(paused=False)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)


def reason_of(error: ssl.SSLError) -> str:
    """Why a handshake failed, in one line, from the point of view of this side."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    reason = (error.reason or "no reason given").replace("_", " ").lower()
    if "alert" in reason:
        return f"it refused our certificate, or TLS with us: {reason.rpartition('alert ')[2]}"
    if "no certificate" in reason or "did not return a certificate" in reason:
        return "it has no certificate, and one is needed"
    if reason in ("wrong version number", "http request", "unexpected message", "record layer failure"):
        return f"it does not speak TLS ({reason})"
    return f"no TLS: {reason}"


def check(config: BrokerConfig) -> None:
    """Read every key and certificate once, so that errors come first. Raises ConfigurationError."""
    for name, section in (("acceptor", config.acceptor), ("cluster", config.cluster)):
        if section is not None:
            Layer.of(section, config, name)


def _context(section: TlsSection, config: BrokerConfig, name: str, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    directory = Path(config.path).resolve().parent if config.path else Path()
    if server:
        context.num_tickets = 0  # nothing is resumed: every connection proves itself anew
    else:
        context.check_hostname = False
    if section.key_store_path:
        path = directory / section.key_store_path
        refuse_readable(path, f"{name}.key-store-path")
        _load(
            f"{name}.key-store-path",
            path,
            "a private key without password, and its certificate chain",
            lambda: context.load_cert_chain(path),
        )
    if section.trust_store_path:
        path = directory / section.trust_store_path
        _load(f"{name}.trust-store-path", path, "certificates", lambda: context.load_verify_locations(path))
    if server and section.wants_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load(name: str, path: Path, what: str, load: Callable[[], None]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        why = (error.reason or str(error)).replace("_", " ").lower()
        raise ConfigurationError(f"{name}: {path} does not hold {what}, as PEM: {why}") from None
    except OSError as error:
        raise ConfigurationError(f"{name}: {path} cannot be read: {error.strerror or error}") from None
