import asyncio

from broker.storage.gate import DurabilityGate


def run(scenario):
    """Run a scenario (called with a gate and the list that callbacks write to) and give the
    list.
    """
    done = []

    async def main():
        await scenario(DurabilityGate(), done)
        await asyncio.sleep(0)

    asyncio.run(main())
    return done


def test_callbacks_run_in_order_of_sequence_whatever_order_they_came_in():
    async def scenario(gate, done):
        for sequence in (3, 1, 2, 1):
            gate.when_durable(sequence, lambda sequence=sequence: done.append(sequence))
        gate.local = 2
        assert done == [1, 1, 2]
        assert gate.waiting == 1
        gate.local = 3

    assert run(scenario) == [1, 1, 2, 3]


def test_what_is_durable_already_runs_soon_but_never_within_the_call():
    async def scenario(gate, done):
        gate.local = 5
        gate.when_durable(4, lambda: done.append(4))
        assert done == []

    assert run(scenario) == [4]


def test_with_a_backup_both_disks_are_needed():
    async def scenario(gate, done):
        gate.remote = 0
        gate.when_durable(1, lambda: done.append("answered"))
        gate.local = 1
        assert done == []
        assert gate.durable == 0
        gate.remote = 1

    assert run(scenario) == ["answered"]


def test_without_a_backup_local_decides_alone_again():
    async def scenario(gate, done):
        gate.remote = 0
        gate.when_durable(1, lambda: done.append("answered"))
        gate.local = 1
        assert done == []
        gate.remote = None

    assert run(scenario) == ["answered"]


def test_a_held_gate_answers_nobody_until_released():
    async def scenario(gate, done):
        gate.when_durable(1, lambda: done.append(1))
        gate.hold()
        gate.local = 1
        gate.remote = None
        gate.when_durable(1, lambda: done.append(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert done == []
        gate.release()
        assert done == [1, 2]

    assert run(scenario) == [1, 2]


def test_a_callback_can_hold_the_gate_for_those_after_it():
    async def scenario(gate, done):
        gate.when_durable(1, gate.hold)
        gate.when_durable(1, lambda: done.append("too early"))
        gate.local = 1
        assert done == []
        assert gate.held

    assert run(scenario) == []


def test_an_abandoned_gate_never_answers_again():
    async def scenario(gate, done):
        gate.when_durable(1, lambda: done.append(1))
        gate.abandon()
        gate.when_durable(1, lambda: done.append(2))
        gate.local = 9
        gate.release()
        await asyncio.sleep(0)
        assert gate.abandoned

    assert run(scenario) == []


def test_a_callback_that_fails_does_not_keep_the_others_from_their_answer():
    async def scenario(gate, done):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: done.append(type(context["exception"])))
        gate.when_durable(1, lambda: 1 / 0)
        gate.when_durable(1, lambda: done.append("answered"))
        gate.local = 1

    assert run(scenario) == [ZeroDivisionError, "answered"]


def test_a_callback_may_register_another():
    async def scenario(gate, done):
        gate.when_durable(1, lambda: gate.when_durable(2, lambda: done.append("second")))
        gate.local = 2

    assert run(scenario) == ["second"]
