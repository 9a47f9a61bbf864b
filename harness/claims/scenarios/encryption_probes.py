"""Probes of encrypted links between brokers: row CV10 (SUN, "Secure connections between brokers").

Keys and certificates are made by the command ``openssl``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from harness.claims.scenarios.cluster_probes import await_listed, listed
from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.workbench import Broker, CommandResult, Relay, Workbench, on_bench
from harness.systems.stomp_client import StompClient, send

_MEMBER: Final = "first-broker-of-the-probe"
_OTHER: Final = "second-broker-of-the-probe"
_QUEUE: Final = "orders-of-the-probe"
_BODY: Final = "body-of-the-probe"
_USER: Final = "cluster.user-of-the-probe"
"""Names so long that no random bytes contain them by chance."""
_AUTHORITY: Final = "authority"
_ATTEMPTS: Final = 6


class Certificates:
    """The keys and certificates of a probe: an authority signs those of brokers."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    async def authority(self, name: str = _AUTHORITY) -> str:
        """Make an authority; return the name of the file with its certificate."""
        subject = ("-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE")
        await self._openssl(
            "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "30", *subject,
            "-keyout", self._path(f"{name}.key"), "-out", self._path(f"{name}.pem"),
        )  # fmt: skip
        return f"{name}.pem"

    async def store(self, name: str, *, authority: str = _AUTHORITY, days: int = 30) -> str:
        """Make a key and a certificate for so many days; return the name of the file with both."""
        key, request, signed = (self._path(f"{name}.{kind}") for kind in ("key", "csr", "crt"))
        await self._openssl(
            "req", "-newkey", "ed25519", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request
        )
        signer = ("-CA", self._path(f"{authority}.pem"), "-CAkey", self._path(f"{authority}.key"))
        await self._openssl(
            "x509", "-req", "-in", request, *signer, "-CAcreateserial", "-days", str(days), "-out", signed
        )
        _join(key, signed, store := self._path(f"{name}.pem"))
        return Path(store).name

    async def _openssl(self, *words: str) -> CommandResult:
        result = await self._bench.command("openssl", *words)
        self._bench.require(f"openssl {words[0]} succeeds", 0, result.status)
        return result

    def _path(self, name: str) -> str:
        return str(self._bench.directory / name)


def _join(key: str, certificate: str, store: str) -> None:
    """Write a key and its certificate into one file that only its owner may read."""
    Path(store).touch(mode=0o600)
    Path(store).write_text(Path(key).read_text() + Path(certificate).read_text())


def _broker(bench: Workbench, name: str, /, **cluster: Any) -> Broker:
    cluster = {"retry-interval": 50, "cluster-user": _USER, **cluster}
    table = {"admin": {"secret": bench.secret}, "cluster": cluster}
    return Broker(bench, name, {**table, "cluster": {"message-load-balancing": "ON_DEMAND", **cluster}})


def _encrypted(store: str, trust: str) -> dict[str, Any]:
    return {"ssl-enabled": True, "key-store-path": store, "trust-store-path": trust}


async def _forwarded(bench: Workbench, member: Broker, other: Broker) -> None:
    """Let two brokers meet, and a message go from one to the consumer at the other."""
    for broker in (member, other):
        await broker.start()
        await broker.live()
    await await_listed(bench, member, other)
    async with await StompClient.connect(member.stomp) as consumer:
        await consumer.ask("SUBSCRIBE", id="1", destination=f"/queue/{_QUEUE}", ack="auto")

        async def has_arrived() -> bool:
            await send(other.stomp, f"/queue/{_QUEUE}", _BODY)
            return await consumer.message(0.5) is not None

        await bench.until("a message goes over the link", _BODY, has_arrived)
    for broker in (member, other):
        await broker.kill()


@on_bench
async def _cv10(bench: Workbench) -> None:
    certificates = Certificates(bench)
    trust = await certificates.authority()
    stores = [await certificates.store(name) for name in ("one", "two")]
    secrets = (bench.secret, _USER)
    names = [_MEMBER, _OTHER, _QUEUE, _BODY]
    for words, encryption, expected in (
        ("without TLS", [{}, {}], names),
        ("with cluster.ssl-enabled", [_encrypted(store, trust) for store in stores], []),
    ):
        member = _broker(bench, _MEMBER, **encryption[0])
        async with Relay(member.cluster) as relay:
            other = _broker(bench, _OTHER, **{"static-connectors": [relay.address], **encryption[1]})
            await _forwarded(bench, member, other)
            bench.compare(
                f"{words}: what the bytes on the way tell", expected, relay.readable(*names, *secrets)
            )


@on_bench
async def _cv10_strangers(bench: Workbench) -> None:
    certificates = Certificates(bench)
    trust = await certificates.authority()
    member = _broker(bench, _MEMBER, **_encrypted(await certificates.store("member"), trust))
    await certificates.authority("foreign-authority")
    foreign = await certificates.store("foreign", authority="foreign-authority")
    expired = await certificates.store("expired", days=-1)
    await member.start()
    await member.live()
    strangers: tuple[tuple[str, dict[str, Any], str, str], ...] = (
        ("a plain connection", {}, "it does not speak TLS", ""),
        ("an expired certificate", _encrypted(expired, trust), "has expired", "certificate expired"),
        ("a foreign certificate", _encrypted(foreign, trust), "is not trusted", "unknown ca"),
    )
    for number, (words, encryption, refusal, alert) in enumerate(strangers, 2):
        async with Relay(member.cluster, f"127.0.0.{number}") as relay:
            wrong = {"static-connectors": [relay.address], **encryption}
            stranger = _broker(bench, f"stranger-{number}", **wrong)
            await stranger.start()
            await stranger.live()

            async def has_tried(relay: Relay = relay) -> bool:
                return relay.attempts > _ATTEMPTS or bool(await listed(member))

            await bench.until(f"{words}: the stranger tries again", f"{_ATTEMPTS} attempts", has_tried)
            bench.compare(f"{words}: who is listed", [[], []], [await listed(member), await listed(stranger)])
            refusals = [line for line in member.warnings if f"127.0.0.{number} refused" in line]
            bench.compare(
                f"{words}: the broker logs the reason", [True], sorted({refusal in line for line in refusals})
            )
            if alert:
                reasons = [line.rpartition(": ")[2] for line in stranger.warnings]
                bench.compare(f"{words}: the stranger logs it once, and nothing else", [alert], reasons)
            await stranger.kill()


PROBES: Final = (
    Probe(
        id="CV10",
        claim="with cluster.ssl-enabled the links between brokers are encrypted: the bytes on the way tell "
        "no name, queue, user or body; without it they tell all but the user and the password",
        source="SUN, Secure Connections between Brokers",
        expected="the same message passes both times, and is readable only without TLS",
        take=_cv10,
    ),
    Probe(
        id="CV10-strangers",
        claim="a broker with cluster.ssl-enabled refuses plain links, and expired and foreign certificates",
        source="SUN, Secure Connections between Brokers",
        expected="no stranger is listed; the broker logs the reason, and a stranger that speaks TLS hears it",
        take=_cv10_strangers,
    ),
)
