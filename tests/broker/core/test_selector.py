"""Selectors: what each expression means, what is refused, and that no text or header breaks one."""

import itertools
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.selector import DEPTH_MAX, SelectorBounds, SelectorError, compile_selector

HEADERS = {
    "destination": "/queue/orders",
    "color": "red",
    "size": "21",
    "ratio": "0.5",
    "ok": "true",
    "empty": "",
    "quote": "it's",
    "a-b": "dash",
    "path": "a%b_c\\d",
    "lines": "one\ntwo",
    "type": "order",
    "correlation-id": "c1",
    "priority": "7",
    "expires": "1234",
    "JMSXGroupID": "g",
    "JMSXGroupSeq": "-1",
    "timestamp": "99",
    "reply-to": "/queue/answers",
    "message-id": "n-1",
}

TRUE = [
    "color = 'red'",
    "  color='red'  ",
    "COLOR IS NULL",  # names have a case, keywords have none
    "color Is Not nuLL",
    "color <> 'blue'",
    "color = color",
    "quote = 'it''s'",
    "\"a-b\" = 'dash'",
    "hyphenated_props:a-b = 'dash'",
    "hyphenated_props:no_hyphenated_props:color = 'red' AND 3-2 = 1",
    "empty = ''",
    "empty IS NOT NULL",
    "TRUE",
    "NOT FALSE",
    "not not true",
    "color = 'blue' OR color = 'red'",
    "TRUE OR FALSE AND FALSE",  # AND binds first
    "NOT color = 'blue' AND TRUE",  # and NOT before AND, but after the comparison
    "(color = 'red') = TRUE",
    "1 + 2 * 3 = 7",
    "(1 + 2) * 3 = 9",
    "10 - 4 - 3 = 3",
    "2 / 4 = 0.5",
    "-7 / 2 = -3.5",
    "2.0 / 4 = .5",
    "- - 1 = 1",
    "0x1F = 31 AND 017 = 15 AND 42L = 42 AND 5. = 5 AND 1E3 = 1000 AND 12e-1 = 1.2",
    "9223372036854775807 + 1 > 9223372036854775806",
    "JMSPriority = 7 AND AMQPriority BETWEEN 5 AND 9",
    "JMSPriority BETWEEN 7 AND 7",
    "JMSPriority NOT BETWEEN 8 AND 9",
    "JMSExpiration = 1234 AND AMQExpiration = 1234",
    "JMSTimestamp = 99 AND AMQTimestamp = 99",
    "JMSType = 'order' AND JMSCorrelationID = 'c1' AND JMSMessageID = 'n-1' AND AMQUserID = 'n-1'",
    "JMSXGroupID = 'g' AND AMQGroupID = 'g' AND JMSXGroupSeq = -1",
    "JMSDeliveryMode = 'PERSISTENT' AND AMQDurable = 'DURABLE'",
    "JMSReplyTo = '/queue/answers' AND JMSDestination = '/queue/orders' AND AMQAddress = 'orders'",
    "color IN ('blue', 'red')",
    "color NOT IN ('blue')",
    "color LIKE 'r%'",
    "color LIKE '%d'",
    "color LIKE '_e_'",
    "color LIKE '%'",
    "color LIKE '%%e%%'",
    "color LIKE 'red'",
    "color NOT LIKE 're'",
    "color NOT LIKE 'R%'",
    "empty LIKE ''",
    "lines LIKE 'one%two'",
    "path LIKE 'a!%b!_c\\d' ESCAPE '!'",
    "path LIKE 'a\\%b\\_c\\\\d' ESCAPE '\\'",
    "size <> 21",  # a string and a number are never equal
    "NOT (size > 18)",
    "convert_string_expressions:size > 18",
    "convert_string_expressions:size = 21 AND ratio < 1 AND size + ratio = 21.5",
    "convert_string_expressions:size BETWEEN 20 AND 22",
    "convert_string_expressions:ok = TRUE AND ok",
    "convert_string_expressions:color <> 3",
    "convert_string_expressions:hyphenated_props:size > 18",
]
FALSE_OR_UNKNOWN = [
    "color = 'blue'",
    "color = 'Red'",
    "FALSE",
    "color IN ('blue', 'green')",
    "color LIKE 'e%'",
    "color LIKE 're_d'",
    "path LIKE 'a!%c' ESCAPE '!'",
    "size > 18",
    "size = 21",
    "size BETWEEN 20 AND 22",
    "size NOT BETWEEN 20 AND 22",
    "ok",
    "ok = TRUE",
    "missing",
    "missing = 'x'",
    "missing <> 'x'",
    "NOT missing = 'x'",
    "NOT missing",
    "missing IN ('x')",
    "missing NOT IN ('x')",
    "missing LIKE '%'",
    "missing NOT LIKE '%'",
    "missing BETWEEN 1 AND 2",
    "missing NOT BETWEEN 1 AND 2",
    "missing + 1 = 1",
    "missing + 1 <> 1",
    "1 / 0 = 1",
    "NOT 1 / 0 = 1",
    "1.0 / 0 = 1",
    "JMSPriority = 4",
    "convert_string_expressions:color > 3",
    "convert_string_expressions:no_convert_string_expressions:size > 18",
]
WRONG = [
    ("", "the selector ends where more is expected"),
    ("color =", "the selector ends where more is expected"),
    ("color = 'red' AND", "the selector ends where more is expected"),
    ("color = = 'red'", "at character 9 of the selector '=' is not expected here"),
    ("color # 3", "at character 7 of the selector '#' begins nothing known"),
    ("color = 'red", 'at character 9 of the selector "\'" begins nothing known'),
    ("'red'", "at character 1 of the selector a text stands where a condition is expected"),
    ("NOT 3", "at character 5 of the selector a number stands where a condition is expected"),
    ("a OR 3 + 4", "at character 6 of the selector a number stands where a condition is expected"),
    ("size > '3'", "at character 8 of the selector a text stands where a number is expected"),
    ("3 = 'red'", "at character 5 of the selector a text is compared with a number"),
    ("1 + TRUE = 2", "at character 5 of the selector a condition stands where a number is expected"),
    ("3 LIKE 'x'", "at character 1 of the selector LIKE is asked of what is no name"),
    ("3 IN ('x')", "at character 1 of the selector IN is asked of what is no name"),
    ("3 IS NULL", "at character 1 of the selector IS NULL is asked of what is no name"),
    ("size IN (3)", "at character 10 of the selector '3' is not expected here"),
    (
        "a LIKE 'x' ESCAPE 'yz'",
        "at character 19 of the selector ESCAPE is not followed by one character in quotes",
    ),
    ("a = 08", "at character 5 of the selector '08' is no number of 64 bits"),
    ("a = 1e999", "at character 5 of the selector '1e999' is no number of 64 bits"),
    (
        "a = 9223372036854775808",
        "at character 5 of the selector '9223372036854775808' is no number of 64 bits",
    ),
    ("hyphenated_props:a @ b", "at character 20 of the selector '@' begins nothing known"),
    ("a = 1 = 2", "at character 7 of the selector '=' is not expected here"),
]  # fmt: skip


