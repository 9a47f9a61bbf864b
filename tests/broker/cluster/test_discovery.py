"""Discovery: brokers that know no address hear each other broadcast (AMQ 17.2.2)."""

import asyncio
import json
import logging
import random
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from members import until

from broker import config
from broker.cluster.broadcast import BROADCAST_MAX, Broadcast, decode
from broker.cluster.discovery import ENTRIES_MAX, Discovery
from broker.cluster.membership import Membership
from broker.cluster.views import views
from broker.seams import Seams
from broker.storage.memory import MemoryVolume
from broker.storage.memory_faults import DiskFault
from broker.storage.shared_directory import SharedDirectoryVolume
from environments.simulation import LinkCondition, World
from environments.simulation.datagram import open_multicast
from harness.interface import Link

GROUP = ("231.7.7.7", 9876)
PERIOD_S = 2.0
TIMEOUT_S = 10.0


def table(name, **cluster):
    group = {"name": "lan", "group-address": GROUP[0], "group-port": GROUP[1]}
    return {
        "broker": {"name": name},
        "cluster": {
            "cluster-password": "TOPSECRET",
            "connector": f"{name}:61616",
            "stomp-connector": f"{name}:61613",
            "connection-ttl": 5000,
            "retry-interval": 100,
            "discovery-group-ref": "lan",
            **{key.replace("_", "-"): value for key, value in cluster.items()},
        },
        "broadcast-groups": [group],
        "discovery-groups": [group],
    }


class Cluster:
    """Memberships of a world, one on each node."""

    def __init__(self, world):
        self.world = world
        self.members = {}
        self.processes = {}
        self.stopping = {}
        self.directories = {}
        self.starts = 0

    def start(self, *names, role="live", node_id=None, open_=open_multicast, **changes):
        for name in names:
            self.starts += 1
            settings = config.validate(table(name) | changes)
            seams = Seams(
                random.Random(name),
                lambda start=self.starts: 1000.0 + start,
                open_multicast=open_,
                open_directory=lambda path: self.directories.setdefault(path, MemoryVolume()),
            )
            main = partial(self._live, name, settings, seams, role, node_id or f"node-{name}")
            self.processes[name] = self.world.spawn(name, main)

    async def _live(self, name, settings, seams, role, node_id):
        member = self.members[name] = Membership(settings, settings.cluster, seams)
        self.stopping[name] = asyncio.Event()
        await member.start()
        member.announce(role=role, node_id=node_id)
        await self.stopping[name].wait()
        await member.stop()

    def condition(self, **condition):
        """Put the links between all nodes into a condition."""
        for source in self.members:
            for target in self.members:
                if source != target:
                    self.world.network.apply(Link(source, target), LinkCondition(**condition))

    def linked(self, name):
        return {member.name for member, _ in self.members[name].neighbours.linked()}

    def heard(self, name):
        return set(self.members[name].discovery.node_ids)

    def dialled(self, name):
        return set(self.members[name].neighbours._peers)


def in_world(scenario, caplog=None):
    world = World(1)

    async def main():
        cluster = Cluster(world)
        return await scenario(cluster)

    if caplog is not None:
        caplog.set_level(logging.INFO)
    return world.run(main)


def test_brokers_that_know_no_address_become_a_cluster():
    async def scenario(cluster):
        cluster.start("a1", "b1", "c1")
        await asyncio.sleep(2 * PERIOD_S)
        return {name: cluster.linked(name) for name in cluster.members}

    assert in_world(scenario) == {"a1": {"b1", "c1"}, "b1": {"a1", "c1"}, "c1": {"a1", "b1"}}


def test_what_a_broker_hears_is_a_view_of_its_own():
    async def scenario(cluster):
        cluster.start("a1", "b1")
        cluster.start(
            "c1", **{"discovery-groups": []}, cluster=table("c1", discovery_group_ref="")["cluster"]
        )
        await asyncio.sleep(2 * PERIOD_S)
        return [views(cluster.members[name], None).get("discovery") for name in ("a1", "b1", "c1")]

    assert in_world(scenario) == [
        {"b1:61616": "node-b1", "c1:61616": "node-c1"},
        {"a1:61616": "node-a1", "c1:61616": "node-c1"},
        None,
    ]


