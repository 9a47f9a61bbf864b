"""The probes of starting, showing and ending instances: rows MI1, MI4 and MI5.

The document on multi-instance queue managers is shown on real processes. The probes of MI3 and MI6
are in ``file_system_probes``: they are about the file system.
"""

from __future__ import annotations

import signal
from typing import Final

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.workbench import Broker, CommandResult, Workbench, on_bench
from harness.systems.stomp_client import send

_SOURCE: Final = "WMQ"
_MESSAGES: Final = 3


class QueueManagerHost:
    """A host of the document.

    It is a broker that can be started as an instance of QM1, with and without -x.
    """

    def __init__(self, bench: Workbench, name: str) -> None:
        self.bench = bench
        self.name = name
        self._brokers = {
            permitted: self._broker(f"{name}{'-x' if permitted else ''}", permitted)
            for permitted in (False, True)
        }
        self.broker = self._brokers[True]

    def _broker(self, file: str, permitted: bool) -> Broker:
        """Return a broker with a long lock expiration.

        No host is taken over because this machine is slow.
        """
        return Broker(
            self.bench,
            file,
            {
                "broker": {"name": self.name, "data-directory": "ha"},
                "ha-policy": {
                    "multi-instance": {
                        "queue-manager": "QM1",
                        "permit-standby": permitted,
                        "lock-poll-period": 50,
                        "lock-expiration": 60_000,
                    }
                },
            },
        )

    async def strmqm(self, becomes: str = "", *, permitted: bool = True) -> None:
        """Run ``strmqm [-x] QM1``; return when ``dspmq`` here shows the status ``becomes``."""
        self.broker = self._brokers[permitted]
        await self.broker.start()
        if becomes:
            await self.becomes(becomes)

    async def becomes(self, status: str) -> None:
        """Return when ``dspmq`` here shows a status.

        Raises StepMissedError, at once if the instance ends instead.
        """

        async def reached() -> str:
            if not self.broker.process.running:
                return f"ended with {await self.ended()}"
            return status if await self.broker.shows("status", status) else ""

        step = f"{self.name} becomes {status!r}"
        reached_status = await self.bench.until(step, status, reached)
        if reached_status != status:
            self.bench.require(step, status, reached_status)

    async def place(self) -> int | str:
        """Return what became of the instance that was started last.

        That is its exit status, or the status that ``dspmq`` shows of an instance that found a
        place.
        """

        async def found_place() -> list[int | str]:
            if not self.broker.process.running:
                return [await self.ended()]
            places = ("Running", "Running as standby")
            return [place for place in places if await self.broker.shows("status", place)]

        return (await self.bench.until(f"{self.name} finds its place", "a place or none", found_place))[0]

    async def dspmq(self, *options: str) -> list[str]:
        """Run ``dspmq`` on this host, whether an instance runs here or not."""
        result = await self.bench.command("brokerctl", "--config", str(self.broker.path), "display", *options)
        return [line.strip() for line in result.lines]

    async def endmqm(self, option: str = "") -> CommandResult:
        """Run ``endmqm [-x|-is] QM1``."""
        return await self.broker.ctl("end", *([option] if option else []))

    async def refusal(self, **arguments: bool) -> str:
        """Return why the instance refuses to end in this way; "" if it does not refuse."""
        try:
            await self.broker.ask("end", **arguments)
        except OSError as error:
            return str(error)
        return ""

    async def ended(self) -> int:
        """Return the exit status of the instance that was started last."""
        return await self.broker.process.wait()


@on_bench
async def _mi1(bench: Workbench) -> None:
    host_one, host_two = QueueManagerHost(bench, "one"), QueueManagerHost(bench, "two")
    await host_one.strmqm("Running")
    await host_two.strmqm("Running as standby")
    await send(host_one.broker.stomp, "/queue/orders", *(f"message {number}" for number in range(_MESSAGES)))
    await host_one.broker.kill()
    await host_two.becomes("Running")
    log_lines = [line for line in host_two.broker.process.output.splitlines() if "log re" in line]
    bench.compare("the log of the new active instance reports the replay", 2, len(log_lines))
    status = await host_two.broker.status()
    replay = status.get("log-replay", {}) if status is not None else {}
    bench.compare("the status gives the number of replayed messages", _MESSAGES, replay.get("messages"))
    bench.compare(
        "the status gives the duration of the replay", True, isinstance(replay.get("milliseconds"), int)
    )
    browsed = (await host_two.broker.ask("browse", queue="orders"))["messages"]
    bench.compare("the messages are there", _MESSAGES, len(browsed))


