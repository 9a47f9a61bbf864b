"""The parts of the agent that runs in each container, as processes of this machine."""

import asyncio
import contextlib
import signal

import pytest

from environments.agent import control
from environments.agent.agent import NodeAgent, clear
from environments.agent.child import Child, reap
from environments.agent.control import AgentError
from environments.agent.program import Program
from environments.board import FaultBoard

BOUND_S = 60.0
"""Bounds every wait of a test; reached only when the test fails."""


async def until(condition, bound_s=BOUND_S):
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.01)


def run_with_child(tmp_path, test):
    async def main():
        child = Child(tmp_path / "broker.log")
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap, (child,))
        try:
            await test(child)
        finally:
            child.signal(signal.SIGKILL)
            await child.exited.wait()

    asyncio.run(main())


def test_a_childs_exit_status_and_output_are_kept(tmp_path):
    async def test(child):
        child.start(["python", "-c", "print('said', flush=True); raise SystemExit(3)"], {})
        await asyncio.wait_for(child.exited.wait(), BOUND_S)
        assert (child.state(), child.status) == ("gone", 3)
        assert (tmp_path / "broker.log").read_text() == "said\n"

    run_with_child(tmp_path, test)


def test_a_stopped_child_is_paused_and_a_killed_one_has_its_signals_number(tmp_path):
    async def test(child):
        child.start(["sleep", "60"], {})
        with pytest.raises(RuntimeError, match="runs already"):
            child.start(["sleep", "60"], {})
        child.signal(signal.SIGSTOP)
        await until(lambda: child.state() == "paused")
        child.signal(signal.SIGCONT)
        await until(lambda: child.state() == "running")
        child.signal(signal.SIGKILL)
        await asyncio.wait_for(child.exited.wait(), BOUND_S)
        assert child.status == -9

    run_with_child(tmp_path, test)


def test_a_program_that_does_not_exist_leaves_no_child(tmp_path):
    async def test(child):
        with pytest.raises(FileNotFoundError):
            child.start(["/nonexistent/broker"], {})
        assert child.pid is None

    run_with_child(tmp_path, test)


