"""The search finds each bug that was put in, and says nothing of the kind about the broker without
it.

Each mutant has a recorded schedule (``bench/mutants.py --record``), a file that ``jepsen-run
replay`` takes. Should a change elsewhere in the product have turned that history into another one,
a few more schedules are tried; a mutant that none of them finds is one that the product no longer
notices.
"""

import contextlib
import json
from pathlib import Path

import pytest
import share

from mutants.clone import replay
from mutants.registry import MUTANTS
from mutants.workshop import Workshop

RECORDED = Path(__file__).parent / "recorded"
TRIES = 10
REPLAYED = ("recovery-forgets-the-last-record", "client-takes-unknown-for-failed")
"""A bug of the brokers and one of a client; ``bench/mutants.py --replay`` does it with all."""


@pytest.fixture(scope="module")
def sound():
    """Products without a bug, by what their clients do."""
    with contextlib.ExitStack() as stack:
        workshops = {}

        def workshop(clients):
            if clients not in workshops:
                workshops[clients] = stack.enter_context(Workshop(clients))
            return workshops[clients]

        yield workshop


def recorded(mutant):
    return json.loads((RECORDED / f"{mutant.name}.json").read_bytes())


def hunted(workshop, mutant):
    """What the recorded schedule shows, or the first of a few others that shows an expected
    anomaly.
    """
    known = recorded(mutant)
    answer = workshop.ask(spec=known["spec"], schedule=known["schedule"])
    if not mutant.anomalies & answer["anomalies"].keys():
        answer = workshop.ask(
            arena=mutant.name, seed=0, anomalies=sorted(mutant.anomalies), first=0, budget=TRIES
        )
    return answer


def pytest_generate_tests(metafunc):
    if "mutant" in metafunc.fixturenames:
        share.parametrize(metafunc, "mutant", MUTANTS, share.few)


def test_the_bug_is_found_and_the_sound_broker_is_clean_on_the_same_schedule(mutant, sound):
    with Workshop((*mutant.arena.clients, *mutant.replacements)) as workshop:
        found = hunted(workshop, mutant)
    assert mutant.anomalies & found["anomalies"].keys(), found
    clean = sound(mutant.arena.clients).ask(spec=found["spec"], schedule=found["schedule"])
    assert not mutant.anomalies & clean["anomalies"].keys(), clean
    assert clean["valid"] is not False, clean


@pytest.mark.parametrize("name", REPLAYED)
def test_the_command_line_reproduces_the_bug_byte_for_byte_where_it_is_and_only_there(name, tmp_path):
    mutant, path = MUTANTS[name], tmp_path / "repro.json"
    bug = (*mutant.arena.clients, *mutant.replacements)
    with Workshop(bug) as workshop:
        found = hunted(workshop, mutant)
        path.write_text(json.dumps(workshop.ask(spec=found["spec"], schedule=found["schedule"], origin=name)))
    broken = replay(path, bug)
    assert broken.reproduced, broken.words
    assert "byte for byte" in broken.words
    sound = replay(path, mutant.arena.clients)
    assert sound.not_reproduced, sound.words


def test_every_mutant_has_a_recorded_schedule():
    assert {path.stem for path in RECORDED.glob("*.json")} == set(MUTANTS)