@pytest.mark.parametrize("text", TRUE)
def test_what_holds(text):
    assert compile_selector(text).matches(HEADERS)


@pytest.mark.parametrize("text", FALSE_OR_UNKNOWN)
def test_what_does_not_hold_or_is_not_known(text):
    assert not compile_selector(text).matches(HEADERS)


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_no_selector_is_refused_with_its_place(text, said):
    with pytest.raises(SelectorError) as error:
        compile_selector(text)
    assert str(error.value) == said


def test_a_message_that_says_nothing_has_the_defaults_of_jms():
    assert compile_selector("JMSPriority = 4 AND JMSExpiration = 0 AND JMSTimestamp IS NULL").matches({})


TRUTHS = {"T": "TRUE", "F": "FALSE", "?": "missing"}


def holds(text):
    """The truth value: T, F, or ? where neither the expression nor its negation holds."""
    if compile_selector(text).matches({}):
        return "T"
    return "F" if compile_selector(f"NOT ({text})").matches({}) else "?"


@pytest.mark.parametrize(
    ("word", "table"),
    [("AND", {"TT": "T", "T?": "?", "??": "?"}), ("OR", {"FF": "F", "F?": "?", "??": "?"})],
)
def test_the_truth_tables(word, table):
    for left, right in itertools.product("TF?", repeat=2):
        expected = table.get(left + right) or table.get(right + left) or ("F" if word == "AND" else "T")
        assert holds(f"{TRUTHS[left]} {word} {TRUTHS[right]}") == expected, (left, word, right)


def test_the_truth_table_of_not():
    assert [holds(f"NOT {TRUTHS[value]}") for value in "TF?"] == ["F", "T", "?"]


def test_equal_are_those_that_say_the_same_in_other_words():
    one = compile_selector("color  in ('red','blue') and size>3.0")
    other = compile_selector("((color IN ('blue', 'red')) AND (size > 3.00))")
    assert one == other
    assert len({one, other}) == 1
    assert one != compile_selector("convert_string_expressions:color IN ('red','blue') AND size > 3.0")


def test_selectors_that_say_the_same_are_one_object_as_long_as_somebody_has_it():
    one = compile_selector("color = 'red' AND size > 3")
    assert compile_selector("color = 'red' AND size > 3") is one
    assert compile_selector("(color='red')  and  (size > 3)") is one
    assert compile_selector("color = 'red' AND size > 4") is not one


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a", 1),
        ("a = 'x'", 3),
        ("NOT a", 2),
        ("a IN ('x', 'y', 'z')", 2),
        ("a LIKE 'x%'", 2),
        ("a + 1 > 2", 5),
        ("a BETWEEN 1 AND 2", 7),
        ("a OR b OR c", 4),
    ],
)
def test_the_terms_of_a_selector(text, terms):
    assert compile_selector(text).terms == terms


