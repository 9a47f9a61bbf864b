"""TLS: what a captured wire shows, who is let in, and what is said where somebody is not."""

import asyncio
import contextlib
import random
import re
import ssl
import subprocess
import tomllib
from pathlib import Path

import pytest
from authority import Authority

from broker import config, tls
from broker.cluster import messages as m
from broker.cluster.link import ClusterLink, LinkError, LinkRefusedError, Terms, connect
from broker.daemon import serve
from broker.seams import real_seams
from broker.storage.memory import MemoryVolume
from broker.tls import Layer, TlsTransport
from environments.link_proxy import reserve_port
from environments.simulation.world import World

BASE = {
    "broker": {"name": "a1"},
    "cluster": {"cluster-password": "p", "connector": "a1:1", "stomp-connector": "a1:2"},
}


def settings(section, **properties):
    given = {f"{section}.{name.replace('_', '-')}": str(value) for name, value in properties.items()}
    return config.validate(config.apply(BASE, {f"{section}.ssl-enabled": True, **given}))


def layer(key_store, trust_store):
    made = settings("cluster", key_store_path=key_store, trust_store_path=trust_store)
    return Layer.of(made.cluster, made, "cluster")


def terms(name, tls):
    return Terms(
        user="cluster-user-name",
        password="secret",
        ttl_s=30.0,
        call_timeout_s=30.0,
        nonce=lambda: random.Random(name).randbytes(32),
        member=lambda: m.Member(f"member-{name}", None, "live", f"{name}:1", f"{name}:2", None, 1, 1, 0),
        tls=tls,
    )


class Listener:
    """An accepting side behind a proxy that hears everything."""

    def __init__(self, tls):
        self.terms = terms("server", tls)
        self.links = asyncio.Queue()
        self.wire = bytearray()

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0)
        self._proxy = await asyncio.start_server(self._overhear, "127.0.0.1", 0)
        self.address = self._proxy.sockets[0].getsockname()
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self._proxy.close()

    def _accept(self):
        link = ClusterLink(self.terms, None, on_open=self._opened)
        tls = self.terms.tls
        return link if tls is None else tls.accepting(link, self.terms.strangers, "cluster")

    def _opened(self, link):
        link.inbox = asyncio.Queue()
        link.on_message = link.inbox.put_nowait
        self.links.put_nowait(link)

    async def _overhear(self, reader, writer):
        there = await asyncio.open_connection(*self._server.sockets[0].getsockname())

        async def copy(source, sink):
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    self.wire += data
                    sink.write(data)
            sink.close()

        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))


SHOWN = (b"member-client", b"member-server", b"orders-queue", b"body of a message")


@pytest.mark.parametrize("encrypted", [True, False], ids=["TLS", "plain"])
def test_a_captured_wire_shows_no_member_queue_user_or_body(encrypted, tmp_path):
    authority = Authority(tmp_path)

    def made(name):
        return layer(authority.store(name), authority.trust) if encrypted else None

    async def scenario():
        async with Listener(made("server")) as listener:
            link = await connect(terms("client", made("client")), listener.address, "cluster")
            other = await listener.links.get()
            assert (link.member.name, other.member.name) == ("member-server", "member-client")
            sizes = [0, 1, 70_000, 3, 2_000_000]
            for number, size in enumerate(sizes):
                link.send(m.JournalEntries(number, b"orders-queue body of a message" + b"x" * size))
            for number, size in enumerate(sizes):
                message = await other.inbox.get()
                assert (message.first, len(message.data)) == (number, size + 30)
            link.close("done")
            assert [shown in listener.wire for shown in SHOWN] == [not encrypted] * len(SHOWN)
            assert b"cluster-user-name" not in listener.wire

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("who", "here", "there"),
    [
        ("foreign", "its certificate is not trusted", "refused our certificate"),
        ("expired", "its certificate is not trusted: certificate has expired", "refused our certificate"),
        ("plain", "it does not speak TLS", "closed"),
    ],
)
def test_who_has_no_good_certificate_is_refused_in_one_line_on_both_sides(who, here, there, tmp_path, caplog):
    authority = Authority(tmp_path)
    foreign = Authority(tmp_path, "foreign")
    stranger = {
        "foreign": lambda: layer(foreign.store("client"), authority.trust),
        "expired": lambda: layer(authority.store("client", days=-1), authority.trust),
        "plain": lambda: None,
    }[who]()

    async def scenario():
        async with Listener(layer(authority.store("server"), authority.trust)) as listener:
            with pytest.raises(LinkError, match=there):
                await connect(terms("client", stranger), listener.address, "cluster")
            assert listener.links.empty()

    asyncio.run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("broker")]
    assert line.startswith("cluster: connection from 127.0.0.1 refused: ")
    assert here in line


