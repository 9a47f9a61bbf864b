"""An owner is certain only while nobody else can own what it serves, and gives up in time."""

import asyncio

import pytest

from broker.policies.ownership.lease import Lease, LeaseLostError
from broker.storage.gate import DurabilityGate
from environments.simulation.world import World

WHOLE_S = 4.0


class Store:
    """Answers soon, or not at all; ``said`` is what its owner was told and when."""

    def __init__(self, **terms):
        self.loop = asyncio.get_running_loop()
        self.silent = False
        self.asked = []
        self.said = []
        self.lease = Lease("it", self.ask, proven_s=self.now, period_s=0.5, expiration_s=WHOLE_S, **terms)
        self.lease.on_doubt = lambda: self.said.append(("doubt", round(self.now, 3)))
        self.lease.on_certain = lambda: self.said.append(("certain", round(self.now, 3)))

    @property
    def now(self):
        return self.loop.time()

    async def ask(self):
        asked_s = self.now
        self.asked.append(asked_s)
        await asyncio.sleep(0.001)
        while self.silent:
            await asyncio.sleep(0.01)
        return asked_s


def gate_of(lease):
    gate = DurabilityGate()
    lease.guard(gate)
    return gate


def in_a_world(test):
    World(1).run(test)


def test_a_gate_is_held_by_the_clock_itself_from_half_of_the_lease_on():
    async def test():
        lease = Store().lease  # nobody runs it: no timer says so
        gate = gate_of(lease)
        lease.on_certain = gate.release
        ran = []
        gate.when_durable(1, lambda: ran.append("answered"))
        await asyncio.sleep(1.9)
        assert not gate.held
        await asyncio.sleep(0.2)
        assert gate.held
        gate.local = 1  # confirmed too late: nobody knows who owns the store now
        await asyncio.sleep(0.1)
        assert ran == []
        lease.renew(asyncio.get_running_loop().time())
        assert ran == ["answered"]
        assert not gate.held

    in_a_world(test)


def test_a_lease_counts_from_the_asking_and_an_older_proof_does_not_shorten_it():
    async def test():
        store = Store()
        asked_s = store.now + 1.0
        await asyncio.sleep(1.5)
        store.lease.renew(asked_s)
        store.lease.renew(asked_s - 0.5)
        await asyncio.sleep(1.4)
        assert store.lease.certain()
        await asyncio.sleep(0.2)
        assert not store.lease.certain()

    in_a_world(test)


def test_a_proof_that_is_itself_too_old_ends_no_doubt():
    async def test():
        store = Store()
        asked_s = store.now + 1.0
        await asyncio.sleep(3.1)
        assert not store.lease.certain()
        store.lease.renew(asked_s)
        assert not store.lease.certain()
        store.lease.renew(asked_s + 1.0)
        assert store.lease.certain()

    in_a_world(test)


def test_a_gate_that_its_owner_holds_is_held_whatever_the_clock_says():
    async def test():
        gate = gate_of(Store().lease)
        gate.hold()
        assert gate.held
        gate.release()
        assert not gate.held
        gate.abandon()
        assert gate.abandoned

    in_a_world(test)


@pytest.mark.parametrize("ends", [0.75, 1.0])
def test_a_silent_store_is_doubted_at_half_and_given_up_at_the_end(ends):
    async def test():
        store = Store(ends=ends)
        running = asyncio.ensure_future(store.lease.run())
        await asyncio.sleep(1.2)
        store.silent = True
        proven_s = store.asked[-1]
        with pytest.raises(LeaseLostError, match="confirmed it for") as lost:
            await running
        assert lost.value.expired
        assert store.said == [("doubt", round(proven_s + WHOLE_S / 2, 3))]
        assert round(store.now - proven_s, 3) == ends * WHOLE_S
        store.lease.renew(store.now)
        assert not store.lease.certain()  # lost is lost

    in_a_world(test)


def test_what_else_proves_it_while_a_question_hangs_puts_doubt_and_end_off():
    """Every batch of a journal in a database is a proof too, on another connection."""

    async def test():
        store = Store(ends=0.75, kept_while_paused=False)
        running = asyncio.ensure_future(store.lease.run())
        store.silent = True
        for _ in range(10):
            await asyncio.sleep(1.0)
            store.lease.renew(store.now)
        assert store.said == []
        assert store.lease.certain()
        last_s = store.now
        with pytest.raises(LeaseLostError):
            await running
        assert round(store.now - last_s, 3) == 0.75 * WHOLE_S
        assert len(store.asked) == 1

    in_a_world(test)


def test_an_owner_that_is_renewed_otherwise_asks_nothing():
    async def test():
        store = Store()
        running = asyncio.ensure_future(store.lease.run())
        for _ in range(50):
            await asyncio.sleep(0.2)
            store.lease.renew(store.now)
        assert store.asked == []
        running.cancel()

    in_a_world(test)


@pytest.mark.parametrize(("kept", "ended"), [(True, False), (False, True)])
def test_who_stood_still_past_its_lease_asks_first_only_where_it_may_have_been_kept(kept, ended):
    world = World(1)
    made = []

    async def broker():
        store = Store(ends=0.75, kept_while_paused=kept)
        made.append(store)
        try:
            await store.lease.run()
        except LeaseLostError as error:
            made.append(error)

    async def test():
        process = world.spawn("a1", broker)
        await asyncio.sleep(2)
        process.pause()
        await asyncio.sleep(30)
        made[0].silent = not kept
        process.resume()
        await asyncio.sleep(1)
        assert (len(made) == 2) is ended
        assert [what for what, _ in made[0].said] == ([] if ended else ["doubt", "certain"])

    world.run(test)
