import pytest


@pytest.fixture
def state_home(tmp_path, monkeypatch):
    """A state directory of the test's own: `clean` must neither see nor touch other runs on this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"
