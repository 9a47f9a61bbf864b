"""``brokerctl create`` and ``delete`` on a real broker, and what its clients see of them."""

import re

import pytest
from brokers import Raw

from broker import ctl

pytestmark = pytest.mark.cluster


def _ctl(broker, *words):
    return ctl.main(["--config", str(broker.path), *words])


def _with_admin_port(brokerd, **properties):
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    return brokerd(**{"admin.port": port, **properties})


def test_a_queue_is_deleted_with_its_consumers_and_messages_and_stays_so(brokerd, capsys):
    broker = _with_admin_port(brokerd)
    raw = Raw(broker.port)
    raw.publish("m")
    raw.publish("large", "q", **{"content-length": "5"})
    raw.subscribe(**{"prefetch-count": "1"})
    raw.message()
    assert _ctl(broker, "delete", "q") == 1
    assert "remove-consumers" in capsys.readouterr().err
    assert _ctl(broker, "delete", "q", "--remove-consumers", "--remove-messages") == 0
    assert re.search(r"q is deleted, and 2 messages with it", capsys.readouterr().out)
    assert "queue 'q' was deleted" in raw.error()
    broker.kill()
    broker.start()
    assert any("recovered 0 messages in 0 queues" in line for line in broker.lines)


def test_a_queue_that_nobody_made_is_refused_where_clients_make_none(brokerd):
    broker = _with_admin_port(brokerd, **{"address-settings.#.auto-create-queues": False})
    for command, headers in (("SEND", {}), ("SUBSCRIBE", {"id": "1"})):
        raw = Raw(broker.port)
        raw.send(command, {"destination": "q", **headers})
        assert "queue 'q' does not exist and is not created" in raw.error()
    assert _ctl(broker, "create", "q") == 0
    Raw(broker.port).publish("m")
