"""Patterns of names: what matches, and which patterns match together."""

import itertools
import random

import pytest

from broker import name_patterns
from broker.name_patterns import TooManyOverlapsError, matches, overlaps


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("#", ["a", "a.b", "a.b.c"], []),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab", "b.a"]),
        ("a.*", ["a.b"], ["a", "a.b.c"]),
        ("*.b", ["a.b"], ["b", "a.c"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "a.b", "z"]),
        ("a.*.#", ["a.b", "a.b.c"], ["a"]),
        ("orders", ["orders"], ["orders.x", "order"]),
    ],
)
def test_wildcards(pattern, yes, no):
    assert all(matches(pattern, name) for name in yes)
    assert not any(matches(pattern, name) for name in no)


@pytest.mark.parametrize(("most", "words"), [(2, 3), (4, 2)])
def test_patterns_overlap_as_trying_all_names_says(most, words):
    """Names of up to five words, of the three that patterns name and one that none names."""
    names = [".".join(name) for length in range(1, 6) for name in itertools.product("abc_", repeat=length)]
    chance = random.Random(29)
    for _ in range(50):
        patterns = [
            ".".join(chance.choices("abc*#", k=chance.randint(1, words)))
            for _ in range(chance.randint(1, most))
        ]
        matching = {
            frozenset(number for number, pattern in enumerate(patterns) if matches(pattern, name))
            for name in names
        }
        assert overlaps(patterns) == matching, patterns


def test_many_names_take_few_steps_and_what_takes_too_many_is_refused(monkeypatch):
    monkeypatch.setattr(name_patterns, "PLACES_MAX", 50_000)
    assert len(overlaps(["#", *(f"queue{n}.of.many" for n in range(2000))])) == 2001
    with pytest.raises(TooManyOverlapsError):
        overlaps([f"#.{letter}.#" for letter in "abcdefghijklmno"])
