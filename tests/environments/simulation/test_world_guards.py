"""What no seed decides is refused by name within a world, and works as before outside."""

# ruff: noqa: PLW0108 - a function must be looked up when it is called, or it is not the guarded one

import asyncio
import concurrent.futures
import gc
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import textwrap
import threading
import time
import uuid
import weakref

import pytest

from environments.simulation import ForbiddenCallError, World
from environments.simulation.clock import EPOCH_S
from environments.simulation.guards import FORBIDDEN

CALLS = {
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.monotonic": lambda: time.monotonic(),
    "time.monotonic_ns": lambda: time.monotonic_ns(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.perf_counter_ns": lambda: time.perf_counter_ns(),
    "time.sleep": lambda: time.sleep(0),
    "random.random": lambda: random.random(),
    "random.randint": lambda: random.randint(1, 6),
    "random.choice": lambda: random.choice("ab"),
    "random.shuffle": lambda: random.shuffle([1, 2]),
    "random.uniform": lambda: random.uniform(0, 1),
    "random.sample": lambda: random.sample("ab", 1),
    "random.seed": lambda: random.seed(1),
    "random.Random() without a seed": lambda: random.Random(),
    "random.SystemRandom": lambda: random.SystemRandom().random(),
    "os.urandom": lambda: os.urandom(1),
    "os.getrandom": lambda: os.getrandom(1),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "threading.Thread.start": lambda: threading.Thread(target=print).start(),
    "subprocess.Popen": lambda: subprocess.run(["true"], check=True),
    "os.fork": lambda: os.fork(),
    "os.system": lambda: os.system("true"),  # noqa: S605
    "os.posix_spawn": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "socket.socket": lambda: socket.socket().close(),
    "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 1),
    "socket.gethostname": lambda: socket.gethostname(),
}

BY_OTHER_NAMES = {
    "secrets": ("random.SystemRandom", lambda: secrets.token_bytes(3)),
    "an executor": ("threading.Thread.start", lambda: concurrent.futures.ThreadPoolExecutor(1).submit(print)),
    "a pair of sockets": ("socket.socket", lambda: socket.socketpair()),
    "a connection": ("socket.getaddrinfo", lambda: socket.create_connection(("localhost", 1))),
    "output of a process": ("subprocess.Popen", lambda: subprocess.check_output(["true"])),
}


def on_a_node(call):
    """Run a plain function on the node a1 of a world."""
    world = World(1)

    async def node():
        call()

    async def main():
        await world.spawn("a1", node).exited

    world.run(main)


@pytest.mark.parametrize("name", CALLS)
def test_a_forbidden_call_is_named_with_its_place(name):
    with pytest.raises(ForbiddenCallError) as error:
        on_a_node(CALLS[name])
    text = str(error.value)
    assert text.startswith(f"{name} called on node a1 at {__file__}:")
    assert "in <lambda>: " in text


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"os.fork"}))
def test_the_same_call_works_as_before_when_the_world_is_over(name):
    with pytest.raises(ForbiddenCallError):
        on_a_node(CALLS[name])
    CALLS[name]()


@pytest.mark.parametrize("name", BY_OTHER_NAMES)
def test_a_forbidden_call_is_caught_behind_a_library_and_the_caller_is_named(name):
    shown, call = BY_OTHER_NAMES[name]
    with pytest.raises(ForbiddenCallError) as error:
        on_a_node(call)
    assert str(error.value).startswith(f"{shown} called on node a1 at {__file__}:")


def test_everything_guarded_is_tested():
    tested = set(CALLS) | {"asyncio.to_thread"}
    random_functions = {f"random.{name}" for name in random.__all__}
    assert {shown for _, _, shown, _ in FORBIDDEN} - random_functions <= tested


async def to_thread():
    await asyncio.to_thread(print)


async def run_in_executor():
    await asyncio.get_running_loop().run_in_executor(None, print)


async def subprocess_exec():
    await asyncio.create_subprocess_exec("true")


async def subprocess_shell():
    await asyncio.create_subprocess_shell("true")


async def getaddrinfo():
    await asyncio.get_running_loop().getaddrinfo("localhost", 1)


async def add_signal_handler():
    asyncio.get_running_loop().add_signal_handler(15, print)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (to_thread, "asyncio.to_thread"),
        (run_in_executor, "loop.run_in_executor"),
        (subprocess_exec, "loop.subprocess_exec"),
        (subprocess_shell, "loop.subprocess_shell"),
        (getaddrinfo, "loop.getaddrinfo"),
        (add_signal_handler, "loop.add_signal_handler"),
    ],
)
def test_a_forbidden_call_of_the_loop_is_named(call, name):
    with pytest.raises(ForbiddenCallError, match=name):
        World(1).run(call)


def test_a_forbidden_call_ends_the_run_even_if_the_caller_swallows_it():
    def swallow():
        try:
            time.time()
        except Exception:
            return

    with pytest.raises(ForbiddenCallError, match=r"time\.time"):
        on_a_node(swallow)


def test_the_guards_go_when_the_run_raises():
    before = {(id(owner), name): vars(owner)[name] for owner, name, _, _ in FORBIDDEN}
    seed = random.Random.seed

    async def fails():
        assert time.time is not before[id(time), "time"]
        raise LookupError

    with pytest.raises(LookupError):
        World(1).run(fails)
    assert {(id(owner), name): vars(owner)[name] for owner, name, _, _ in FORBIDDEN} == before
    assert random.Random.seed is seed


def test_a_seeded_generator_is_allowed():
    drawn = []
    on_a_node(lambda: drawn.append(random.Random("a seed").random()))
    assert drawn == [random.Random("a seed").random()]


def test_a_log_record_has_the_node_s_wall_clock(caplog):
    world = World(1)

    async def node():
        await asyncio.sleep(2)
        logging.getLogger("broker").warning("hello")

    async def main():
        world.clock("a1").skew_ms = 60_000
        await world.spawn("a1", node).exited

    world.run(main)
    [record] = caplog.records
    assert record.created == EPOCH_S + 62


def test_a_module_may_look_at_the_clock_while_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "impatient.py").write_text(
        textwrap.dedent(
            """
            import random, time
            LOADED = time.time()
            CHANCE = random.Random()
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    on_a_node(lambda: __import__("impatient"))
    assert sys.modules.pop("impatient").LOADED > 0


def test_who_took_a_guarded_function_has_the_true_one_and_no_world_when_that_is_over():
    taken = []

    def call():
        taken.extend([time.monotonic, random.Random.seed])

    async def main(world):
        process = world.spawn("a1", lambda: asyncio.sleep(0, call()))
        await process.exited

    def run():
        world = World(seed=1)
        world.run(lambda: main(world))
        return weakref.ref(world)

    over = run()
    gc.collect()
    assert over() is None
    monotonic, seed = taken
    assert monotonic() > 0
    seed(random.Random(1))


def test_other_threads_are_left_alone():
    times, began, may_end = [], threading.Event(), threading.Event()

    def other():
        began.wait()
        times.append((time.time(), time.monotonic(), os.urandom(1), random.random(), uuid.uuid4()))
        may_end.set()

    def call():
        began.set()
        may_end.wait()

    thread = threading.Thread(target=other)
    thread.start()
    on_a_node(call)
    thread.join()
    assert len(times) == 1
