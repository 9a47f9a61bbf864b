"""Whole workloads against a real brokerd, killed in the middle.

What was acknowledged is there, nothing is claimed that is not certain.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from stomp_doubles import BOUND_S, make_context, until, well_formed

import workloads.registry
from harness.interface import Address
from harness.systems.own.configuration import LOGIN, PASSCODE
from harness.systems.own.dialect import DIALECT

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


class Brokerd:
    """One real broker process; a restart keeps its data and has a new port."""

    def __init__(self, directory):
        self.config = directory / "broker.toml"
        self.config.write_text(
            '[broker]\nname = "a1"\n[acceptor]\nhost = "127.0.0.1"\nport = 0\nconnection-ttl = 5000\n'
            f'[acceptor.users]\n{LOGIN} = "{PASSCODE}"\n[admin]\nport = 0\n'
        )
        self.address = Address("127.0.0.1", 1)
        self.process = None

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "broker.daemon", "--config", str(self.config)),
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(BOUND_S):
            while b"serving STOMP on" not in (line := await self.process.stderr.readline()):
                assert line, "the broker ended"
        self.address = Address("127.0.0.1", int(line.rsplit(b":", 1)[1]))
        self.reading = asyncio.create_task(self.process.stderr.read())

    async def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        await self.reading


@pytest.mark.parametrize("name", ["groups", "queue"])
def test_what_was_acknowledged_survives_a_kill(tmp_path, name):
    async def run():
        broker = Brokerd(tmp_path)
        await broker.start()
        context = make_context(
            {"a1": broker},
            dialect=DIALECT,
            producers=3,
            consumers=3,
            groups=4,
            rate=500.0,
            operation_timeout_s=30.0,
            recovery_bound_s=BOUND_S,
            quiet_period_s=2.0,
        )
        context.resolve = lambda *_: broker.address
        rows = context.recorder
        workload = workloads.registry.create(name)
        load = asyncio.create_task(workload.run(context))
        try:
            await until(lambda: load.done() or rows.types("send").count("ok") > 300)
            await broker.kill()
            await until(lambda: rows.types("send").count("fail") > 5)
            await broker.start()
            before = rows.types("send").count("ok")
            await until(lambda: rows.types("send").count("ok") > before + 200)
            context.stopping.set()
            await asyncio.wait_for(load, BOUND_S)
            well_formed(rows.rows)
            await asyncio.wait_for(workload.drain(context), 2 * BOUND_S)
        finally:
            context.stopping.set()
            await asyncio.gather(load, return_exceptions=True)
            await broker.kill()
        return rows

    rows = asyncio.run(run())
    well_formed(rows.rows)
    invoked = {row["message"]: row for row in rows.of("send", type="invoke")}
    delivered = defaultdict(list)
    for row in rows.of("deliver"):
        delivered[row["message"]].append(row)
    assert {row["message"] for row in rows.of("send", type="ok")} <= delivered.keys() <= invoked.keys()
    assert not {row["message"] for row in rows.of("send", type="fail")} & delivered.keys()
    for message, arrived in delivered.items():
        # Clients on a busy machine may read what a broker sent before its end after what the next
        # one sent, so the rows of two sessions need not be in the order of the deliveries.
        unflagged = [row for row in arrived if not row["redelivered"]]
        assert len(unflagged) <= 1, arrived
        for first in unflagged:
            session = [row for row in arrived if row["session"] == first["session"]]
            assert session[0] is first, arrived
        assert {row["digest"] for row in arrived} == {invoked[message]["digest"]}
    assert delivered.keys() <= {
        row["message"] for row in rows.of("ack", type="ok") + rows.of("ack", type="info")
    }
    assert rows.of("disconnect")
    begun = [row["session"] for row in rows.of("subscribe", type="ok")]
    ended = [row["session"] for row in rows.of("disconnect") + rows.of("unsubscribe", type="ok")]
    assert sorted(set(begun)) == sorted(begun)
    assert set(begun) <= set(ended)
