"""A probe's steps come out as the documents say, on real processes.

And a step that does not is noticed.
"""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from harness.claims import runner
from harness.claims.scenarios import PROBES, Probe
from harness.claims.scenarios.probe import STEPS, StepMissedError
from harness.claims.scenarios.workbench import Relay, Workbench
from harness.history import judge as judging
from harness.interface import InfrastructureError


@pytest.mark.cluster
@pytest.mark.row
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.id)
def test_the_steps_come_out_as_the_documents_say(probe, tmp_path):
    ran = runner.once(probe, "local", 0, tmp_path)
    assert ran.problem == ""
    assert not ran.undecided


def made(take):
    return Probe(id="HA99-made", claim="a claim", source="a document", expected="two steps", take=take)


def request(tmp_path, probe, **options):
    return runner.ClaimsRequest(
        scenarios=[probe], environment="simulation", root=tmp_path / "store", runs=1, **options
    )


async def two_steps(notes):
    notes.compare("the first", 1, 1)
    notes.compare("the second", "a", "b")


def test_a_step_that_comes_out_otherwise_refutes_the_claim_and_is_told(tmp_path, capsys):
    assert runner.run(request(tmp_path, made(two_steps), as_json=True)) == judging.INVALID
    said = capsys.readouterr()
    assert "HA99-made  NOT AS EXPECTED: 1 of 2 steps" in said.err
    assert "a claim (a document; on local processes)" in said.err
    (told,) = json.loads(said.out)["scenarios"]
    assert told["problems"] == ["the second: expected a, found b"]
    (store,) = told["stores"]
    steps = json.loads((Path(store) / STEPS).read_text())
    assert [step["name"] for step in steps] == ["the first", "the second"]


def test_steps_behind_a_missed_one_are_not_taken(tmp_path):
    async def take(notes):
        notes.require("the first", 1, 2)
        notes.compare("the second", 1, 1)

    ran = runner.once(made(take), "local", 0, tmp_path)
    assert ran.problem == "the first: expected 1, found 2"


def test_a_machine_that_cannot_take_the_steps_decides_nothing(tmp_path):
    async def take(notes):
        raise InfrastructureError("no such tool")

    assert runner.run(request(tmp_path, made(take))) == judging.UNKNOWN


@pytest.mark.parametrize(
    "error", [ConnectionResetError("the broker is gone"), TimeoutError(), EOFError("half a frame")]
)
def test_a_probe_that_breaks_off_decides_nothing_and_says_why(error, tmp_path):
    async def take(notes):
        notes.compare("the first", 1, 1)
        raise error

    ran = runner.once(made(take), "local", 0, tmp_path)
    assert ran.undecided
    assert ran.problem == f"broke off: {str(error) or 'TimeoutError'}"


def test_a_probe_that_notes_nothing_is_a_mistake(tmp_path):
    async def take(notes):
        pass

    with pytest.raises(AssertionError, match="has noted no step"):
        made(take).conduct(tmp_path)


def test_what_a_bench_started_ends_with_it_and_what_was_said_is_kept(tmp_path):
    processes = []

    async def take(notes):
        async with Workbench(notes) as bench:
            said = await bench.command("sh", "-c", "echo a line; exit 3")
            notes.compare("a command", (3, ["a line"]), (said.status, said.lines))
            processes.append(await bench.start("sleeper", "sh", "-c", "echo begun; exec sleep 600"))

            async def begun():
                return "begun" in processes[0].output

            await bench.until("it begins", "begun", begun)
            processes[0].send(signal.SIGSTOP)

    notes = made(take).conduct(tmp_path)
    assert notes.steps[0].as_expected
    assert not processes[0].running
    assert (tmp_path / "transcript.txt").read_text() == "$ sh -c 'echo a line; exit 3'\na line\n[3]\n\n"


def test_what_never_comes_is_a_missed_step(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.claims.scenarios.workbench.PATIENCE_S", 0.0)

    async def take(notes):
        async def never():
            return False

        async with Workbench(notes) as bench:
            with pytest.raises(StepMissedError):
                await bench.until("it comes", "it", never)

    notes = made(take).conduct(tmp_path)
    assert str(notes.steps[0]) == "it comes: expected it, found not within 0 s"


def test_a_relay_passes_all_bytes_on_and_shows_what_can_be_read_of_them():
    heard = []

    async def answer(reader, writer):
        heard.append((writer.get_extra_info("peername")[0], await reader.readexactly(8)))
        writer.write(b"welcome")
        writer.close()

    async def scenario():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server, Relay(server.sockets[0].getsockname()[1], "127.0.0.2") as relay:
            host, _, port = relay.address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"my name!")
            assert await reader.read() == b"welcome"
            writer.close()
            assert relay.attempts == 1
            assert relay.readable("name", "secret", "come") == ["name", "come"]

    asyncio.run(scenario())
    assert heard == [("127.0.0.2", b"my name!")]


def test_a_relay_reads_a_text_that_came_in_parts_between_those_of_the_other_direction():
    async def answer(reader, writer):
        while part := await reader.read(100):
            writer.write(part.upper())
        writer.close()

    async def scenario():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server, Relay(server.sockets[0].getsockname()[1]) as relay:
            host, _, port = relay.address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            for part in ("my na", "me"):
                writer.write(part.encode())
                assert await reader.readexactly(len(part)) == part.upper().encode()
            writer.close()
            assert relay.readable("my name", "MY NAME", "my naMY NA") == ["my name", "MY NAME"]

    asyncio.run(scenario())