def test_a_server_that_our_authority_does_not_know_is_not_talked_to(tmp_path):
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")

    async def scenario():
        async with Listener(layer(foreign.store("server"), authority.trust)) as listener:
            with pytest.raises(LinkRefusedError, match="its certificate is not trusted"):
                await connect(
                    terms("client", layer(authority.store("client"), authority.trust)),
                    listener.address,
                    "cluster",
                )
            assert b"member-client" not in listener.wire

    asyncio.run(scenario())


def test_a_password_is_still_wanted_within(tmp_path):
    authority = Authority(tmp_path)

    async def scenario():
        async with Listener(layer(authority.store("server"), authority.trust)) as listener:
            mine = terms("client", layer(authority.store("client"), authority.trust))
            object.__setattr__(mine, "password", "guess")
            with pytest.raises(LinkRefusedError, match="wrong cluster-user or cluster-password"):
                await connect(mine, listener.address, "cluster")

    asyncio.run(scenario())


def test_a_network_that_knows_no_tls_carries_it_and_one_seed_takes_one_time(tmp_path):
    authority = Authority(tmp_path)
    server, client = (layer(authority.store(name), authority.trust) for name in ("server", "client"))

    def run():
        async def main():
            loop = asyncio.get_running_loop()
            theirs, opened = terms("server", server), []
            await loop.create_server(
                lambda: server.accepting(
                    ClusterLink(theirs, None, on_open=opened.append), theirs.strangers, "cluster"
                ),
                "harness",
                1,
            )
            link = await connect(terms("client", client), ("harness", 1), "cluster")
            assert isinstance(link._transport, TlsTransport)
            await asyncio.sleep(100)
            assert opened[0].is_open
            at = loop.time()
            link.close("done")
            return at, link.confirmed

        return World(7).run(main)

    assert run() == run()


@pytest.mark.parametrize(
    ("section", "properties", "message"),
    [
        ("acceptor", {}, "acceptor.ssl-enabled wants acceptor.key-store-path"),
        (
            "acceptor",
            {"key_store_path": "x", "need_client_auth": True},
            "acceptor.ssl-enabled wants acceptor.trust-store-path",
        ),
        ("cluster", {"key_store_path": "x"}, "cluster.ssl-enabled wants cluster.trust-store-path"),
    ],
)
def test_what_tls_lacks_is_named(section, properties, message):
    given = {f"{section}.{name.replace('_', '-')}": value for name, value in properties.items()}
    with pytest.raises(config.ConfigurationError, match=message):
        config.apply(BASE, {f"{section}.ssl-enabled": True, **given})


def test_a_store_that_is_none_or_that_others_can_read_is_named(tmp_path):
    authority = Authority(tmp_path)
    (tmp_path / "none.pem").touch(mode=0o600)
    for key, trust, message in (
        (tmp_path / "none.pem", authority.trust, "cluster.key-store-path: .* does not hold a private key"),
        (tmp_path / "gone.pem", authority.trust, "cluster.key-store-path: .* cannot be read: No such file"),
        (authority.store("open", mode=0o644), authority.trust, r"others can read .* \(mode 644\): chmod 600"),
        (
            authority.store("good"),
            tmp_path / "none.pem",
            "cluster.trust-store-path: .* does not hold certificates",
        ),
    ):
        with pytest.raises(config.ConfigurationError, match=message):
            layer(key, trust)


# ------------------------------------------------------------------------------------- the acceptor


def client_context(authority, store=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority.trust)
    if store is not None:
        context.load_cert_chain(store)
    return context