def test_a_broker_does_not_take_itself_for_another_one():
    async def scenario(cluster):
        cluster.start("a1")
        await asyncio.sleep(2 * PERIOD_S)
        return cluster.heard("a1"), cluster.dialled("a1")

    assert in_world(scenario) == (set(), set())


def test_only_a_live_broadcasts_and_a_backup_hears_its_live():
    async def scenario(cluster):
        cluster.start("a1", node_id="N")
        cluster.start("a2", node_id="N", role="backup")
        cluster.start("b1")
        await asyncio.sleep(2 * PERIOD_S)
        return cluster.heard("b1"), cluster.heard("a2"), cluster.linked("b1")

    assert in_world(scenario) == ({"a1:61616"}, {"a1:61616", "b1:61616"}, {"a1", "a2"})


def test_an_entry_that_is_not_heard_for_a_refresh_timeout_is_gone_until_it_is_heard_and_its_link_stays(
    caplog,
):
    async def scenario(cluster):
        cluster.start("a1", "b1")
        await asyncio.sleep(2 * PERIOD_S)
        links = [*cluster.members["a1"].neighbours.links]
        cluster.condition(loss=1.0)
        await asyncio.sleep(TIMEOUT_S - PERIOD_S - 0.1)
        steady = cluster.heard("a1")
        await asyncio.sleep(PERIOD_S + 0.2)
        removed = cluster.heard("a1")
        await asyncio.sleep(30)
        cluster.condition()
        await asyncio.sleep(PERIOD_S)
        assert links == [*cluster.members["a1"].neighbours.links]
        assert all(link.is_open for link in links)
        return steady, removed, cluster.heard("a1")

    assert in_world(scenario, caplog) == ({"b1:61616"}, set(), {"b1:61616"})
    told = [record.getMessage() for record in caplog.records if "b1:61616" in record.getMessage()]
    assert told == [
        "discovery: b1:61616 is heard, with node ID node-b1",
        "discovery: b1:61616 has not been heard for 10 s: its entry is removed",
        "discovery: b1:61616 is heard again, with node ID node-b1",
    ]


def test_the_age_of_an_entry_is_measured_by_the_clock_of_who_hears_it():
    async def scenario(cluster):
        cluster.start("a1", "b1")
        await asyncio.sleep(2 * PERIOD_S)
        cluster.world.clock("a1").rate = 20.0
        await asyncio.sleep(PERIOD_S - 0.1)
        return cluster.heard("a1"), cluster.heard("b1")

    assert in_world(scenario) == (set(), {"a1:61616"})


def test_a_broker_that_is_gone_is_dialled_until_its_entry_is_removed():
    async def scenario(cluster):
        cluster.start("a1", "b1")
        await asyncio.sleep(2 * PERIOD_S)
        cluster.processes["b1"].kill()
        await asyncio.sleep(TIMEOUT_S - PERIOD_S - 0.1)
        early = cluster.dialled("a1")
        await asyncio.sleep(PERIOD_S + 1)
        late = cluster.dialled("a1")
        cluster.start("b1")
        await asyncio.sleep(2 * PERIOD_S)
        return early, late, cluster.linked("a1")

    assert in_world(scenario) == ({"b1:61616"}, set(), {"b1"})


def test_a_broker_whose_entry_was_removed_is_not_dialled_once_its_links_are_closed():
    async def scenario(cluster):
        cluster.start("a1", "b1")
        await asyncio.sleep(2 * PERIOD_S)
        cluster.condition(loss=1.0)
        await asyncio.sleep(2 * TIMEOUT_S)
        linked = cluster.linked("a1"), cluster.dialled("a1")
        cluster.processes["b1"].kill()
        await asyncio.sleep(1)
        return *linked, cluster.dialled("a1")

    assert in_world(scenario) == ({"b1"}, {"b1:61616"}, set())


