"""Masked passwords: readable with the key they were masked with, and with no other."""

import asyncio
import io
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import config, ctl
from broker.daemon import serve
from broker.ha_policy import DatabaseStoreSection
from broker.masking import KEY_VARIABLE, MaskError, mask, unmask
from broker.seams import real_seams
from broker.storage.database.opening import open_database
from broker.storage.memory import MemoryVolume

KEY = {KEY_VARIABLE: "a key"}


@given(st.text(max_size=100))
def test_what_is_masked_comes_back_and_cannot_be_read(text):
    masked = mask(text, KEY)
    assert unmask(masked, KEY) == text
    if len(text) > 3 and set(text) <= set(string.printable):
        assert text not in masked


def test_plain_passwords_stay_what_they_are():
    assert unmask("plain", KEY) == "plain"
    assert unmask("ENC(half", KEY) == "ENC(half"


@pytest.mark.parametrize("environment", [{}, {KEY_VARIABLE: "another key"}])
def test_another_key_is_named_as_the_problem_and_the_text_is_not(environment):
    with pytest.raises(MaskError, match=KEY_VARIABLE) as caught:
        unmask(mask("secret-word", KEY), environment)
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("damaged", ["ENC()", "ENC(%%%)", "ENC(AAAA)", mask("x" * 40, KEY)[:-6] + "AAA=)"])
def test_damage_is_noticed(damaged):
    with pytest.raises(MaskError):
        unmask(damaged, KEY)


def test_brokerctl_masks_and_the_store_unmasks(monkeypatch, capsys):
    monkeypatch.setenv(KEY_VARIABLE, "a key")
    monkeypatch.setattr("sys.stdin", io.StringIO("secret-word\n"))
    assert ctl.main(["mask"]) == 0
    masked = capsys.readouterr().out.strip()
    assert masked.startswith("ENC(")
    section = DatabaseStoreSection(url="postgresql://db/x", user="u", password=masked)
    database = open_database(section, environment=KEY)
    assert database._credentials == {"user": "u", "password": "secret-word"}
    assert "secret-word" not in repr(database)


def test_brokerctl_masks_no_empty_password(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert ctl.main(["mask"]) == 254
    assert "no password" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["ha-database", "shared-store"])
def test_a_broker_that_cannot_unmask_its_password_ends_with_one_line_that_names_the_key(policy, caplog):
    section = {"cluster-id": "test"} if policy == "ha-database" else {"store": "database", "master": {}}
    settings = config.validate(
        {
            "broker": {"name": "a1"},
            "cluster": {
                "cluster-password": "p",
                "connector": "a1:1",
                "stomp-connector": "a1:2",
                "message-load-balancing": "OFF",
            },
            "ha-policy": {policy: section},
            "database-store": {"url": "postgresql://db/x", "user": "u", "password": mask("secret-word", KEY)},
        }
    )

    def database():
        return open_database(settings.database_store, environment={})

    served = serve(settings, real_seams(), MemoryVolume(), asyncio.Event(), database=database)
    assert asyncio.run(served) == 1
    assert "database-store: ENC(...) was masked with another key" in caplog.text
    assert KEY_VARIABLE in caplog.text
    assert "secret-word" not in caplog.text
