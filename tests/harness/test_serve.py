"""``jepsen-run serve`` shows a store to this machine, and nothing else."""

import http.client
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from harness.commands import cli
from harness.report import server


@pytest.fixture
def store(tmp_path):
    run = tmp_path / "store" / "nightly" / "run"
    (run / "logs").mkdir(parents=True)
    (tmp_path / "store" / "index.html").write_text("<p>all runs</p>")
    (run / "report.html").write_text("<p>one run</p>")
    (run / "logs" / "broker.html").write_text("<script>alert(1)</script>")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "store" / "out").symlink_to(tmp_path)
    (tmp_path / "store" / "latest").symlink_to("nightly/run")
    return tmp_path / "store"


@pytest.fixture
def asked(store):
    """Ask a server of the store; returns status, type and body."""
    with server.open_server(store, 0) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()

        def ask(path, method="GET", **headers):
            connection = http.client.HTTPConnection(server.ADDRESS, serving.server_port)
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            body = response.read().decode()
            connection.close()
            return response.status, response.getheader("Content-Type", "").partition(";")[0], body

        yield ask
        serving.shutdown()
        thread.join()


def test_pages_are_served_as_pages_and_everything_else_as_text(asked):
    assert asked("/") == (200, "text/html", "<p>all runs</p>")
    assert asked("/latest/report.html") == (200, "text/html", "<p>one run</p>")
    assert asked("/nightly/run/logs/broker.html")[:2] == (200, "text/plain")
    assert "broker.html" in asked("/nightly/run/logs/")[2]


@pytest.mark.parametrize(
    "path",
    ["/out/secret.txt", "/out/", "/../secret.txt", "/%2e%2e/secret.txt", "/nightly/..%2f..%2f../secret.txt",
     "//etc/passwd", "/%00"],
)  # fmt: skip
def test_nothing_outside_of_the_store_is_served(asked, path):
    status, _, body = asked(path)
    assert status == 404
    assert "secret</" not in body
    assert body != "secret"


def test_it_only_reads(asked, store):
    for method in ("POST", "PUT", "DELETE"):
        assert asked("/index.html", method)[0] == 501
    assert (store / "index.html").read_text() == "<p>all runs</p>"


def test_a_name_of_another_site_gets_nothing(asked):
    assert asked("/", Host="evil.example:80")[0] == 403
    assert asked("/", Host="localhost:80")[0] == 200


def test_a_missing_store_and_a_taken_port_are_one_line(store, capsys):
    assert cli.run(["serve", str(store / "nowhere")]) == 254
    with socket.create_server((server.ADDRESS, 0)) as other:
        port = other.getsockname()[1]
        assert cli.run(["serve", str(store), "--port", str(port)]) == 254
    missing, taken = capsys.readouterr().err.splitlines()
    assert "nowhere is not a directory: give the directory of a store" in missing
    assert f"port {port} of 127.0.0.1 cannot be used (Address already in use)" in taken


def test_an_interrupt_ends_it_with_status_0(store):
    command = [sys.executable, "-m", "harness.commands.start", "serve", str(store), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
        connection = http.client.HTTPConnection(server.ADDRESS, int(address[1]))
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"<p>all runs</p>"
        connection.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "ended\n", "")