def test_a_broker_whose_entry_was_removed_is_dialled_while_it_has_a_link_to_us():
    async def scenario(cluster):
        cluster.start("a1", "b1")
        await asyncio.sleep(2 * PERIOD_S)
        cluster.condition(loss=1.0)
        await asyncio.sleep(2 * TIMEOUT_S)
        link = cluster.members["a1"].neighbours.link_to("b1")
        link.abort("broken")
        await asyncio.sleep(1)
        return link.is_open, cluster.linked("a1"), cluster.heard("a1")

    assert in_world(scenario) == (False, {"b1"}, set())


def test_all_lives_are_known_only_after_a_refresh_timeout():
    async def scenario(cluster):
        cluster.start("a1")
        await asyncio.sleep(TIMEOUT_S / 2)
        settled = asyncio.Event()

        async def wait():
            await cluster.members["a1"].settled()
            settled.set()

        cluster.world.process("a1").loop.create_task(wait())
        await asyncio.sleep(TIMEOUT_S / 2 - 0.1)
        early = settled.is_set()
        await asyncio.sleep(0.2)
        return early, settled.is_set()

    assert in_world(scenario) == (False, True)


def test_a_broker_that_starts_again_before_its_entry_is_removed_is_dialled_at_once():
    async def scenario(cluster):
        cluster.start("a1", "b1")
        await asyncio.sleep(1.5 * PERIOD_S)  # no broadcast is under way
        cluster.stopping["b1"].set()
        await cluster.processes["b1"].exited
        await asyncio.sleep(0.01)
        gone = cluster.dialled("a1")
        cluster.start("b1")
        await asyncio.sleep(0.1)
        return gone, cluster.linked("a1")

    assert in_world(scenario) == (set(), {"b1"})


def test_a_cluster_whose_links_and_datagrams_were_cut_for_long_forms_again():
    async def scenario(cluster):
        cluster.start("a1", "b1")
        await asyncio.sleep(2 * PERIOD_S)
        cluster.condition(cut=True)
        await asyncio.sleep(3 * TIMEOUT_S)
        apart = cluster.linked("a1"), cluster.dialled("a1")
        cluster.condition()
        await asyncio.sleep(2 * PERIOD_S)
        return *apart, cluster.linked("a1"), cluster.linked("b1")

    assert in_world(scenario) == (set(), set(), {"b1"}, {"a1"})


def test_a_socket_that_fails_is_told_of_once_and_opened_again(caplog):
    fails = [True]

    async def open_(protocol, group, bind, *, listens):
        if fails[0]:
            raise OSError(19, "No such device")
        return await open_multicast(protocol, group, bind, listens=listens)

    async def scenario(cluster):
        cluster.start("a1", open_=open_)
        cluster.start("b1")
        await asyncio.sleep(30)
        apart = cluster.linked("a1")
        fails[0] = False
        await asyncio.sleep(2 * PERIOD_S)
        return apart, cluster.linked("a1"), cluster.linked("b1")

    assert in_world(scenario, caplog) == (set(), {"b1"}, {"a1"})
    told = [record.getMessage() for record in caplog.records if "groups of" in record.getMessage()]
    assert sorted(told) == [
        "broadcast-groups of 'lan': No such device; it is tried again every 2 s",
        "broadcast-groups of 'lan': works again",
        "discovery-groups of 'lan': No such device; it is tried again every 2 s",
        "discovery-groups of 'lan': works again",
    ]


def test_a_socket_that_fails_later_is_opened_again(caplog):
    opened = []

    async def open_(protocol, group, bind, *, listens):
        made = []
        transport = await open_multicast(
            lambda: made.append(protocol()) or made[0], group, bind, listens=listens
        )
        opened.append(made[0])
        return transport

    async def scenario(cluster):
        cluster.start("a1", open_=open_)
        cluster.start("b1")
        await asyncio.sleep(PERIOD_S)
        for socket in opened:
            socket.error_received(OSError(101, "Network is unreachable"))
        await asyncio.sleep(3 * TIMEOUT_S)
        return len(opened), cluster.heard("a1"), cluster.heard("b1")

    assert in_world(scenario, caplog) == (4, {"b1:61616"}, {"a1:61616"})


