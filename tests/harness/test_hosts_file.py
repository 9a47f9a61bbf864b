"""Names that resolve for one broker alone."""

import pytest

from harness.interface import Address, InfrastructureError, NodePlan
from harness.systems.hosts_file import hosts_file

PEERS = {"a2:61616": Address("127.1.0.2", 61616), "database:5432": Address("127.0.0.9", 5432)}


def node(*announced):
    return NodePlan(name="a1", pair="a", configured="live", ports={"cluster": 61616}, announced=announced)


@pytest.mark.parametrize(("own", "said"), [("127.1.0.1", "127.1.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_each_peer_is_reached_by_its_own_link_and_the_broker_itself_where_it_listens(own, said):
    lines = hosts_file(node("cluster"), {"cluster": Address(own, 61616)}, PEERS).decode().splitlines()
    assert lines == ["127.0.0.1 localhost", f"{said} a1", "127.1.0.2 a2"]


def test_a_peer_that_is_reached_by_another_port_than_it_announces_is_refused():
    moved = {"a2:61616": Address("127.1.0.2", 7000)}
    listen = {"cluster": Address("127.1.0.1", 61616)}
    with pytest.raises(InfrastructureError, match="a1 reaches a2:61616 at 127.1.0.2:7000, another port"):
        hosts_file(node("cluster"), listen, moved)
    assert b"127.1.0.2 a2" in hosts_file(node(), listen, moved)
