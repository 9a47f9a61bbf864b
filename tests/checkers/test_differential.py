"""Two implementations, one verdict: Spark and the reference agree on hundreds of damaged histories.

Hypothesis draws batches; each batch is judged by one set of Spark jobs, told apart by a ``run``
column, so that several hundred histories cost little more than one.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
from bank_histories import banks, damaged_banks
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
    Promises(delivery_attempts=1, most_attempts=2),
    Promises(nack="dead-letter", durable_acks=False),
    Promises(nack="consume", delivery_attempts=0, keeps_dead_letters=False, refuses_stale_acks=False),
    Promises(delivery_attempts=2, attempts="given back", keeps_dead_letters=False),
    Promises(answers_in_order=False, atomic=False),
    Promises(marks_redeliveries="same-process"),
    Promises(marks_redeliveries="never", counts="given back"),
    Promises(single=False, redelivery_s=0.1),
)
ELSEWHERE = ("not-subscribed", "priority-inversion", "internal-error")
"""``test_subscriptions``, ``test_priorities`` and ``test_reach`` have them."""
EVERY_KIND = looked_for(OPTIONS)
FORMS = (
    *((name, "") for name in EVERY_KIND if name not in ELSEWHERE),
    ("lost", "never delivered"),
    ("lost", "after delivery"),
    ("lost", "refused too often"),
    *(
        (name, seen)
        for name in ("phantom", "corrupted", "aborted-delivery")
        for seen in ("deliver", "browse")
    ),
    ("phantom", "ack"),
    ("resurrected", "acknowledged"),
    ("resurrected", "in two places"),
    ("double-delivery", "settled twice"),
    ("double-delivery", "held twice"),
    ("not-linearizable", "never"),
    ("not-linearizable", "later"),
    ("not-linearizable", "committed later"),
    ("late-delivery", "unsubscribe"),
    ("late-delivery", "disconnect"),
    *(("torn-transaction", f) for f in ("send", "ack")),
    *(
        ("zombie", f)
        for f in ("send", "ack", "nack", "commit", "abort", "subscribe", "unsubscribe", "deliver")
    ),
)
"""Every kind of finding, and of those that can come about in several ways each way, that the two
must have agreed on at least once.
"""


@pytest.mark.spark
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(st.lists(histories | banks, min_size=200, max_size=200))
def test_both_implementations_find_the_same_in_damaged_histories(spark, batch):
    """It takes some 20 s: 200 histories for each example, in one job, and each again by itself."""
    agree(spark, batch)


def damaged(seeds):
    for seed in seeds:
        chance = random.Random(seed)
        edits = [
            (chance.choice(sorted(DAMAGE)), chance.randrange(10_000)) for _ in range(chance.randint(1, 6))
        ]
        if seed % 4 == 3:  # which takes a late commit and two producers
            edits.insert(0, ("commit_later", seed))
        yield damage(correct(seed + 5_000, transactions=bool(seed % 2)), edits)


@pytest.mark.long
@pytest.mark.in_turn
def test_they_agree_on_files_too_whole_or_in_slices(tmp_path):
    """The same work as Spark's tasks do, done here: cheap enough for hundreds.

    It takes some 20 s: findings of every form must be among them, and some forms are rare.
    """
    agreed: Counter[tuple[str, str]] = Counter()
    for number, rows in enumerate([*damaged(range(1050, 1850)), *damaged_banks([*range(77), 262, 307, 510])]):
        guarantee = "at-least-once" if number % 10 else "at-most-once"
        options = msgspec.structs.replace(OPTIONS, broker=BROKERS[number % len(BROKERS)], guarantee=guarantee)
        slice_rows = 7 if number // len(BROKERS) % 2 else 1_000_000
        found = file_instances(tmp_path / str(number), rows, options, slice_rows=slice_rows)
        assert_same(found, rows, options)
        agreed.update({form for instance in found for form in forms(instance, rows)})
    assert set(FORMS) - set(agreed) == set()


def forms(instance, rows):
    """The name of a finding, alone and with the way in which it came about."""
    name = instance.name
    yield name, ""
    shown = next(r for r in rows if r["index"] == instance.index)
    settled = {
        r.get("session")
        for r in rows
        if (r["f"], r["type"], r.get("message")) == ("ack", "ok", instance.message)
    }
    if name == "lost":
        yield name, instance.key
    elif name == "resurrected":
        yield name, "acknowledged" if settled else "in two places"
    elif name == "double-delivery":
        yield name, "settled twice" if len(settled) > 1 else "held twice"
    elif name == "not-linearizable":
        late = int(instance.key)
        got = any((r["f"], r.get("message")) == ("deliver", late) for r in rows)
        yield name, "later" if got else "never"
        sent = {r["message"]: r["index"] for r in rows if r["f"] == "send" and r["type"] == "invoke"}
        stored = [r["index"] for r in rows if (r["f"], r["type"], r.get("message")) == ("send", "ok", late)]
        if any(sent[instance.message] < at for at in stored):
            yield name, "committed later"
    elif name == "late-delivery":
        ended = [
            r["f"]
            for r in rows
            if r["f"] in ("unsubscribe", "disconnect")
            and r["type"] != "invoke"
            and r.get("session") == shown["session"]
            and r["index"] < instance.index
        ]
        yield from ((name, f) for f in ended[:1])
    else:
        yield name, shown["f"]


def agree(spark, batch):
    by_spark = spark_instances(spark, batch, OPTIONS)
    for rows, found in zip(batch, by_spark, strict=True):
        assert_same(found, rows)


def assert_same(found, rows, options=OPTIONS):
    # Columns count every second delivery and leave it to who judges whether that is a finding.
    expected = {i for i in reference.find(rows, options) if i.name != "redelivery"}
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


@pytest.mark.parametrize("transactions", [False, True])
def test_nothing_is_found_in_histories_of_a_correct_broker(transactions):
    for seed in range(300):
        rows = correct(seed, transactions=transactions)
        patient = CheckOptions(unavailable_bound_s=1000, recovery_bound_s=1000)
        assert reference.find(rows, patient) == [], seed