def test_a_group_that_this_broker_does_not_broadcast_to_is_told_of(caplog):
    group = {"name": "other", "group-address": GROUP[0], "group-port": 9877}

    async def scenario(cluster):
        cluster.start("a1", **{"broadcast-groups": [group]})
        await asyncio.sleep(1)

    in_world(scenario, caplog)
    assert "'lan': this broker has no group of broadcast-groups in the same place" in caplog.text


def test_a_broadcast_has_an_address_and_no_secret():
    heard = []

    class Ear(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            heard.append(data)

    async def scenario(cluster):
        await open_multicast(Ear, GROUP, ("", 0), listens=True)
        cluster.start("a1")
        await asyncio.sleep(1)

    in_world(scenario)
    assert [json.loads(data) for data in heard] == [
        {"broadcast": 1, "node-id": "node-a1", "connector": "a1:61616", "start": 1_001_000_000, "number": 0}
    ]


# ----------------------------------------------------------------------------------- files (17.2.3)

FILES = {"name": "lan", "jgroups-file": "/shared", "jgroups-channel": "lan"}
BY_FILES = {"broadcast-groups": [FILES], "discovery-groups": [FILES]}


def test_brokers_find_each_other_by_files():
    async def scenario(cluster):
        cluster.start("a1", "b1", "c1", **BY_FILES)
        await asyncio.sleep(2 * PERIOD_S)
        [(path, volume)] = cluster.directories.items()
        return cluster.linked("a1"), str(path), sorted(volume.image())

    assert in_world(scenario) == ({"b1", "c1"}, "/shared/lan", ["a1.json", "b1.json", "c1.json"])


def test_the_file_of_a_broker_that_was_killed_stays_and_is_no_sign_of_life():
    async def scenario(cluster):
        cluster.start("a1", "b1", **BY_FILES)
        await asyncio.sleep(2 * PERIOD_S)
        cluster.processes["b1"].kill()
        await asyncio.sleep(TIMEOUT_S - PERIOD_S - 0.1)
        early = cluster.heard("a1")
        await asyncio.sleep(PERIOD_S + 2)
        late = cluster.heard("a1"), cluster.dialled("a1")
        await asyncio.sleep(TIMEOUT_S)
        assert late == (cluster.heard("a1"), cluster.dialled("a1"))
        cluster.start("b1", **BY_FILES)
        await asyncio.sleep(2 * PERIOD_S)
        [volume] = cluster.directories.values()
        return early, late, "b1.json" in volume.image(), cluster.linked("a1")

    assert in_world(scenario) == ({"b1:61616"}, (set(), set()), True, {"b1"})


def test_a_broker_that_stops_or_is_no_longer_live_removes_its_file():
    async def scenario(cluster):
        cluster.start("a1", "b1", **BY_FILES)
        await asyncio.sleep(PERIOD_S)
        [volume] = cluster.directories.values()
        both = sorted(volume.image())
        cluster.members["a1"].announce(role="backup")
        cluster.stopping["b1"].set()
        await asyncio.sleep(2 * PERIOD_S)
        return both, sorted(volume.image())

    assert in_world(scenario) == (["a1.json", "b1.json"], [])


def test_a_directory_that_cannot_be_used_is_told_of_once_and_tried_again(caplog):
    async def scenario(cluster):
        volume = cluster.directories[Path("/shared/lan")] = MemoryVolume()
        volume.fault = DiskFault(full=True)
        cluster.start("a1", "b1", **BY_FILES)
        await asyncio.sleep(3 * TIMEOUT_S)
        apart = cluster.linked("a1")
        volume.fault = DiskFault()
        await asyncio.sleep(2 * PERIOD_S)
        return apart, cluster.linked("a1")

    assert in_world(scenario, caplog) == (set(), {"b1"})
    told = [record.getMessage() for record in caplog.records if "groups of" in record.getMessage()]
    assert [("works again" in text, "no space left" in text.lower()) for text in told] == [
        *[(False, True)] * 2,
        *[(True, False)] * 2,
    ]


def test_a_directory_that_does_not_answer_delays_no_stop_for_long(caplog):
    async def scenario(cluster):
        cluster.start("a1", **BY_FILES)
        await asyncio.sleep(PERIOD_S)
        [volume] = cluster.directories.values()
        volume.fault = DiskFault(stalled=True)
        cluster.stopping["a1"].set()
        await asyncio.sleep(5)
        return cluster.processes["a1"].state

    assert in_world(scenario, caplog) == "gone"
    assert "the file a1.json stays: the directory does not answer" in caplog.text


def test_files_that_make_no_sense_are_ignored():
    async def scenario(cluster):
        volume = cluster.directories[Path("/shared/lan")] = MemoryVolume(
            {
                "x.json": b"nonsense",
                "y.json": b"1" * 5000,
                "z.json.tmp": msgspec.json.encode(said("c1:61616")),
                "lost+found/q": b"",
            }
        )
        cluster.start("a1", "b1", **BY_FILES)
        await asyncio.sleep(2 * PERIOD_S)
        return cluster.heard("a1"), volume.image()["x.json"]

    assert in_world(scenario) == ({"b1:61616"}, b"nonsense")


def test_brokers_find_each_other_in_a_directory_of_this_machine(tmp_path):
    shared = tmp_path / "not" / "yet"
    group = {"name": "lan", "jgroups-file": str(shared), "jgroups-channel": "lan"}
    groups = {
        "broadcast-groups": [{**group, "broadcast-period": 20}],
        "discovery-groups": [{**group, "refresh-timeout": 1000}],
    }

    async def main():
        members = []
        for name in ("a1", "b1"):
            settings = config.validate({**table(name, host="127.0.0.1", port=0), **groups})
            seams = Seams(random.Random(name), lambda: 1000.0, open_directory=SharedDirectoryVolume)
            member = Membership(settings, settings.cluster, seams)
            members.append(member)
            await member.start()
            member.announce(role="live", node_id=name)
        await until(lambda: all(member.discovery.node_ids for member in members), "both hear")
        files = sorted(path.name for path in (shared / "lan").iterdir() if path.suffix == ".json")
        for member in members:
            await member.stop()
        return files, list((shared / "lan").iterdir())

    assert asyncio.run(main()) == (["a1.json", "b1.json"], [])


# ------------------------------------------------------------------------------------ what is heard


class GroupTaskStandIn:
    async def stop(self):
        pass


class Neighbours:
    def __init__(self):
        self.dialled = []

    def dial(self, address, *, answers=False):
        self.dialled.append((address, answers))

    def give_up(self, address):
        self.dialled.append((address, "given up"))


def discovery():
    own = SimpleNamespace(connector="a1:61616", incarnation=100)
    return Discovery(TIMEOUT_S, Neighbours(), lambda: own, lambda _: GroupTaskStandIn())


def said(connector="b1:61616", node_id="B", start=1, number=0):
    return Broadcast(node_id=node_id, connector=connector, start=start, number=number)


def hear(*broadcasts):
    async def main():
        one = discovery()
        for broadcast in broadcasts:
            one.hear(broadcast)
        await one.stop()
        return one

    return asyncio.run(main())


def test_a_copy_or_a_late_broadcast_does_not_show_that_its_sender_is_there():
    async def main():
        one = discovery()
        one.hear(said(start=2, number=5))
        first_s = one._entries["b1:61616"].heard_s
        for late in (said(start=2, number=5), said(start=2, number=4), said(start=1, number=9)):
            one.hear(late)
        assert one._entries["b1:61616"].heard_s == first_s
        await asyncio.sleep(0.001)
        one.hear(said(start=2, number=6))
        assert one._entries["b1:61616"].heard_s > first_s
        await one.stop()

    asyncio.run(main())


def test_entries_are_removed_in_time_whenever_they_were_heard():
    chance = random.Random(1)

    async def main():
        one = discovery()
        for number in range(200):
            one.hear(said(f"b{number}:1", f"B{number}"))
            await asyncio.sleep(chance.random() / 10)
        heard = len(one.node_ids)
        await asyncio.sleep(TIMEOUT_S)
        return heard, one.node_ids

    heard, left = World(1).run(main)
    assert heard > 150
    assert left == {}


def test_a_later_start_is_dialled_at_once():
    heard = hear(said(start=1), said(start=1, number=1), said(start=2))
    assert heard._neighbours.dialled == [("b1:61616", True), ("b1:61616", False), ("b1:61616", True)]


def test_two_brokers_with_one_node_id_are_told_of_once_and_a_new_address_is_not(caplog):
    hear(said("b1:1", start=1), said("b1:1", start=1, number=1), said("b2:1", start=2))
    assert not caplog.records
    one, other = (partial(said, connector, start=start) for connector, start in (("b1:1", 1), ("b2:1", 2)))
    hear(*(each(number=number) for number in range(4) for each in (one, other)))
    [record] = caplog.records
    assert "b1:1 and b2:1 are two brokers with the node ID B" in record.getMessage()


def test_another_broker_with_our_address_is_told_of_once(caplog):
    heard = hear(said("a1:61616", start=99), said("a1:61616", start=101), said("a1:61616", start=101))
    assert not heard.node_ids
    [record] = caplog.records
    assert "another broker broadcasts a1:61616, which is cluster.connector of this one" in record.getMessage()


def test_the_warnings_are_bounded(caplog):
    one = discovery()
    for number in range(2 * ENTRIES_MAX):
        one._warn(f"node ID {number}", "two brokers")
    assert len(caplog.records) == ENTRIES_MAX


def test_the_entries_are_bounded(caplog):
    heard = hear(*(said(f"b{number}:1", f"B{number}") for number in range(2 * ENTRIES_MAX)))
    assert len(heard.node_ids) == ENTRIES_MAX
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# ------------------------------------------------------------------------------------ what it means

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "broadcast": st.integers(0, 2) | st.text(max_size=3),
        "node-id": st.text(max_size=70) | st.none(),
        "connector": st.text(max_size=300) | st.just("b1:61616") | st.integers(),
        "start": st.integers() | st.floats(),
        "number": st.integers(-1, 2**64),
        "more": st.text(max_size=5),
    },
)


