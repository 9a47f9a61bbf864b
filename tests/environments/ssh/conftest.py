import beds
import msgspec
import pytest

from environments.ssh.host import SshHost
from environments.ssh.hosts import load


@pytest.fixture(scope="session")
def ssh_bed(tmp_path_factory):
    """Three machines in namespaces, for tests that leave them as they were."""
    with beds.namespaces(3, tmp_path_factory.mktemp("ssh") / "bed") as bed:
        yield bed


@pytest.fixture(scope="session")
def container_bed(tmp_path_factory):
    """The same as containers."""
    with beds.containers(2, tmp_path_factory.mktemp("ssh") / "bed") as bed:
        yield bed


@pytest.fixture(
    params=[
        pytest.param("ssh_bed", marks=pytest.mark.ssh),
        pytest.param("container_bed", marks=pytest.mark.docker),
    ]
)
def bed(request):
    """Either bed."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def connect():
    """Connects to machines of a bed, and ends the connections."""
    opened = []

    def make(bed, number=0, **changes):
        inventory = load(bed.hosts)
        config = msgspec.structs.replace(inventory.hosts[number], **changes)
        opened.append(SshHost(config, inventory.known_hosts))
        return opened[-1]

    yield make
    for host in opened:
        host.close()