def test_clearing_a_directory_keeps_it_and_does_not_follow_links(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("")
    data = tmp_path / "data"
    (data / "journal" / "old").mkdir(parents=True)
    (data / "lock").write_text("")
    (data / "link").symlink_to(precious)
    assert clear(data) == 3
    assert list(data.iterdir()) == []
    assert (precious / "file").exists()


async def ask(agent, operation, token="secret", **arguments):  # noqa: S107
    server = await asyncio.start_server(agent._answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        return await control.call("127.0.0.1", port, token, operation, timeout_s=BOUND_S, **arguments)


def test_an_agent_obeys_only_who_has_its_token(monkeypatch):
    with pytest.raises(AgentError, match="another deployment"):
        asyncio.run(ask(NodeAgent("secret"), "state", token="guess"))


def test_an_agent_forgets_a_request_whose_asker_hung_up(monkeypatch):
    async def main():
        agent = NodeAgent("secret")
        begun, ended = asyncio.Event(), asyncio.Event()

        async def wait():
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        monkeypatch.setattr(agent, "do_wait", wait, raising=False)
        asking = asyncio.create_task(ask(agent, "wait"))
        await asyncio.wait_for(begun.wait(), BOUND_S)
        asking.cancel()
        await asyncio.wait_for(ended.wait(), BOUND_S)

    asyncio.run(main())


def test_an_agent_tells_an_ended_lease_from_other_errors(monkeypatch):
    async def main():
        agent = NodeAgent("secret")
        monkeypatch.setattr(agent._firewall, "apply", lambda in_force, changed: None)
        lease = (await ask(agent, "inject", fault={"cut": ["10.0.0.2"]}, lease_s=60.0))["lease"]
        await ask(agent, "renew", lease=lease)
        await ask(agent, "heal", lease=lease)
        with pytest.raises(AgentError) as ended:
            await ask(agent, "renew", lease=lease)
        assert ended.value.kind == control.ENDED
        with pytest.raises(AgentError) as unknown:
            await ask(agent, "dance")
        assert unknown.value.kind == ""

    asyncio.run(main())


def test_a_fault_that_the_kernel_refuses_is_not_in_force_afterwards(monkeypatch):
    async def main():
        agent = NodeAgent("secret")
        applied = []

        def apply(in_force, changed):
            applied.append([(fault.primitive, fault.wanted) for fault in in_force])
            if in_force:
                raise OSError("nft: no")

        monkeypatch.setattr(agent._firewall, "apply", apply)
        with pytest.raises(AgentError, match="nft: no"):
            await ask(agent, "inject", fault={"cut": ["10.0.0.2"]}, lease_s=60.0)
        assert applied == [[("cut", ("10.0.0.2",))], []]

    asyncio.run(main())


def test_a_fault_nobody_renews_is_healed_by_the_agent(monkeypatch):
    async def main():
        agent = NodeAgent("secret")
        applied = []
        monkeypatch.setattr(agent._firewall, "apply", lambda in_force, _: applied.append(len(in_force)))
        await ask(agent, "inject", fault={"cut": ["10.0.0.2"]}, lease_s=0.05)
        await until(lambda: applied == [1, 0])

    asyncio.run(main())


def test_a_program_that_is_stopped_and_down_by_several_faults_comes_back_with_the_last(tmp_path):
    async def test(child):
        program = Program(child)
        board = FaultBoard([program])
        child.start(["sleep", "60"], {})
        first = child.pid
        paused = [await board.begin([board.fault("pause", (), (), True)], 60) for _ in range(2)]
        assert child.state() == "paused"
        await board.heal(paused[0])
        assert child.state() == "paused"
        await board.heal(paused[1])
        await until(lambda: child.state() == "running")
        downs = [await board.begin([board.fault("down", (), (), True)], 60) for _ in range(2)]
        await board.heal(downs[0])
        assert child.state() == "gone"
        await board.heal(downs[1])
        assert child.state() == "running"
        assert child.pid != first
        await board.begin([board.fault("down", (), (), True)], 60)
        program.end()
        await board.heal_all()
        assert child.state() == "gone"

    run_with_child(tmp_path, test)


def test_a_program_that_cannot_be_started_again_at_once_is_started_when_it_is_tried_again(
    tmp_path, monkeypatch
):
    def refuse(*_):
        raise OSError(11, "Resource temporarily unavailable")

    async def test(child):
        said = []
        board = FaultBoard([Program(child)], say=said.append)
        child.start(["sleep", "60"], {})
        down = await board.begin([board.fault("down", (), (), True)], 60)
        with monkeypatch.context() as refusing, pytest.raises(OSError, match="temporarily"):
            refusing.setattr(child, "start", refuse)
            await board.heal(down)
        assert said[0].startswith("healing failed, trying again")
        await until(lambda: child.state() == "running")

    run_with_child(tmp_path, test)


def test_one_request_breaks_several_parts_and_a_fault_that_is_no_fault_none(monkeypatch):
    async def main():
        agent = NodeAgent("secret")
        applied = []
        monkeypatch.setattr(
            agent._firewall, "apply", lambda in_force, _: applied.append([one.primitive for one in in_force])
        )
        asked = {"cut": ["10.0.0.2"], "reset": ["10.0.0.3"], "disk": {}, "pause": False}
        lease = (await ask(agent, "inject", fault=asked, lease_s=60.0))["lease"]
        with pytest.raises(AgentError, match="no fault 'melt'"):
            await ask(agent, "inject", fault={"melt": True}, lease_s=60.0)
        await ask(agent, "heal", lease=lease)
        assert applied == [["cut", "reset"], ["cut", "reset"], [], []]

    asyncio.run(main())


def test_the_agents_lines_survive_a_peer_that_says_nonsense():
    async def main():
        agent = NodeAgent("secret")
        server = await asyncio.start_server(agent._answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            deep = b"[" * 100_000
            for nonsense in (b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", deep + b"\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"secret\n" + nonsense)
                assert await asyncio.wait_for(reader.read(), BOUND_S) == b""
                writer.close()
            answer = await control.call("127.0.0.1", port, "secret", "state", timeout_s=BOUND_S)
        assert answer == {"state": "gone", "status": None}

    asyncio.run(main())


def test_an_agent_keeps_nothing_of_a_stranger(monkeypatch):
    monkeypatch.setattr(
        "environments.agent.server._REQUEST_TIMEOUT_S", 10 * BOUND_S
    )  # so that only size ends it

    async def main():
        agent = NodeAgent("secret")
        server = await agent.listen("127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"a" * control.LINE_BYTES_MAX)
            with contextlib.suppress(ConnectionError):  # closed with most of it unread
                await asyncio.wait_for(reader.read(), BOUND_S)
            writer.close()
            answer = await control.call("127.0.0.1", port, "secret", "state", timeout_s=BOUND_S)
        assert answer == {"state": "gone", "status": None}

    asyncio.run(main())


def test_strangers_do_not_keep_the_harness_out():
    async def main():
        agent = NodeAgent("secret")
        server = await agent.listen("127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
            answer = await control.call("127.0.0.1", port, "secret", "state", timeout_s=BOUND_S)
            assert answer == {"state": "gone", "status": None}
            assert len(agent._strangers) <= 64
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(silent[0][0].read(), BOUND_S) == b""
            for _, writer in silent:
                writer.close()

    asyncio.run(main())
