"""The command line of ``jepsen-run serve``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands import options
from harness.history import judge as judging
from harness.history import store as stores

PORT = 8000


@click.command("serve", context_settings=options.CONTEXT)
@click.argument("store", type=click.Path(path_type=Path), default=stores.DEFAULT)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    metavar="NUMBER",
    help=f"Port of 127.0.0.1; 0 is any free port [{PORT}].",
)
def serve_command(store: Path, port: int) -> int:
    """Show the pages of STORE to a browser on this machine.

    The server answers only on 127.0.0.1, and only reads. The pages need no server: they are files
    in STORE, which a browser can open as well.
    """
    from harness.report import server  # noqa: PLC0415 - errors of usage need none of it

    with server.open_server(store, port) as serving:
        click.echo(f"Serving  {store} at http://{server.ADDRESS}:{serving.server_port}/ (Ctrl-C ends it)")
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            click.echo("ended")
    return judging.VALID