@contextlib.asynccontextmanager
async def broker(**acceptor):
    """All of a broker but its process; gives the port of its acceptor."""
    ports = {}
    for name in ("acceptor", "admin"):
        with reserve_port() as reserved:
            ports[name] = {"port": reserved.getsockname()[1]}
    ports["acceptor"] |= {"host": "127.0.0.1", "ssl-enabled": True, **acceptor}
    stopping = asyncio.Event()
    made = config.validate({"broker": {"name": "a1"}, **ports})
    life = asyncio.create_task(serve(made, real_seams(), MemoryVolume(), stopping))
    port = ports["acceptor"]["port"]
    while not life.done():
        with contextlib.suppress(OSError):
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            break
        await asyncio.sleep(0.01)
    yield port
    stopping.set()
    assert await life == 0


async def said(reader):
    """The next frame."""
    return (await reader.readuntil(b"\0")).lstrip(b"\n")


CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"


def test_clients_speak_stomp_over_tls_with_bodies_larger_than_any_buffer(tmp_path):
    authority = Authority(tmp_path)
    body = b"0123456789" * 500_000

    async def scenario():
        async with broker(**{"key-store-path": str(authority.store("broker"))}) as port:
            streams = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_context(authority), limit=1 << 24
            )
            reader, writer = streams
            writer.write(CONNECT)
            assert (await said(reader)).startswith(b"CONNECTED\n")
            writer.write(
                b"SEND\ndestination:/queue/q\nreceipt:1\ncontent-length:%d\n\n%b\0" % (len(body), body)
            )
            assert b"receipt-id:1" in await said(reader)
            writer.write(b"SUBSCRIBE\nid:1\ndestination:/queue/q\n\n\0")
            assert (await said(reader)).endswith(b"\n\n" + body + b"\0")
            assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
            writer.close()

    asyncio.run(scenario())


def test_of_too_many_handshakes_the_oldest_gives_way(tmp_path):
    authority = Authority(tmp_path)

    async def scenario():
        async with broker(**{"key-store-path": str(authority.store("broker"))}) as port:
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(256)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority))
            writer.write(CONNECT)
            assert (await said(reader)).startswith(b"CONNECTED\n")
            async with asyncio.timeout(5):
                assert await idle[0][0].read() == b""
            for _, one in [*idle, (reader, writer)]:
                one.close()

    asyncio.run(scenario())


def test_with_need_client_auth_only_clients_with_a_certificate_come_in(tmp_path, caplog):
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    stores = {"key-store-path": str(authority.store("broker")), "trust-store-path": str(authority.trust)}

    async def connected(port, store):
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_context(authority, store)
            )
            writer.write(CONNECT)
            return (await said(reader)).startswith(b"CONNECTED\n")
        except (OSError, asyncio.IncompleteReadError):
            return False

    async def scenario():
        async with broker(**stores, **{"need-client-auth": True}) as port:
            assert await connected(port, authority.store("client"))
            assert not await connected(port, foreign.store("client"))
            assert not await connected(port, None)

    asyncio.run(scenario())
    said_ = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert [line.rpartition("refused: ")[2][:32] for line in said_ if "ended within" not in line] == [
        "its certificate is not trusted: ",
        "it has no certificate, and one i",
    ]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_1])
def test_tls_1_2_is_the_oldest(version, tmp_path):
    authority = Authority(tmp_path)
    context = client_context(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version

    async def scenario():
        async with broker(**{"key-store-path": str(authority.store("broker"))}) as port:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            except OSError:
                return False
            writer.close()
            return True

    assert asyncio.run(scenario()) is (version == ssl.TLSVersion.TLSv1_2)


def test_the_certificates_that_the_manual_makes_are_taken(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "users-and-rights.md").read_text()
    commands, toml = re.search(
        r"```console\n(openssl req.*?)```\n\n```toml\n(.*?)```", page, re.DOTALL
    ).groups()
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    given = tomllib.loads(toml)
    table = {**BASE, **{name: {**BASE.get(name, {}), **section} for name, section in given.items()}}
    made = config.validate(table, str(tmp_path / "broker.toml"))
    tls.check(made)
    assert Layer.of(made.cluster, made, "cluster") is not None
