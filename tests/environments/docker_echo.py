"""The smallest system that can be tested.

Answers each line with what it was told and by whom, and keeps a file of them.
"""

import asyncio
import json

from harness.interface import NodePlan, Status

BOUND_S = 90.0
"""For whatever takes milliseconds on an idle machine."""

PROGRAM = """
import asyncio, json, os, subprocess, sys
from pathlib import Path

config = json.loads(Path(sys.argv[1], "echo.json").read_text())
data = Path(sys.argv[2], "lines")

async def serve(reader, writer):
    while line := await reader.readline():
        words = line.split()
        if words[0] == b"shout":
            print("x" * int(words[1]), flush=True)
        if words[0] == b"exit":
            sys.exit(int(words[1]))
        if words[0] == b"dial":
            host, port = config["hosts"][words[1].decode()]
            try:
                async with asyncio.timeout(float(words[2])):
                    far, away = await asyncio.open_connection(host, port)
                    away.write(b"keep hello\\n")
                    answer = (await far.readline()).decode().strip() or "closed"
            except OSError as error:
                answer = type(error).__name__
            writer.write(answer.encode() + b"\\n")
            continue
        if words[0] == b"hold":
            host, port = config["hosts"][words[1].decode()]
            far, away = await asyncio.open_connection(host, port)
            away.write(b"role\\n")
            writer.write(b"holds " + await far.readline())
            try:
                async with asyncio.timeout(float(words[2])):
                    answer = (await far.readline()).decode() or "closed"
            except OSError as error:
                answer = type(error).__name__
            writer.write(answer.encode() + b"\\n")
            continue
        if words[0] == b"orphan":
            subprocess.run(["sh", "-c", "sleep 0.1 &"])
        if words[0] in (b"keep", b"sync"):
            with data.open("ab") as file:
                file.write(words[1] + b"\\n")
                file.flush()
                if words[0] == b"sync":
                    os.fsync(file.fileno())
        kept = data.read_text().split() if data.exists() else []
        writer.write(f"{config['name']}: {','.join(kept)}\\n".encode())

async def main():
    for host, port in config["listen"].values():
        await asyncio.start_server(serve, host, port)
    print("echo", config["name"], "ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class EchoSystem:
    """A `System` whose broker is one file: no broker of ours is needed to test an environment."""

    name = "echo"
    dialect = None
    policies = {"none": "every node for itself"}

    def plan(self, spec, names=("a1", "a2")):
        ports = {"stomp": 61613, "cluster": 61616, "admin": 8161}
        return tuple(NodePlan(name=name, pair=name[0], configured="master", ports=ports) for name in names)

    def files(self, spec, node, nodes, layout, listen, hosts):
        config = {
            "name": node.name,
            "listen": {port: (address.host, address.port) for port, address in listen.items()},
            "hosts": {name: (address.host, address.port) for name, address in hosts.items()},
        }
        return {"echo.json": json.dumps(config).encode(), "program/echo.py": PROGRAM.encode()}

    def command(self, layout):
        return ["python", f"{layout.etc}/program/echo.py", layout.etc, layout.data]

    async def status(self, admin):
        await say(admin, "role")
        return Status(name="echo", node_id=None, role="live", epoch=0)

    async def browse(self, admin):
        return []

    async def stop(self, admin, *, failover=None):
        _, writer = await asyncio.open_connection(admin.host, admin.port)
        writer.write(b"exit 0\n")


async def say(address, line, timeout_s=BOUND_S):
    """One line to a node, one line back; ConnectionError when it hangs up instead."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(line.encode() + b"\n")
            answer = await reader.readline()
        finally:
            writer.close()
    if not answer:
        raise ConnectionResetError("hung up")
    return answer.decode().strip()


async def until(question, wanted, bound_s=BOUND_S):
    """Wait until an async question has the wanted answer; fails with the last answer."""
    answer = None
    try:
        async with asyncio.timeout(bound_s):
            while (answer := await question()) != wanted:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"still {answer!r}, not {wanted!r}, after {bound_s} s") from None
