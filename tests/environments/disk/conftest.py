import pytest

from filesystems.disk.faulty_disk import FaultyDisk


@pytest.fixture
def disk(tmp_path, run):
    """A disk that breaks, mounted; what it keeps lies in ``behind``."""
    mounted = run(FaultyDisk.mount(tmp_path / "behind", tmp_path / "disk", tmp_path / "log"))
    yield mounted
    run(mounted.close())


@pytest.fixture
def root(disk):
    """Where it is mounted."""
    return disk.directory
