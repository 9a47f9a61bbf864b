"""A broker for the tests of environments.

Echoes on every port what it gets, and writes it to ``data/<port>``.
"""

import asyncio
import json
import sys
from pathlib import Path


async def main(etc: Path) -> None:
    settings = json.loads((etc / "echo.json").read_text())
    data = Path(settings["data"])

    def serve(port):
        async def echo(reader, writer):
            try:
                while chunk := await reader.read(65536):
                    with (data / port).open("ab") as received:
                        received.write(chunk)
                    writer.write(chunk)
                    await writer.drain()
                writer.close()
            except ConnectionError:
                pass

        return echo

    for port, (host, number) in settings["listen"].items():
        await asyncio.start_server(serve(port), host, number)
    print("listening", settings["name"], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
