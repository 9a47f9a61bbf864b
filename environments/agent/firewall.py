"""The faults of links between two machines: packet filter rules and queueing disciplines.

Why inside the container and not on the bridge: the rules end with the container's network, so that
nothing of them can be left on the host, and the host's own firewall stays untouched. Rules are
always made anew from all faults in force and loaded as one transaction. So overlapping faults heal
one by one, and no moment shows half of them.

A directed link is broken at the *input* of its target, by the source's address. The gateway's
address, which the harness comes from, is never named.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from environments.part import Part, PartFault

TABLE: Final = "inet jepsen_run"
SLOW_TARGETS_MAX: Final = 15
"""The number of others to which one node can slow its links.

The ``prio`` discipline has 16 bands, and one of them is for all targets that are not slowed.
"""

_TOOL_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SlowTarget:
    """An address *to* which packets are delayed.

    The delay is ``delay_ms`` to ``delay_ms`` + ``jitter_ms``, and the rate at most ``rate_bytes_s``
    (None: unlimited).
    """

    target: str
    delay_ms: float
    jitter_ms: float = 0.0
    rate_bytes_s: float | None = None


@dataclass(frozen=True, slots=True)
class LossySource:
    """An address *from* which datagrams are lost, each with the probability ``chance``."""

    source: str
    chance: float


def ruleset(hit: Mapping[str, Iterable[Any]]) -> str:
    """Return the ``nft`` script for faults: primitive -> the addresses that packets come from.

    cut
        every packet of the source is dropped, of whatever protocol: what a partition does.
    reset
        TCP segments of the source are answered with RST, the rest is dropped: nobody can connect,
        and connections end when their source next says something (`Firewall.apply` ends the silent
        ones).
    stall
        segments that carry data (and datagrams) are dropped, bare handshakes and acknowledgements
        pass: the peer seems to be there and never says anything. Written as "PSH set, or longer
        than any bare segment", because a packet filter does not see a payload's length.
    datagram-loss
        some datagrams of each LossySource are dropped.
    """
    lines = [f"table {TABLE} {{}}", f"delete table {TABLE}"]
    rules = [f"ip saddr {source} counter drop" for source in hit.get("cut", ())]
    for source in hit.get("reset", ()):
        rules.append(f"ip saddr {source} meta l4proto tcp counter reject with tcp reset")
        rules.append(f"ip saddr {source} counter drop")
    for source in hit.get("stall", ()):
        rules.append(f"ip saddr {source} tcp flags & psh == psh counter drop")
        # 20 bytes of IP header and at most 60 of TCP header carry no payload beyond 80.
        rules.append(f"ip saddr {source} meta l4proto tcp ip length > 80 counter drop")
        rules.append(f"ip saddr {source} meta l4proto udp counter drop")
    for lossy in hit.get("datagram-loss", ()):
        thousandths = max(1, round(lossy.chance * 1000))
        condition = f"numgen random mod 1000 < {thousandths} " if thousandths < 1000 else ""
        rules.append(f"ip saddr {lossy.source} meta l4proto udp {condition}counter drop")
    if rules:
        lines += [
            f"table {TABLE} {{",
            "  chain input {",
            "    type filter hook input priority -10; policy accept;",
        ]
        lines += [f"    {rule}" for rule in rules]
        lines += ["  }", "}"]
    return "\n".join(lines) + "\n"


def disciplines(slowed: Iterable[SlowTarget], device: str) -> list[list[str]]:
    """Return the ``tc`` commands that slow exactly these links; [] where nothing is slow.

    The commands expect a device without a discipline.

    Delays of several faults on one link add up, the lowest rate limits. Raises ValueError for more
    targets than there are bands.
    """
    slow: dict[str, SlowTarget] = {}
    for one in slowed:
        before = slow.get(one.target, SlowTarget(one.target, 0.0))
        rates = [rate for rate in (before.rate_bytes_s, one.rate_bytes_s) if rate is not None]
        slow[one.target] = SlowTarget(
            one.target,
            before.delay_ms + one.delay_ms,
            before.jitter_ms + one.jitter_ms,
            min(rates, default=None),
        )
    if not slow:
        return []
    if len(slow) > SLOW_TARGETS_MAX:
        raise ValueError(f"one node can slow its links to {SLOW_TARGETS_MAX} others, not {len(slow)}")
    bands = len(slow) + 1
    commands = [f"qdisc add dev {device} root handle 1: prio bands {bands} priomap {'0 ' * 16}"]
    for band, one in enumerate(slow.values(), 2):
        # The delay is drawn evenly from delay .. delay + jitter, as the other environments do;
        # netem spreads both ways of its middle.
        spread = f"{one.jitter_ms / 2:.3f}ms" if one.jitter_ms else ""
        rate = "" if one.rate_bytes_s is None else f"rate {max(1, round(one.rate_bytes_s * 8))}bit"
        netem = f"netem delay {one.delay_ms + one.jitter_ms / 2:.3f}ms {spread} {rate} limit 100000"
        match = f"u32 match ip dst {one.target}/32 flowid 1:{band}"
        commands += [
            f"qdisc add dev {device} parent 1:{band} handle {band}0: {netem}",
            f"filter add dev {device} parent 1: protocol ip prio 1 {match}",
        ]
    return [command.split() for command in commands]


class Firewall(Part):
    """The rules of this network namespace.

    "cut", "reset" and "stall" ask for the addresses whose packets are hit here; "slow" asks for a
    SlowTarget for each address, and "datagram-loss" for a LossySource.
    """

    primitives = ("cut", "reset", "stall", "datagram-loss", "slow")

    def __init__(self, device: str) -> None:
        self.device = device
        self._rules = ruleset({})
        self._disciplines: list[list[str]] = []
        self._reset: set[str] = set()

    def wanted(self, asked: PartFault) -> Any:
        """Return what the harness sent for a fault. Raises TypeError for anything else."""
        kinds: dict[str, Callable[..., Any]] = {"slow": SlowTarget, "datagram-loss": LossySource}
        kind = kinds.get(asked.primitive)
        return tuple(asked.wanted if kind is None else (kind(**one) for one in asked.wanted))

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Put exactly these faults in force.

        Raises OSError with the tool's own words if the kernel refuses, ValueError for too many slow
        links.
        """
        del changed
        hit: dict[str, dict[Any, None]] = {name: {} for name in self.primitives}
        for fault in in_force:
            hit[fault.primitive].update(dict.fromkeys(fault.wanted))
        rules = ruleset(hit)
        if rules != self._rules:
            self._rules = ""  # unknown, until the tool has ended well
            _tool(["nft", "-f", "-"], rules)
            self._rules = rules
        reset = set(hit["reset"])
        for source in sorted(reset - self._reset):
            # The rule ends a connection when its source sends. This also ends silent connections,
            # where the kernel can (CONFIG_INET_DIAG_DESTROY).
            with contextlib.suppress(OSError):
                _tool(["ss", "--kill", "--tcp", "dst", source])
        self._reset = reset
        slowed = (one for fault in in_force if fault.primitive == "slow" for one in fault.wanted)
        wanted = disciplines(slowed, self.device)
        if wanted != self._disciplines:
            if self._disciplines:
                _tool(["tc", "qdisc", "del", "dev", self.device, "root"])
                self._disciplines = []
            for command in wanted:
                _tool(["tc", *command])
                self._disciplines = wanted  # even if the next one fails, they must be deleted next time


