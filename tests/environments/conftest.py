import asyncio
import tempfile

import pytest


@pytest.fixture
def state_home(tmp_path, monkeypatch):
    """Directories of the test's own for state and for temporary files.

    `clean` must neither see nor touch other runs on this machine.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "state"


@pytest.fixture
def run():
    """Runs coroutines on one loop, that of the test and of what its fixtures keep running."""
    with asyncio.Runner() as runner:
        yield runner.run
