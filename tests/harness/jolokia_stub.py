"""A server that answers as Jolokia does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.interface import Address


class Answers(BaseHTTPRequestHandler):
    """What is said: bytes as they are; a list in order; or by the type of what is asked."""

    protocol_version = "HTTP/1.1"
    said = ()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = self.said
        if isinstance(self.said, list):
            body = json.dumps(self.said[: len(asked)]).encode()
        elif isinstance(self.said, dict):
            body = json.dumps([self.said[one["type"]] for one in asked]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def jolokia():
    """An address, and what is said there from now on."""
    handler = type("Said", (Answers,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Address(*server.server_address), lambda said: setattr(handler, "said", said)
        finally:
            server.shutdown()
            thread.join()