def missing() -> dict[str, str]:
    """Return what this kernel cannot do, by primitive: the reason, or "" if it can.

    It is tried out in this namespace, on the loopback device.
    """
    answers = {"cut": "", "datagram-loss": "", "slow": ""}
    probe = {"cut": ["192.0.2.1"], "reset": ["192.0.2.2"], "stall": ["192.0.2.3"]}
    try:
        _tool(["nft", "-f", "-"], ruleset(probe))
        _tool(["nft", "-f", "-"], ruleset({}))
    except OSError as error:
        answers["cut"] = f"no packet filter rules in containers: {error}"
    try:
        _tool(["nft", "-f", "-"], ruleset({"datagram-loss": [LossySource("192.0.2.1", 0.5)]}))
        _tool(["nft", "-f", "-"], ruleset({}))
    except OSError as error:
        answers["datagram-loss"] = f"no rules with random numbers in containers: {error}"
    try:
        _tool(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    except OSError as error:
        unknown = "qdisc kind is unknown" in str(error) or "No such file or directory" in str(error)
        answers["slow"] = "no sch_netem in this kernel" if unknown else f"tc netem failed: {error}"
    else:
        _tool(["tc", "qdisc", "del", "dev", "lo", "root"])
        answers["slow"] = _disciplines_missing()
    return answers


def _disciplines_missing() -> str:
    try:
        for command in disciplines([SlowTarget("192.0.2.1", 1.0)], "lo"):
            _tool(["tc", *command])
    except OSError as error:
        return f"no sch_prio or cls_u32 in this kernel: {error}"
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], capture_output=True, check=False)
    return ""


def _tool(command: list[str], text: str | None = None) -> None:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=_TOOL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{command[0]} did not end within {_TOOL_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).split())
        raise OSError(f"{' '.join(command[:6])}: {words or f'exit status {done.returncode}'}")
