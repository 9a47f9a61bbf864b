"""``brokerctl display`` where no instance runs, and what cannot be asked of ``brokerctl end``."""

import asyncio
import socket

import pytest

from broker import config, ctl, queue_manager_ctl
from broker.ha_policy import MultiInstanceSection
from broker.policies.multi_instance.places import InstanceLocks, InstanceRecord, write_record
from broker.storage.shared_directory import SharedDirectoryVolume


@pytest.fixture
def nobody():
    """A port of this machine at which nobody answers."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.fixture
def configured(tmp_path, nobody):
    def write(policy=None):
        table = {
            "broker": {"name": "one", "data-directory": "ha"},
            "admin": {"port": nobody},
            "cluster": {"cluster-password": "p", "connector": "one:1", "stomp-connector": "one:2"},
            "ha-policy": policy or {"multi-instance": {"queue-manager": "QM1"}},
        }
        path = tmp_path / "broker.toml"
        path.write_text(config.dumps(table))
        return str(path)

    return write


def display(path, *options):
    return ctl.main(["--config", path, "display", *options])


def test_a_queue_manager_that_ended_is_shown_from_what_it_left(tmp_path, configured, capsys):
    async def left():
        volume = SharedDirectoryVolume(tmp_path / "ha")
        places = InstanceLocks(MultiInstanceSection(queue_manager="QM1"), volume)
        await places.create()
        lock = await places.take("active")
        await write_record(lock, InstanceRecord(instance="two", node_id="n", state="ended-immediately"))
        await lock.release()
        await volume.close()

    asyncio.run(left())
    assert display(configured(), "-x") == 0
    assert capsys.readouterr().out == "QMNAME(QM1) STATUS(Ended immediately)\n"
    assert display(configured(), "-o", "standby") == 0
    assert capsys.readouterr().out == "QMNAME(QM1) STANDBY(Not applicable)\n"


def test_a_queue_manager_that_is_not_there_is_named(configured, capsys):
    assert display(configured()) == 254
    assert "no queue manager 'QM1' has been started here" in capsys.readouterr().err


def test_where_the_file_system_cannot_be_used_the_status_is_not_available(tmp_path, configured, capsys):
    (tmp_path / "ha").write_text("a file where a directory should be")
    assert display(configured()) == 0
    assert capsys.readouterr().out == "QMNAME(QM1) STATUS(Status not available)\n"


def test_brokers_of_other_policies_have_nothing_to_display(configured, capsys):
    path = configured({"shared-store": {"master": {}}})
    assert display(path) == 2
    assert "nobody answers" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["-i", "-s"])
def test_the_standby_instance_alone_is_ended_in_one_way(nobody, capsys, other):
    assert ctl.main(["--admin", str(nobody), "end", "-x", other]) == 254
    assert "-x ends the standby instance alone" in capsys.readouterr().err


def test_the_status_of_an_instance_tells_the_queue_manager_and_the_replay():
    answer = {"queue-manager": "QM1", "status": "Running"}
    assert queue_manager_ctl.rows(answer) == [("queue manager", "QM1: Running")]
    replay = {"records": 5, "messages": 3, "milliseconds": 12}
    assert queue_manager_ctl.rows({**answer, "log-replay": replay})[1] == (
        "log replay",
        "5 records, 3 messages, 12 ms",
    )
    assert queue_manager_ctl.rows({"policy": "shared-store"}) == []
