"""What a Spark cluster whose executors fail is told by.

The pages of its master and worker, as Spark 4.3 serves them.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from py4j.protocol import Py4JError

from checkers import executors, session

WORKER = "worker-20261122190534-127.0.0.1-37229"
APP = "app-20261122190553-0000"
LOG = f"""Setting default log level to "WARN".
19:05:54 INFO StandaloneAppClient$ClientEndpoint: Executor added: {APP}/8 on {WORKER} (127.0.0.1:37229) with 2 core(s)
19:05:55 INFO StandaloneAppClient$ClientEndpoint: Executor updated: {APP}/8 is now RUNNING
19:05:55 INFO StandaloneAppClient$ClientEndpoint: Executor updated: {APP}/8 is now FAILED (Command exited with code 1)
19:05:55 INFO StandaloneAppClient$ClientEndpoint: Executor added: {APP}/9 on {WORKER} (127.0.0.1:37229) with 2 core(s)
19:05:56 INFO StandaloneAppClient$ClientEndpoint: Executor updated: {APP}/9 is now FAILED (Command exited with code 1)
19:05:56 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: Master removed our application: FAILED
19:05:57 ERROR Inbox: Ignoring error
"""  # noqa: E501 - as Spark writes it
OLD_JAVA = (
    "Error: LinkageError occurred while loading main class "
    "org.apache.spark.executor.CoarseGrainedExecutorBackend\n"
    "\tjava.lang.UnsupportedClassVersionError: org/apache/spark/executor/CoarseGrainedExecutorBackend "
    "has been compiled by a more recent version"
)
NO_MEMORY = (
    "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory(0x0, 1048576, 0) failed; error='Not "
    "enough space' (errno=12)\n"
    "#\n# There is insufficient memory for the Java Runtime Environment to continue.\n"
    "# An error report file with more information is saved as:\n# /work/app/0/hs_err_pid1.log\n"
)
NO_WAY_BACK = (
    'Exception in thread "main" java.lang.reflect.UndeclaredThrowableException\n\tat a.b(C.java:1)\n'
    "Caused by: java.io.IOException: Failed to connect to /10.0.0.1:4000\n\tat d.e(F.java:2)\n\t... 11 more\n"
)


@pytest.fixture
def cluster(monkeypatch):
    """Master and worker pages in one server; what the executor wrote is set on it."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/json/":
                here = f"http://127.0.0.1:{self.server.server_port}"
                text = json.dumps(
                    {
                        "workers": [
                            {"id": "another", "webuiaddress": "x"},
                            {"id": WORKER, "webuiaddress": here},
                        ]
                    }
                )
            else:
                assert self.path == f"/log/?appId={APP}&executorId=9&logType=stderr&byteLength=16384"
                text = f"==== Bytes 0-9 of 9 of /work/{APP}/9/stderr ====\n{self.server.said}"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("SPARK_MASTER_WEBUI_PORT", str(server.server_port))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (OLD_JAVA, ("java.lang.UnsupportedClassVersionError: "
                   "org/apache/spark/executor/CoarseGrainedExecutorBackend has been compiled by a more "
                   "recent version")),
        (f"{NO_WAY_BACK}19:05:56 INFO ShutdownHookManager: Shutdown hook called\n",
         "Caused by: java.io.IOException: Failed to connect to /10.0.0.1:4000"),
        (NO_MEMORY, "# There is insufficient memory for the Java Runtime Environment to continue."),
        (NO_WAY_BACK, "Caused by: java.io.IOException: Failed to connect to /10.0.0.1:4000"),
        ("nothing that is known\nas a complaint\n", "as a complaint"),
    ],
)  # fmt: skip
def test_an_executor_is_quoted_with_the_line_that_says_what_was_wrong(cluster, said, told):
    cluster.said = said
    assert executors.last_words("spark://127.0.0.1:7077", LOG) == f"{told} (Command exited with code 1)"


def test_where_no_page_answers_the_driver_says_what_it_heard_and_where_to_look(monkeypatch):
    monkeypatch.setenv("SPARK_MASTER_WEBUI_PORT", "1")
    told = executors.last_words("spark://127.0.0.1:7077", LOG)
    assert told == f"Command exited with code 1; its log is on {WORKER}"
    message = LOG.replace(
        "Command exited with code 1",
        'Error running executor: java.io.IOException: Cannot run program "/no/java" (in directory "/w")',
    )
    assert str(executors.last_words("spark://127.0.0.1:7077", message)).startswith(
        'Error running executor: java.io.IOException: Cannot run program "/no/java" (in directory '
        '"/w"); its log'
    )


def test_executors_that_have_not_ended_say_nothing():
    assert executors.last_words("spark://127.0.0.1:7077", LOG.replace("FAILED", "RUNNING")) is None
    assert executors.ended(LOG) == 2


class Driver:
    """A session, and its gateway, whose executors never come."""

    def __init__(self):
        self.sparkContext = self._jsc = self

    def sc(self):
        return self

    getExecutorMemoryStatus = sc  # noqa: N815 - as Spark calls it

    def size(self):
        return 1

    def log(self):
        return LOG

    def errors(self):
        return ["an error of the driver's"]


@pytest.mark.parametrize(
    ("tries", "patience_s", "told"),
    [
        (2, 60.0, ("they end at once: Caused by: java.io.IOException: Failed to connect to "
                  "/10.0.0.1:4000 (Command exited with code 1)")),
        (3, 0.0, ("within 0 s.*the last one ended: Caused by: java.io.IOException: Failed to connect to "
                 "/10.0.0.1:4000 ")),
    ],
)  # fmt: skip
def test_whoever_waits_for_executors_is_told_what_the_last_one_said(
    cluster, monkeypatch, tries, patience_s, told
):
    cluster.said = NO_WAY_BACK
    monkeypatch.setattr(session, "_TRIES", tries)
    monkeypatch.setattr(session, "_EXECUTORS_S", patience_s)
    driver = Driver()
    with pytest.raises(session.GatewayError, match=told.replace("(", r"\(").replace(")", r"\)")):
        session._wait_for_executors(driver, "spark://127.0.0.1:7077", driver)


def test_a_driver_that_gives_up_says_what_its_executors_said_first(cluster):
    cluster.said = NO_WAY_BACK
    error = Py4JError("as everywhere")
    told = session._words(error, Driver(), "spark://127.0.0.1:7077")
    assert told.startswith("its executors ended: Caused by: java.io.IOException: Failed to connect")
