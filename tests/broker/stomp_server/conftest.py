import itertools

import pytest
from brokers import Brokerd, Raw

_names = itertools.count()


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """One broker for all tests that leave it as they found it; each uses a queue of its own."""
    broker = Brokerd(
        tmp_path_factory.mktemp("brokerd"), **{"address-settings.poison.#.max-delivery-attempts": 2}
    )
    yield broker
    assert broker.stop() == 0
    assert not any("internal error" in line for line in broker.lines), broker.lines


@pytest.fixture
def queue():
    return f"q{next(_names)}"


@pytest.fixture
def client(shared):
    """Makes raw clients and closes them."""
    made = []

    def make(**options):
        made.append(Raw(shared.port, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def brokerd(tmp_path):
    """Makes brokers of the test's own."""
    made = []

    def make(**properties):
        made.append(Brokerd(tmp_path, **properties))
        return made[-1]

    yield make
    for one in made:
        one.kill()