def test_bounds_on_what_anybody_may_send():
    deep = compile_selector("(" * DEPTH_MAX + "a = '1'" + ")" * DEPTH_MAX)
    assert deep.matches({"a": "1"})
    with pytest.raises(SelectorError, match=f"parentheses are more than {DEPTH_MAX} deep"):
        compile_selector("(" * (DEPTH_MAX + 1) + "a = '1'" + ")" * (DEPTH_MAX + 1))
    bounds = SelectorBounds(characters=30, terms=7)
    with pytest.raises(SelectorError, match=r"31 characters: at most 30 .*acceptor.max-selector-characters"):
        compile_selector("a = '" + "x" * 25 + "'", bounds)
    assert compile_selector("a = 1 OR b = 2", bounds).terms == 7
    with pytest.raises(SelectorError, match=r"more than 7 .*acceptor.max-selector-terms"):
        compile_selector("NOT a=1 OR b=2", bounds)
    known = compile_selector("NOT a=1 OR b=2")
    assert known.terms == 8
    with pytest.raises(SelectorError, match=r"more than 7 .*acceptor.max-selector-terms"):
        compile_selector("NOT a=1 OR b=2", bounds)
    for long in (
        "NOT " * 1020 + "TRUE",
        "- " * 2000 + "1 = 1",
        "a='1'OR " * 500 + "TRUE",
        "1*" * 2000 + "1=1",
    ):
        assert compile_selector(long).matches({})
    with pytest.raises(SelectorError):
        compile_selector("(" * 4096)


def test_a_deep_selector_is_evaluated_far_below_the_limit_of_recursion():
    text = "a"
    for _ in range(DEPTH_MAX):
        text = f"(NOT a OR b AND {text} = TRUE)"
    selector = compile_selector(text)
    limit = sys.getrecursionlimit()
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(depth + 250)
    try:
        assert selector.matches({"a": "x", "b": "y"})
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("pattern", ["%a" * 1000 + "%b", "%" + "a" * 2000 + "%c", "%_" * 1000 + "%b"])
def test_like_does_not_backtrack(pattern):
    selector = compile_selector(f"a LIKE '{pattern}'")
    begun = time.process_time()
    assert not selector.matches({"a": "a" * 65_000})
    assert time.process_time() - begun < 5, "milliseconds here; with backtracking longer than anybody waits"


# ---------------------------------------------------------------------------------------- at random

names = st.sampled_from(["a", "b", "missing", "JMSPriority", '"x-y"'])
texts = st.text("ab%_'", max_size=4).map(lambda text: "'" + text.replace("'", "''") + "'")
integers = st.integers(0, 100)
numbers = st.one_of(integers.map(str), st.floats(0, 100).map(repr), names)
sums = st.recursive(
    numbers,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: f"({' '.join(parts)})"),
    max_leaves=4,
)
simple = st.one_of(
    st.tuples(sums, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), sums).map(" ".join),
    st.tuples(names, st.sampled_from(["=", "<>"]), texts).map(" ".join),
    st.tuples(names, st.sampled_from(["IN", "NOT IN"]), st.lists(texts, min_size=1, max_size=3)).map(
        lambda parts: f"{parts[0]} {parts[1]} ({', '.join(parts[2])})"
    ),
    st.tuples(names, st.sampled_from(["LIKE", "not like"]), texts).map(" ".join),
    st.tuples(names, st.sampled_from(["IS NULL", "is not null"])).map(" ".join),
    st.tuples(sums, st.sampled_from(["BETWEEN", "NOT BETWEEN"]), sums, sums).map(
        lambda parts: f"{parts[0]} {parts[1]} {parts[2]} AND {parts[3]}"
    ),
    st.sampled_from(["TRUE", "FALSE", "a"]),
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=6,
)
some_headers = st.dictionaries(
    st.sampled_from(["a", "b", "x-y", "priority"]),
    st.one_of(st.text("ab%_'1.5e", max_size=4), st.text(max_size=3)),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["", "convert_string_expressions:"]), conditions, some_headers)
def test_the_normalized_text_means_the_same(prefix, text, headers):
    selector = compile_selector(prefix + text)
    again = compile_selector(selector.text)
    assert again == selector
    assert again.matches(headers) == selector.matches(headers)
    refuted = compile_selector(f"{prefix}NOT ({text})").matches(headers)
    assert not (selector.matches(headers) and refuted)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), some_headers)
def test_no_text_does_more_than_be_refused(text, headers):
    try:
        selector = compile_selector(text)
    except SelectorError:
        return
    selector.matches(headers)


WORDS = ["a", "b", "1", "'x'", "(", ")", "AND", "OR", "NOT", "=", "<", "+", "-", "*", "/", "IN", "LIKE"]
MORE_WORDS = ["IS", "NULL", "BETWEEN", "ESCAPE", ",", "TRUE", "0x", "''", '"', "."]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(WORDS + MORE_WORDS), max_size=20))
def test_no_order_of_words_does_more_than_be_refused(words):
    try:
        selector = compile_selector(" ".join(words))
    except SelectorError:
        return
    selector.matches({"a": "1"})
