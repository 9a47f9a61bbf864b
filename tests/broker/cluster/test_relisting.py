"""The list of brokers is read again while a conventional cluster serves."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from members import Hub, linked, until

from broker import config
from broker.admin import AdminServer
from broker.config import ConfigurationError
from broker.policies.conventional.reloading import Reloading
from broker.policies.policy import RequestRefusedError
from broker.sections import AdminSection

LIST = "ha-policy.conventional.broker-list"


def conventional(name, brokers, **section):
    table = {
        "broker": {"name": name},
        "cluster": {
            "cluster-password": "p",
            "connector": f"{name}:61616",
            "stomp-connector": f"{name}:61613",
        },
        "ha-policy": {
            "conventional": {"broker-list": [f"{broker}:61616" for broker in brokers], **section},
        },
    }
    return config.validate(table)


class Site:
    """A broker of a hub whose configuration file the test changes."""

    def __init__(self, hub, name, brokers, **section):
        self.hub, self.name, self.section = hub, name, {"cluster-file": "cluster.toml", **section}
        self.file = conventional(name, brokers, **self.section)

    async def start(self):
        brokers = self.file.ha_policy.conventional.broker_list
        others = [address.partition(":")[0] for address in brokers]
        static = [other for other in others if other != self.name]
        self.member = await self.hub.add(
            self.name, *static, conventional={"broker-list": list(brokers), **self.section}
        )
        self.reloading = Reloading(self.file, self.member, self.read)
        return self

    async def read(self):
        if isinstance(self.file, ConfigurationError):
            raise self.file
        return self.file

    def write(self, brokers, **section):
        self.file = conventional(self.name, brokers, **{**self.section, **section})


def test_one_broker_tells_all_and_links_of_brokers_that_stay_go_on():
    async def scenario():
        async with Hub() as hub:
            a, b, c = [await Site(hub, name, "abc").start() for name in "abc"]
            await until(lambda: linked(a.member) == {"b", "c"}, "linked")
            await until(lambda: linked(b.member) == {"a", "c"}, "b, too")
            link = a.member.neighbours.link_to("b")
            for site in (a, b):
                site.write("abd")
            c.file = ConfigurationError("c is not in the list")
            answer = await a.reloading.reload({})
            assert answer == {
                "brokers": ["a:61616", "b:61616", "d:61616"],
                "told": {"b:61616": "", "d:61616": None},
            }
            await until(lambda: linked(a.member) == {"b"} and linked(b.member) == {"a"}, "c is unlinked")
            assert {*a.member.directory.known} == {"b"}
            d = await Site(hub, "d", "abd").start()
            await until(lambda: linked(d.member) == {"a", "b"}, "d is linked with all")
            await until(lambda: linked(a.member) == {"b", "d"}, "and all with d")
            assert a.member.neighbours.link_to("b") is link
            assert a.member.neighbours.terms.shared[LIST] == "a:61616, b:61616, d:61616"

    asyncio.run(scenario())


def test_brokerctl_lists_the_brokers_of_the_new_list():
    async def scenario():
        async with Hub() as hub:
            a = await Site(hub, "a", "abc").start()
            policy = SimpleNamespace(
                config=a.file, membership=a.member, details=lambda: {"policy": "conventional"}, commands={}
            )
            server = AdminServer(AdminSection(), "a", policy, asyncio.Event(), None, None)
            for brokers in ("abc", "abd"):
                a.write(brokers)
                await a.reloading.reload({})
                answer = await server._commands["brokers"]({})
                addresses = [one["connector"].partition(":")[0] for one in answer["brokers"]]
                assert addresses == [*brokers]

    asyncio.run(scenario())


def test_what_the_other_broker_cannot_read_is_told():
    async def scenario():
        async with Hub() as hub:
            a = await Site(hub, "a", "ab").start()
            b = await Site(hub, "b", "ab", **{"cluster-file": ""}).start()
            await until(lambda: linked(a.member) == {"b"}, "linked")
            answer = await a.reloading.reload({})
            assert answer["told"]["b:61616"].startswith("it has no cluster-file")
            b.file = ConfigurationError("the file is gone")
            b.reloading._config = conventional("b", "ab", **{"cluster-file": "cluster.toml"})
            answer = await a.reloading.reload({})
            assert answer["told"] == {"b:61616": "the file is gone"}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"master-broker": "a:61616"}, "master-broker is 'a:61616', and was ''"),
        ({"cluster-id": "x"}, "cluster-id is 'x', and was ''"),
    ],
)
def test_a_reload_changes_the_list_only(changed, reason):
    async def scenario():
        async with Hub() as hub:
            a = await Site(hub, "a", "ab").start()
            before = dict(a.member.neighbours.terms.shared)
            a.write("a", **changed)
            with pytest.raises(RequestRefusedError, match=reason):
                await a.reloading.reload({})
            a.file = msgspec.structs.replace(
                conventional("a", "a", **a.section), cluster=msgspec.structs.replace(a.file.cluster, name="x")
            )
            with pytest.raises(RequestRefusedError, match="cluster.name is 'x'"):
                await a.reloading.reload({})
            assert dict(a.member.neighbours.terms.shared) == before

    asyncio.run(scenario())