@given(st.binary(max_size=BROADCAST_MAX + 10) | FIELDS.map(lambda fields: json.dumps(fields).encode()))
def test_bytes_are_a_sound_broadcast_or_none(data):
    heard = decode(data)
    if heard is not None:
        assert len(data) <= BROADCAST_MAX
        assert heard.node_id.isascii()
        assert heard.node_id.isprintable()
        assert " " not in heard.node_id
        assert heard.connector.rpartition(":")[2].isdigit()
        assert min(heard.start, heard.number) >= 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * BROADCAST_MAX,
        b'{"broadcast":1,"x":' + b"[" * 2000,
        b'{"broadcast":1,"node-id":"B","connector":"b1:1","start":1,"number":' + b" " * BROADCAST_MAX + b"1}",
        b'{"broadcast":2,"node-id":"B","connector":"b1:1","start":1,"number":1}',
        b'{"broadcast":1,"node-id":"B\\n","connector":"b1:1","start":1,"number":1}',
        b'{"broadcast":1,"node-id":"B","connector":"b1","start":1,"number":1}',
        b'{"broadcast":1,"node-id":"B","connector":"b1:1","start":-1,"number":1}',
        b'{"broadcast":1,"node-id":"\xff","connector":"b1:1","start":1,"number":1}',
    ],
)
def test_what_makes_no_sense_is_ignored(data):
    assert decode(data) is None


def test_the_longest_connector_fits():
    config.validate(table("a1", connector="ä" * 254 + ":1"))
    with pytest.raises(config.ConfigurationError, match="257 characters: broadcast-groups can broadcast 256"):
        config.validate(table("a1", connector="a" * 255 + ":1"))
    longest = said("\U0001f600" * 250 + ":65535", "x" * 64, 2**63 - 1, 2**63 - 1)
    assert decode(msgspec.json.encode(longest)) == longest
