import random

import pytest

from broker.seams import Seams, real_seams


def test_known_names_come_from_the_hosts_table_and_others_stand_for_themselves():
    seams = real_seams({"a1:61616": ("127.0.0.1", 4711)})
    assert seams.resolve("a1:61616") == ("127.0.0.1", 4711)
    assert seams.resolve("a2:61616") == ("a2", 61616)
    assert seams.resolve("[::1]:61616") == ("::1", 61616)


@pytest.mark.parametrize("address", ["a1", "a1:", ":1", "a1:0", "a1:65536", "a1:x", "a1:-1", "a1:¹"])
def test_an_address_without_a_sound_port_is_named(address):
    with pytest.raises(ValueError, match=r"is not host:port") as raised:
        Seams(random.Random(1), lambda: 0.0).resolve(address)
    assert repr(address) in str(raised.value)


def test_one_seed_gives_one_course_of_chance():
    assert real_seams(seed=7).random.random() == real_seams(seed=7).random.random()


def test_a_secret_is_of_the_systems_entropy_and_in_a_simulation_of_its_seed():
    one, other = real_seams().secret(), real_seams().secret()
    assert one != other
    assert len(bytes.fromhex(one)) * 8 >= 96
    foreseen = random.Random(1)
    assert Seams(random.Random(1), lambda: 0.0, entropy=lambda count: b"\7" * count).secret() == "07" * 16
    assert Seams(foreseen, lambda: 0.0).secret() == real_seams(seed=1).secret()
