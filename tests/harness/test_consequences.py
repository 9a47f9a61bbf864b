"""A finding follows from a split brain only if its rows lie in it."""

import pytest
from scene import Scene

from harness.report.consequences import grouped

OTHER = "fedcba9876543210"


def pair(until_s):
    """A pair of which a2 is live, too, from 1.5 s until a1 stops (None: never)."""
    scene = Scene(a1="live", a2="backup")
    scene.send(1.0, 3)
    scene.deliver(1.1, 3, 1)
    scene.ack(1.2, 3, 1)
    scene.role(1.5, "a2", "live")
    if until_s is not None:
        scene.role(until_s, "a1", "stopped")
    return scene


def groups(scene, *, count=1):
    """The findings of a scene by their root, and the words about the duplicate."""
    found = [scene.finding("split-brain"), scene.finding("duplicate", count=count)]
    made = grouped(found, [row for row in scene.rows if row["process"] < 0])
    names = {group.root.name: [one.finding.name for one in group.consequences] for group in made}
    return names, "".join(one.words for group in made for one in group.consequences)


def test_a_duplicate_between_the_two_live_brokers_follows_from_their_split_brain():
    scene = pair(until_s=5.0)
    scene.deliver(4.0, 3, 2, "a2")
    scene.end(9.0)
    names, words = groups(scene)
    assert names == {"split-brain": ["duplicate"]}
    assert words == "Follows from the split brain: it happened at a1 and a2 while both were live."


@pytest.mark.parametrize("at_s", [1.45, 6.0])
def test_a_duplicate_before_or_after_the_split_brain_stands_for_itself(at_s):
    scene = pair(until_s=5.0)
    scene.deliver(at_s, 3, 2, "a2")
    scene.end(9.0)
    assert groups(scene) == ({"split-brain": [], "duplicate": []}, "")


@pytest.mark.parametrize(("first", "second"), [("b1", "b1"), ("a1", "b1"), ("b1", "a2"), ("a1", None)])
def test_a_duplicate_of_another_pair_stands_for_itself(first, second):
    scene = pair(until_s=5.0)
    scene.role(1.6, "b1", "live", node_id=OTHER)
    scene.send(2.0, 4, first, group="h")
    scene.deliver(2.1, 4, 3, first, group="h")
    scene.ack(2.2, 4, 3, first, group="h")
    scene.deliver(3.0, 4, 4, second, group="h")
    scene.end(9.0)
    assert groups(scene) == ({"split-brain": [], "duplicate": []}, "")


def test_of_many_only_the_one_that_is_shown_follows_unless_no_other_can_be_elsewhere():
    for until_s, words in ((5.0, "The first, which is shown, follows"), (None, "all 7 happened")):
        scene = pair(until_s=until_s)
        scene.deliver(4.0, 3, 2, "a2")
        scene.end(9.0)
        assert words in groups(scene, count=7)[1]
    scene = pair(until_s=None)
    scene.role(1.6, "b1", "live", node_id=OTHER)
    scene.deliver(4.0, 3, 2, "a2")
    scene.end(9.0)
    assert "The first, which is shown, follows" in groups(scene, count=7)[1]


def test_without_a_split_brain_nothing_follows():
    scene = pair(until_s=5.0)
    scene.deliver(4.0, 3, 2, "a2")
    duplicate = scene.finding("duplicate")
    made = grouped([duplicate], [row for row in scene.rows if row["process"] < 0])
    assert [(group.root, group.consequences) for group in made] == [(duplicate, ())]


def test_kinds_that_two_lives_do_not_explain_stand_for_themselves():
    scene = pair(until_s=5.0)
    scene.deliver(4.0, 3, 2, "a2", digest=8)
    corrupted, split_brain = scene.finding("corrupted"), scene.finding("split-brain")
    made = grouped([corrupted, split_brain], [row for row in scene.rows if row["process"] < 0])
    assert [group.root.name for group in made] == ["split-brain", "corrupted"]
