"""Dead letters and expired messages: configurations that would show them to others are refused."""

import pytest

from broker import config, moved_messages

LOGINS = ("alice", "bob", "eve", "ops")


def configured(rights, addresses=(), users=LOGINS, roles=None):
    """A configuration of (match, consume, browse) and (match, dead letters, expired)."""
    return {
        "broker": {"name": "a1"},
        "acceptor": {"users": dict.fromkeys(users, "x"), "roles": roles or {}},
        "security-settings": [
            {"match": match, "send": list(users), "consume": consume.split(), "browse": browse.split()}
            for match, consume, browse in rights
        ],
        "address-settings": [
            {"match": match, "dead-letter-address": dead, "expiry-address": expired}
            for match, dead, expired in addresses
        ],
    }


ALL = " ".join(LOGINS)
SECRET = ("secret.#", "alice", "")
SAFE = [("DLQ", "alice", ""), ("ExpiryQueue", "alice", "")]

REFUSED = {
    "nothing restricts the two": (
        [SECRET],
        [],
        (
            "security-settings of 'secret.#': messages are moved from there to 'DLQ' (dead-letter-address by "
            "default), where 'bob', 'eve', 'ops' may consume or browse them without that right at their "
            "origin (no setting matches it): say who may, in a table [[security-settings]] for "
            'match = "DLQ" and for match = "ExpiryQueue"'
        ),
    ),
    "only dead letters are restricted": ([SECRET, SAFE[0]], [], "are moved from there to 'ExpiryQueue'"),
    "only expired messages are restricted": ([SECRET, SAFE[1]], [], "are moved from there to 'DLQ'"),
    "a wider pattern holds for them": (
        [("#", ALL, ALL), SECRET],
        [],
        "consume or browse them without that right at their origin (by that of '#')",
    ),
    "who may browse there may consume the dead letters": (
        [("secret.#", "alice", "bob"), ("dead.#", "alice bob", "")],
        [("#", "dead.letters", "")],
        "to 'dead.letters' (dead-letter-address of address-settings '#'), where 'bob' may",
    ),
    "their own addresses are elsewhere": (
        [SECRET],
        [("secret.#", "dead", "expired")],
        'in a table [[security-settings]] for match = "dead" and for match = "expired"',
    ),
    "an exception of the protected ones": (
        [SECRET, *SAFE],
        [("secret.*.eu", "dead.eu", "")],
        "to 'dead.eu' (dead-letter-address of address-settings 'secret.*.eu')",
    ),
    "two patterns meet in one name": (
        [("secret.*", "alice", ""), *SAFE],
        [("*.eu", "dead", "")],
        "to 'dead' (dead-letter-address of address-settings '*.eu')",
    ),
    "dead letters of dead letters": (
        [SECRET, *SAFE],
        [("DLQ", "worse", "")],
        "security-settings of 'DLQ': messages are moved from there to 'worse'",
    ),
    "too many": (
        [SECRET, *((f"#.{letter}.#", "", "") for letter in "abcdefghijklmnopqrst")],
        [],
        "overlap in too many ways",
    ),
}

TAKEN = {
    "no rights": ([], []),
    "everybody may read the origin": ([("news.#", ALL, "")], []),
    "nobody but who may read the origin": ([SECRET, *SAFE], []),
    "below the origin": ([SECRET], [("secret.#", "secret.dead", "secret.expired")]),
    "by the pattern of all": ([("#", "alice", "")], []),
    "who may consume there may browse the dead letters": (
        [SECRET, ("dead.#", "", "alice")],
        [("#", "dead.letters", "dead.old")],
    ),
    "they are dropped": ([SECRET], [("#", "", "")]),
    "a setting that never holds where the rights do": (
        [SECRET, *SAFE],
        [("public.#", "dead", "expired"), ("secret", "DLQ", "ExpiryQueue")],
    ),
    "hidden by more specific ones": (
        [("a.*", "alice", ""), ("a.b", ALL, ""), *SAFE],
        [("*.b", "dead", "expired")],
    ),
    "nobody may read them": ([SECRET, ("DLQ", "", ""), ("ExpiryQueue", "", "")], []),
    "many queues": ([SECRET, *SAFE], [(f"queue.{n}", "dead", "expired") for n in range(3000)]),
}


@pytest.mark.parametrize(("rights", "addresses", "text"), REFUSED.values(), ids=REFUSED)
def test_what_would_show_moved_messages_to_others_is_refused(rights, addresses, text):
    with pytest.raises(config.ConfigurationError) as caught:
        config.validate(configured(rights, addresses), "etc/broker.toml")
    assert str(caught.value).startswith("etc/broker.toml: security-settings")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("rights", "addresses"), TAKEN.values(), ids=TAKEN)
def test_what_shows_them_to_nobody_else_is_taken_without_a_word(rights, addresses):
    assert moved_messages.warnings(config.validate(configured(rights, addresses))) == []


def test_roles_are_compared_by_their_logins():
    roles = {"readers": ["alice", "bob"], "others": ["bob", "alice"]}
    rights = [("secret", "readers", ""), ("DLQ", "others", ""), ("ExpiryQueue", "bob alice", "")]
    assert moved_messages.warnings(config.validate(configured(rights, roles=roles))) == []


def test_without_users_everybody_is_a_stranger():
    rights = [("secret", "", "")]
    with pytest.raises(config.ConfigurationError, match="to 'DLQ' .*, where everybody may consume or browse"):
        config.validate(configured(rights, users=()))
    config.validate(configured([*rights, ("DLQ", "", ""), ("ExpiryQueue", "", "")], users=()))


def test_a_setting_for_the_very_address_may_let_others_in_and_the_start_says_so():
    rights = [SECRET, ("orders", "bob", ""), ("DLQ", "ops", ""), ("ExpiryQueue", "alice", "")]
    dead_letters, expired = moved_messages.warnings(config.validate(configured(rights)))
    let_in = "consume or browse messages that are moved there, without that right at their origin"
    assert dead_letters == (
        f"security-settings of 'DLQ' let 'ops' {let_in}: 'ExpiryQueue', 'orders', 'secret.#'"
    )
    assert expired == f"security-settings of 'ExpiryQueue' let 'alice' {let_in}: 'DLQ', 'orders'"
