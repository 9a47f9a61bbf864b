"""A server that answers as Jolokia does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.interface import Address


class Answers(BaseHTTPRequestHandler):
    """What is said: bytes as they are; a list in order; or by the type of what is asked.

    ``respond`` says it by all that is asked, if there is one.
    """

    protocol_version = "HTTP/1.1"
    said = ()
    asked = ()
    respond = None
    respond_at = None  # the same, by the host that was asked
    votes = threading.Event()  # until it is set, "ReplicaSync" alone is not answered

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.extend(asked)
        if asked[0].get("attribute") == ["ReplicaSync"]:
            self.votes.wait(20)
        body = self.said
        if self.respond_at is not None:
            body = json.dumps(self.respond_at(asked, self.headers["Host"].partition(":")[0])).encode()
        elif self.respond is not None:
            body = json.dumps(self.respond(asked)).encode()
        elif isinstance(self.said, list):
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
def voting():
    """An address, and who answers there."""
    handler = type("Said", (Answers,), {"votes": threading.Event(), "asked": []})
    handler.votes.set()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Address(*server.server_address), handler
        finally:
            handler.votes.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def jolokia(voting):
    """An address, and what is said there from now on."""
    address, handler = voting
    return address, lambda said: setattr(handler, "said", said)
