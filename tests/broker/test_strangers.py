"""What strangers can make a broker write into its log."""

import asyncio
import io
import logging

import pytest

from broker.daemon import set_up_logging
from broker.strangers import (
    LENGTH_MAX,
    LINES_MAX,
    LINES_PER_ADDRESS_MAX,
    PERIOD_S,
    SERIES_MAX,
    SERIES_S,
    StrangerLog,
    address_of,
    printable,
)
from environments.simulation.world import World

LOG = logging.getLogger("tests.strangers")


def logged(caplog, scenario):
    """The lines that a scenario in virtual time leaves."""
    caplog.set_level(logging.WARNING)
    World(1).run(scenario)
    return [record.getMessage() for record in caplog.records if record.name == LOG.name]


def test_a_flood_of_one_address_leaves_a_few_lines_and_its_count(caplog):
    async def scenario():
        log = StrangerLog(LOG, "admin port")
        for number in range(10_000):
            log.tell("10.0.0.1", f"bad {number}")
        await asyncio.sleep(PERIOD_S + 1)

    lines = logged(caplog, scenario)
    assert lines[:-1] == [f"bad {number}" for number in range(LINES_PER_ADDRESS_MAX)]
    assert lines[-1] == "admin port: 9995 more warnings like these in 10 s were not logged"


def test_a_flood_does_not_hide_what_another_address_did(caplog):
    async def scenario():
        log = StrangerLog(LOG, "cluster port")
        for _ in range(1000):
            log.tell("10.0.0.1", "flood")
        log.tell("10.0.0.2", "wrong password")

    assert "wrong password" in logged(caplog, scenario)


def test_a_stranger_that_tries_again_and_again_is_told_of_once_until_it_was_away(caplog):
    async def scenario():
        log = StrangerLog(LOG, "cluster port")
        for _ in range(100):
            log.tell_once("10.0.0.1", "wrong password")
            await asyncio.sleep(PERIOD_S + 1)
        log.tell_once("10.0.0.2", "wrong password of another")
        log.tell_once("10.0.0.1", "wrong version")
        await asyncio.sleep(SERIES_S + 1)
        log.tell_once("10.0.0.1", "wrong password")

    assert logged(caplog, scenario) == [
        "wrong password", "wrong password of another", "wrong version", "wrong password",
    ]  # fmt: skip


def test_a_stranger_that_was_not_told_of_because_of_a_flood_is_told_of_later(caplog):
    async def scenario():
        log = StrangerLog(LOG, "cluster port")
        for _ in range(LINES_PER_ADDRESS_MAX):
            log.tell("10.0.0.1", "flood")
        log.tell_once("10.0.0.1", "wrong password")
        await asyncio.sleep(PERIOD_S + 1)
        log.tell_once("10.0.0.1", "wrong password")

    assert logged(caplog, scenario)[-1] == "wrong password"


def test_so_many_strangers_are_remembered_and_no_more(caplog):
    async def scenario():
        log = StrangerLog(LOG, "cluster port")
        for number in range(SERIES_MAX + 1):
            log.tell_once(f"10.0.{number // 256}.{number % 256}", "wrong password")
            if number % LINES_MAX == LINES_MAX - 1:
                await asyncio.sleep(0.1 + PERIOD_S)
        assert len(log._series) == SERIES_MAX

    logged(caplog, scenario)


def test_many_addresses_together_are_bounded_and_the_next_period_begins_anew(caplog):
    async def scenario():
        log = StrangerLog(LOG, "acceptor")
        for _ in range(2):
            for number in range(1000):
                log.tell(f"10.0.{number // 256}.{number % 256}", "flood")
            await asyncio.sleep(PERIOD_S + 1)

    assert len(logged(caplog, scenario)) == 2 * (LINES_MAX + 1)


def test_a_line_is_not_as_long_as_a_stranger_likes(caplog):
    async def scenario():
        StrangerLog(LOG, "acceptor").tell("10.0.0.1", "x" * 10_000)

    assert [len(line) for line in logged(caplog, scenario)] == [LENGTH_MAX]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain ☃", "plain ☃"),
        ("a\nb\r\0", "a\\nb\\r\\x00"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x85\u2028\u202e", "\\x85\\u2028\\u202e"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_is_not_printable_is_escaped(text, written):
    assert printable(text) == written


def test_nobody_forges_a_line_of_the_log():
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        set_up_logging("a1", "INFO", stream)
        LOG.warning("session %s: refused", "x\n2026 ERROR a1 all is lost\x1b[31m")
    finally:
        root.handlers, root.level = handlers, level
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("peername", "address"), [(("10.0.0.1", 5), "10.0.0.1"), (None, "unknown"), ((), "unknown")]
)
def test_the_address_of_a_stranger(peername, address):
    assert address_of(peername) == address
