"""A broker of a second system, as a program: queues in memory, one owner for each.

It answers a question at its admin port with one line of JSON, in words of its own.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / "workloads"), str(Path(__file__).parents[2])]

from stomp_doubles import Peer, Server


async def main(etc: Path) -> None:
    settings = json.loads((etc / "second.json").read_text())
    server = Server(settings["name"])

    async def answer(reader, writer):
        question = (await reader.readline()).decode().strip()
        if question == "status":
            said = {"state": "active"}
        elif question == "browse":
            frames = [*server.stored, *(frame for _, frame in server.unacknowledged.values())]
            said = [
                [
                    frame.headers["destination"],
                    frame.headers.get("group"),
                    base64.b64encode(frame.body).decode(),
                ]
                for frame in frames
            ]
        writer.write(json.dumps(said).encode() + b"\n")
        writer.close()

    loop = asyncio.get_running_loop()
    host, port = settings["listen"]["stomp"]
    await loop.create_server(lambda: Peer(server), host, port)
    await asyncio.start_server(answer, *settings["listen"]["admin"])
    print("listening", settings["name"], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
