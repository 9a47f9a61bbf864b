"""What the documents claim is run and held against what came out.

As expected, not as expected, not to be said.
"""

import asyncio
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from checkers.schema import HARNESS, MONITOR, NEMESIS
from harness.claims import runner
from harness.claims.ran import Ran
from harness.claims.scenarios import PROBES, SCENARIOS, Roles, named, registry
from harness.claims.systems.choice import choose
from harness.commands import cli
from harness.history import judge as judging
from harness.interface import OWN, UsageError
from harness.run import session


def fault(kind, *nodes, label="1"):
    value = json.dumps({"label": label, "nodes": list(nodes), "links": [], "bit": True})
    return {"process": NEMESIS, "type": "invoke", "f": kind, "broker": None, "role": None, "value": value}


def role(broker, name):
    return {"process": MONITOR, "type": "info", "f": "role", "broker": broker, "role": name, "value": None}


HEAL = {"process": HARNESS, "type": "info", "f": "phase", "broker": None, "role": None, "value": "heal"}


def test_a_takeover_after_the_first_fault_is_seen():
    rows = [role("a1", "live"), fault("kill", "a1"), role("a1", "stopped"), role("a2", "live"), HEAL]
    assert Roles(live=("a2",)).wrong(rows) == ""
    assert Roles(never_live=("a2",)).wrong(rows) == "a2 became live"


def test_a_life_before_the_first_fault_or_after_the_healing_counts_for_nothing():
    rows = [role("a1", "live"), fault("kill", "a1"), HEAL, role("a2", "live")]
    assert Roles(live=("a1", "a2")).wrong(rows) == "a1 did not become live; a2 did not become live"
    assert Roles(never_live=("a1", "a2")).wrong(rows) == ""


def test_who_was_killed_did_not_end_itself_and_who_was_cut_off_did():
    killed = [fault("kill", "a1"), role("a1", "stopped"), HEAL]
    cut = [fault("partition"), role("a1", "stopped"), HEAL]
    assert Roles(ended=("a1",)).wrong(killed) == "a1 did not end itself"
    assert Roles(ended=("a1",)).wrong(cut) == ""


def test_roles_are_told_in_words():
    expected = Roles(live=("a2", "b2"), never_live=("c2",), ended=("a1",))
    assert str(expected) == "a2 and b2 become live; c2 never becomes live; a1 ends itself"


def test_a_word_chooses_a_scenario_a_row_or_a_family():
    assert [each.id for each in registry.chosen(["rp14-true"])] == ["RP14-true"]
    assert [each.id for each in registry.chosen(["RP14"])] == ["RP14-false", "RP14-true"]
    chosen = [each.id for each in registry.chosen(["RP1", "RP10"])]
    assert chosen == ["RP1", "RP1-large", "RP1-paging", "RP10-inside", "RP10-outside", "RP10-wait"]
    assert {each.row for each in registry.chosen(["RP"])} == {f"RP{number}" for number in range(1, 21)}
    assert registry.chosen([]) == (*SCENARIOS, *registry.OTHERS_ONLY, *PROBES)


def test_a_claim_that_does_not_exist_is_refused_with_the_near_one():
    with pytest.raises(UsageError, match='unknown claim "RP14-treu": did you mean "RP14-true"'):
        registry.chosen(["RP14-treu"])


def test_a_family_or_a_row_without_a_scenario_is_refused_by_its_name():
    family = next(name for name in registry.missing() if name in registry.FAMILIES)
    with pytest.raises(UsageError, match=f"{family}, .*: no scenario exists yet"):
        registry.chosen([family])
    with pytest.raises(UsageError, match=f"{family}1, .*: no scenario exists yet"):
        registry.chosen([f"{family}1"])
    with pytest.raises(UsageError, match=f'unknown claim "{family}99"'):
        registry.chosen([f"{family}99"])


OURS = ["TX5"]
"""Rows that no document has."""


@pytest.mark.parametrize(
    ("family", "rows"),
    [("SS", 10), ("RP", 20), ("TX", 4), ("DS", 4), ("LO", 9), ("CO", 2), ("CL", 21), ("CV", 19), ("HA", 12),
     ("MI", 6)],
)  # fmt: skip
def test_each_family_has_the_rows_of_the_documents(family, rows):
    for row in range(1, rows + 1):
        assert not unknown(f"{family}{row}")
    ours = [row for row in OURS if row.startswith(family)]
    assert not any(map(unknown, ours))
    assert unknown(f"{family}{rows + len(ours) + 1}")


def unknown(word):
    """Whether it is no claim at all, not one that has no scenario yet."""
    try:
        registry.chosen([word])
    except UsageError as error:
        return str(error).startswith("unknown claim")
    return False


def test_rows_without_a_scenario_are_named_also_where_their_family_has_some():
    rows = {each.row for each in (*SCENARIOS, *registry.OTHERS_ONLY, *PROBES)}
    named_rows = {
        row for key in registry.missing() for row in key.split(", ") if row not in registry.FAMILIES
    }
    assert not rows & named_rows
    for row in named_rows:
        assert any(other.startswith(row.rstrip("0123456789")) for other in rows)


