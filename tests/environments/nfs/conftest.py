import pytest
from nfs_store import Store


@pytest.fixture
def store(request, tmp_path, run):
    """A real NFSv4 server of the test's own; indirect parameters are its options."""
    here = Store(tmp_path, **getattr(request, "param", {}))
    run(here.begin())
    yield here
    run(here.end())


@pytest.fixture
def hosts(store, run):
    """The directories on which two machines have mounted it, as recommended."""
    return [run(store.host(name)).directory for name in ("a", "b")]