@on_bench
async def _mi4(bench: Workbench) -> None:
    host_one, host_two, host_three = (QueueManagerHost(bench, name) for name in ("one", "two", "three"))
    await host_one.strmqm("Running", permitted=False)
    bench.compare(
        "strmqm alone: no standby is permitted",
        ["QMNAME(QM1) STANDBY(Not permitted)", "INSTANCE(one) MODE(Active)"],
        await host_one.dspmq("-x", "-o", "standby"),
    )
    await host_two.strmqm()
    bench.require("a second instance is then refused", 43, await host_two.place())
    bench.compare(
        "the error of the second instance gives the reason",
        [
            (
                "queue manager 'QM1' already has an active instance, one, which does not permit standby "
                "instances"
            )
        ],
        host_two.broker.errors,
    )
    await host_one.broker.kill(signal.SIGTERM)
    bench.compare(
        "an ended instance runs nowhere",
        ["QMNAME(QM1) STATUS(Ended immediately)"],
        await host_two.dspmq("-x"),
    )
    await host_one.strmqm("Running")
    await host_two.strmqm(permitted=False)
    bench.require("a second instance without -x is refused, too", 31, await host_two.place())
    await host_two.strmqm("Running as standby")
    expected = ["QMNAME(QM1) STANDBY(Permitted)", "INSTANCE(one) MODE(Active)", "INSTANCE(two) MODE(Standby)"]
    for host in (host_one, host_two):
        bench.compare(
            f"with -x it stands by, seen from {host.name}", expected, await host.dspmq("-x", "-o", "standby")
        )
    await host_three.strmqm()
    bench.require("a third instance is refused", 47, await host_three.place())
    bench.compare(
        "the error of the third instance names the standby instance",
        ["queue manager 'QM1' already has the maximum number of standby instances, which is 1: two"],
        host_three.broker.errors,
    )
    bench.compare(
        "the third host shows that the queue manager runs elsewhere",
        ["QMNAME(QM1) STATUS(Running elsewhere)"],
        await host_three.dspmq(),
    )
    for host in (host_two, host_one):
        await host.broker.kill()
    bench.compare(
        "the third host shows that both instances were killed",
        ["QMNAME(QM1) STATUS(Ended unexpectedly)"],
        await host_three.dspmq(),
    )


@on_bench
async def _mi5(bench: Workbench) -> None:
    host_one, host_two = QueueManagerHost(bench, "one"), QueueManagerHost(bench, "two")
    await host_one.strmqm("Running")
    result = await host_one.endmqm("-is")
    bench.compare(
        "endmqm -is without a standby instance is refused",
        (1, True),
        (result.status, "cannot switch over" in result.output),
    )
    await host_two.strmqm("Running as standby")
    bench.compare(
        "endmqm -i on the standby instance is refused",
        "active instance of queue manager 'QM1' not ended: this instance is the standby one;"
        " end the active one where it runs, or this one alone with -x",
        await host_two.refusal(immediate=True),
    )
    bench.compare(
        "endmqm -x on the active instance is refused",
        "standby instance of queue manager 'QM1' not ended: this instance is the active one",
        await host_one.refusal(**{"standby-only": True}),
    )
    result = await host_one.endmqm("-is")
    bench.compare(
        "endmqm -is",
        ["queue manager 'QM1' ending, permitting switchover to a standby instance"],
        result.lines,
    )
    bench.compare("the active instance ends", 0, await host_one.ended())
    await host_two.becomes("Running")
    bench.compare(
        "the queue manager runs elsewhere", ["QMNAME(QM1) STATUS(Running elsewhere)"], await host_one.dspmq()
    )
    await host_one.strmqm("Running as standby")
    await host_one.endmqm("-x")
    bench.compare("endmqm -x on the standby instance ends it", 0, await host_one.ended())
    bench.compare("the active instance goes on", ["QMNAME(QM1) STATUS(Running)"], await host_two.dspmq())
    await host_one.strmqm("Running as standby")
    await host_two.endmqm()
    bench.compare("endmqm ends both", [0, 0], [await host_one.ended(), await host_two.ended()])
    bench.compare(
        "they end normally, since no client was connected",
        ["QMNAME(QM1) STATUS(Ended normally)"],
        await host_one.dspmq(),
    )


PROBES: Final = (
    Probe(
        id="MI1-replay",
        claim="the instance that takes over reports the replay of the logs",
        source=_SOURCE,
        expected="log and status of the instance give the number of messages and the duration of the replay",
        take=_mi1,
    ),
    Probe(
        id="MI4",
        claim="a standby instance must be permitted (strmqm -x); dspmq shows active, standby and elsewhere",
        source=_SOURCE,
        expected="each start order ends as documented, and all hosts show the same instances",
        take=_mi4,
    ),
    Probe(
        id="MI5-end",
        claim="endmqm ends both instances, -x ends only the standby instance, -is switches over",
        source=_SOURCE,
        expected="each command works, and is refused if it makes no sense",
        take=_mi5,
    ),
)