def test_ids_are_unique_and_every_family_is_known():
    everything = registry.chosen([])
    assert len({each.id for each in everything}) == len(everything)
    assert {each.row.rstrip("0123456789") for each in everything} <= set(registry.FAMILIES)


def test_a_row_that_brokers_of_own_cannot_run_yet_says_what_they_lack_and_runs_with_others(
    capsys, monkeypatch
):
    assert not any(each.own_lacks for each in SCENARIOS)
    waiting = msgspec.structs.replace(named("CV13-flow"), id="LO1-made", own_lacks="limit")
    monkeypatch.setattr(registry, "OTHERS_ONLY", (waiting,))
    choice = choose(registry.chosen(["CL5", "LO1-made"]), OWN)
    assert {each.row for each in choice.rows} == {"CL5"}
    assert choice.left_out == {"brokers of own have no limit": ["LO1-made"]}
    assert "CV13-flow" in {each.id for each in choose(registry.chosen(["CV13"]), "openmq").rows}
    for more in ([], ["--refute"]):
        assert cli.run(["claims", "LO1-made", *more]) == 254
        err = capsys.readouterr().err
        assert "left out: LO1-made: brokers of own have no limit" in err
        assert "none of the chosen rows can run with it" in err


def request(tmp_path, *scenarios, **options):
    return runner.ClaimsRequest(
        scenarios=scenarios, environment="simulation", root=tmp_path / "store", **{"runs": 1, **options}
    )


@pytest.mark.spark
def test_claims_as_expected_end_with_0_and_a_table(tmp_path, capsys):
    table = tmp_path / "claims.md"
    asked = request(tmp_path, named("RP1"), named("RP4"), render=table)
    assert runner.run(asked) == judging.VALID
    said = capsys.readouterr().out
    assert "RP1  as expected: nothing" in said
    assert "2 of 2 scenarios of 2 claims as expected, 1 run each, simulation" in said
    assert (
        "| RP4 | one pair cannot avoid network isolation | AMQ 17.3.1.3 | split-brain; a2 becomes live |"
        in table.read_text()
    )


@pytest.mark.spark
def test_a_claim_that_is_refuted_ends_with_1_and_names_the_evidence(tmp_path, capsys):
    wrong = msgspec.structs.replace(named("RP1"), required=("lost",), roles=Roles(never_live=("a2",)))
    assert runner.run(request(tmp_path, wrong, as_json=True)) == judging.INVALID
    captured = capsys.readouterr()
    assert "NOT AS EXPECTED" in captured.err
    (told,) = json.loads(captured.out)["scenarios"]
    assert told["problems"] == ["found nothing and none of lost; a2 became live"]
    assert told["stores"][0].startswith(str(tmp_path / "store"))


@pytest.mark.parametrize(
    ("runs", "told"), [(1, "UNKNOWN\n"), (2, "1 of 2 as expected, 1 unknown: nothing 1, unknown 1\n")]
)
def test_a_run_of_which_nothing_can_be_said_is_not_otherwise(tmp_path, monkeypatch, capsys, runs, told):
    unknown = Ran(problem="the run ended unknown: fault 2 (slow): no sch_netem", undecided=True)
    came = iter([unknown, Ran(problem="")])
    monkeypatch.setattr(runner, "once", lambda *_: next(came))
    asked = request(tmp_path, named("RP3"), runs=runs)
    assert runner.run(asked) == judging.UNKNOWN
    said = capsys.readouterr().out
    assert said.startswith(f"RP3  {told}")
    assert "no sch_netem" in said
    assert "0 of 1 scenarios of 1 claims as expected" in said
    assert "; 1 unknown" in said
    assert "NOT AS" not in said


@pytest.mark.spark
def test_a_wrong_role_refutes_a_claim_whose_verdict_is_right(tmp_path):
    wrong = msgspec.structs.replace(named("RP1"), roles=Roles(never_live=("a2",)))
    ran = runner.once(wrong, "simulation", 0, tmp_path)
    assert ran.problem == "a2 became live"
    assert not ran.undecided


def test_the_page_of_claims_has_every_scenario_as_it_is_today():
    page = (Path(__file__).parents[2] / "docs" / "claims.md").read_text()
    for each in (*SCENARIOS, *PROBES):
        assert f"| {each.id} | {each.claim} | {each.source} | {each.expected} |" in page, (
            "run: jepsen-run claims --render docs/claims.md"
        )


def test_who_interrupts_when_a_run_is_judged_makes_no_other(tmp_path, monkeypatch):
    """While its cluster is removed, which is done all the same."""
    removed, dismantle = [], session._Attempt._dismantle

    async def interrupted(self, life):
        while not self._ending:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        while not self.interrupted:
            await asyncio.sleep(0.01)
        await dismantle(self, life)
        removed.append(life)

    monkeypatch.setattr(session._Attempt, "_dismantle", interrupted)
    scenario = named("RP13-right")
    with pytest.raises(KeyboardInterrupt):
        runner.once(scenario, "simulation", 1, tmp_path)
    assert removed
