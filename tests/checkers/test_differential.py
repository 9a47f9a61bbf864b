"""Two implementations, one verdict: Spark and the reference agree on hundreds of damaged histories.

Hypothesis draws batches; each batch is judged by one set of Spark jobs, told apart by a ``run`` column, so that several hundred
histories cost little more than one.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
from checker_rows import file_instances, spark_instances
from damaged import DAMAGE, correct, damage, histories
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from checkers import reference
from checkers.anomaly import looked_for
from checkers.verdict import CheckOptions, Promises

OPTIONS = CheckOptions(unavailable_bound_s=2.0, recovery_bound_s=1.0)
BROKERS = (
    Promises(),
    Promises(delivery_attempts=1),
    Promises(nack="dead-letter", durable_acks=False),
    Promises(nack="consume", delivery_attempts=0, keeps_dead_letters=False, refuses_stale_acks=False),
    Promises(answers_in_order=False),
)
EVERY_KIND = looked_for(OPTIONS)


@pytest.mark.spark
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(st.lists(histories, min_size=200, max_size=200))
def test_both_implementations_find_the_same_in_damaged_histories(spark, batch):
    agree(spark, batch)


def damaged(seeds):
    for seed in seeds:
        chance = random.Random(seed)
        edits = [
            (chance.choice(sorted(DAMAGE)), chance.randrange(10_000)) for _ in range(chance.randint(1, 6))
        ]
        yield damage(correct(seed + 5_000, transactions=bool(seed % 2)), edits)


@pytest.mark.parametrize("slice_rows", [1_000_000, 7])
def test_they_agree_on_files_too_whole_or_in_slices(tmp_path, slice_rows):
    """The same work as Spark's tasks do, done here: cheap enough for thousands."""
    for number, rows in enumerate(damaged(range(800))):
        options = msgspec.structs.replace(OPTIONS, broker=BROKERS[number % len(BROKERS)])
        found = file_instances(tmp_path / str(number), rows, options, slice_rows=slice_rows)
        assert_same(found, rows, options)


def agree(spark, batch):
    by_spark = spark_instances(spark, batch, OPTIONS)
    for rows, found in zip(batch, by_spark, strict=True):
        assert_same(found, rows)


def assert_same(found, rows, options=OPTIONS):
    expected = set(reference.find(rows, options))
    assert found == expected, "\n".join(
        [
            "columns alone:",
            *map(str, found - expected),
            "reference alone:",
            *map(str, expected - found),
            "rows:",
            *map(str, rows),
        ]
    )


def test_the_generator_reaches_every_kind_of_finding():
    seen: Counter[str] = Counter()
    for seed in range(1500):
        chance = random.Random(seed)
        edits = [
            (chance.choice(sorted(DAMAGE)), chance.randrange(10_000)) for _ in range(chance.randint(1, 6))
        ]
        rows = damage(correct(seed, transactions=bool(seed % 2)), edits)
        seen.update(
            {
                name
                for i in reference.find(rows, OPTIONS)
                for name in (i.name, i.key if i.name == "lost" else i.name)
            }
        )
    for name in (*EVERY_KIND, "never delivered", "after delivery"):
        assert seen[name] >= 3, (name, seen)


@pytest.mark.parametrize("transactions", [False, True])
def test_nothing_is_found_in_histories_of_a_correct_broker(transactions):
    for seed in range(300):
        rows = correct(seed, transactions=transactions)
        patient = CheckOptions(unavailable_bound_s=1000, recovery_bound_s=1000)
        assert reference.find(rows, patient) == [], seed
