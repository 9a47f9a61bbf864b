"""dspmq's words: what is shown of a queue manager in each of its states, by an instance that
runs and by a host where none does.
"""

import pytest
from queue_managers import in_world, outcome

from broker.policies.multi_instance import status
from broker.policies.multi_instance.status import Display, RunningInstance


async def look(host):
    return await status.look(host.places, "QM1")


def test_it_is_printed_as_dspmq_does():
    shown = Display(
        queue_manager="QM1",
        status="Running",
        standby="Permitted",
        instances=(
            RunningInstance(name="lins", mode="Active"),
            RunningInstance(name="gtstress42", mode="Standby"),
        ),
    )
    assert shown.lines(instances=False, standby=False) == ["QMNAME(QM1) STATUS(Running)"]
    assert shown.lines(instances=True, standby=True) == [
        "QMNAME(QM1) STANDBY(Permitted)",
        "    INSTANCE(lins) MODE(Active)",
        "    INSTANCE(gtstress42) MODE(Standby)",
    ]


def test_a_queue_manager_that_was_never_started_is_not_known():
    async def main(world, server, hosts):
        with pytest.raises(FileNotFoundError, match="no queue manager 'QM1' has been started here"):
            await look(hosts["one"])

    in_world(main)


def test_while_instances_run_every_host_sees_them():
    async def main(world, server, hosts):
        one, two, three = hosts.values()
        await one.run_active(await one.strmqm())
        shown = await look(three)
        assert (shown.status, shown.standby) == ("Running elsewhere", "Permitted")
        assert [each.name for each in shown.instances] == ["one"]
        assert await outcome(two, two.strmqm()) == "standby"
        shown = await look(three)
        assert [(each.name, each.mode) for each in shown.instances] == [("one", "Active"), ("two", "Standby")]
        assert (await status.look(two.places, "QM1", "Running as standby")).status == "Running as standby"

    in_world(main)


def test_a_standby_that_is_not_permitted_is_shown_so():
    async def main(world, server, hosts):
        one = hosts["one"]
        await one.strmqm(permitted=False)
        assert (await look(hosts["two"])).standby == "Not permitted"

    in_world(main)


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("ended-normally", "Ended normally"),
        ("switched-over", "Ended normally"),
        ("ended-immediately", "Ended immediately"),
        ("running", "Ended unexpectedly"),
        ("starting", "Ended unexpectedly"),
    ],
)
def test_one_that_runs_nowhere_ended_as_its_last_active_instance_said(state, shown):
    async def main(world, server, hosts):
        one = hosts["one"]
        granted = await one.strmqm()
        await one.run_active(granted, state)
        await granted.live.release()
        seen = await look(hosts["two"])
        assert (seen.status, seen.standby, seen.instances) == (shown, "Not applicable", ())

    in_world(main)


def test_looking_takes_no_lock():
    """A look in the moment of a start must not turn the instance away."""

    async def main(world, server, hosts):
        one, two, _ = hosts.values()
        await one.run_active(await one.strmqm())
        before = dict(server.locks)
        locked = []
        taken = two.mount.try_lock
        two.mount.try_lock = lambda *place: locked.append(place) or taken(*place)
        await look(two)
        assert locked == []
        assert server.locks == before

    in_world(main)
