"""A server of one store's pages for the browsers of this machine: ``jepsen-run serve``.

Why so thin: the pages are static files, and everything that the server shows is one of them. It
reads, never writes, and answers only this machine: reports have logs of brokers, which are nobody
else's business.

What a broker has logged may be a page with a script. So only the pages that this program writes are
served as pages, and all other files as text or as bytes.
"""

from __future__ import annotations

import http.server
import os
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from harness.history import store as stores
from harness.interface import UsageError

ADDRESS: Final = "127.0.0.1"
PAGES: Final = frozenset({stores.OVERVIEW, stores.REPORT, stores.SWEEP_PAGE})
"""The names of the files that are pages of this program."""
_TEXT: Final = frozenset({".json", ".log", ".txt", ".xml", ".md", ".toml", ".html", ".htm", ".svg", ""})
_HOSTS: Final = frozenset({ADDRESS, "localhost"})


class _Handler(http.server.SimpleHTTPRequestHandler):
    """The answers to one browser; GET and HEAD only, everything below the store's directory."""

    server_version = "jepsen-run"
    sys_version = ""

    def send_head(self) -> Any:
        """Answer 404 for what is not below the store, 403 for a page that another site's name asks.

        A link in the store may lead out of it. A name that resolves to this machine would let the
        scripts of another site read the answers.
        """
        host = (self.headers.get("Host") or ADDRESS).rpartition("@")[2].partition(":")[0]
        if host not in _HOSTS:
            self.send_error(HTTPStatus.FORBIDDEN, f"open this page as {ADDRESS}")
            return None
        root = Path(self.directory).resolve()
        try:
            inside = Path(self.translate_path(self.path)).resolve().is_relative_to(root)
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            self.send_error(HTTPStatus.NOT_FOUND, "not in this store")
            return None
        return super().send_head()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """Return the type of a file: a page only if this program wrote it."""
        name = Path(path).name
        if name in PAGES:
            return "text/html; charset=utf-8"
        return "text/plain; charset=utf-8" if Path(name).suffix in _TEXT else "application/octet-stream"

    def end_headers(self) -> None:
        """Forbid that a browser takes text for a page, or keeps a page that a run writes anew."""
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing: the terminal shows the address alone."""


def open_server(store: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Return a server of a store that listens already; 0 is any free port.

    Raises UsageError if there is no such directory, or if the port cannot be used.
    """
    if not store.is_dir():
        raise UsageError(
            f"{store} is not a directory: give the directory of a store, for example {stores.DEFAULT}"
        )
    try:
        return http.server.ThreadingHTTPServer((ADDRESS, port), partial(_Handler, directory=str(store)))
    except OSError as error:
        raise UsageError(
            f"port {port} of {ADDRESS} cannot be used ({error.strerror or error}): give another one with "
            "--port, or 0 for any free one"
        ) from None
