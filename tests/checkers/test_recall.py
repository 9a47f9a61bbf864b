"""What is planted in simulated brokers is found, by the columns and by the reference."""

from __future__ import annotations

import pytest
from innocent_cluster import World
from innocent_cluster.misdeeds import MISDEEDS

from bench.recall import main, recall_of


@pytest.mark.parametrize("planted", [1, pytest.param(5, marks=pytest.mark.in_turn)])
@pytest.mark.parametrize("name", sorted(MISDEEDS))
@pytest.mark.slow
def test_every_misdeed_is_found(name, planted):
    recall = recall_of(name, planted)
    assert recall.planted == planted
    assert recall.is_complete, recall


def test_a_misdeed_is_planted_only_where_it_is_named():
    world = World(0)
    world.run()
    assert not world.culprit.is_guilty


def test_what_is_missed_is_told_with_its_seeds(monkeypatch, capsys):
    monkeypatch.setattr("bench.recall.by_reference", lambda *_: set())
    assert main(["--planted", "1", "--misdeed", "changes a body"]) == 1
    said = capsys.readouterr().out
    assert "changes a body" in said
    assert "(missed: seeds" in said
