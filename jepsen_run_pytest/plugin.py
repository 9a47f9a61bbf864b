"""The fixtures and options that pytest finds by the entry point ``jepsen-run``.

What the fixtures need is imported when a test asks for one (docs/how-to/pytest.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from jepsen_run_pytest.fixtures import AssertValid, CheckHistory, RunSpec

_STORE: Final = "jepsen_run_store"
"""The setting in pytest's configuration file, and the name of the option's value."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting that say where runs are kept."""
    parser.getgroup("jepsen-run").addoption(
        "--jepsen-run-store",
        dest=_STORE,
        metavar="DIRECTORY",
        help="Where the fixtures of jepsen-run keep their runs [a temporary directory of pytest].",
    )
    parser.addini(_STORE, "As --jepsen-run-store; relative to the configuration file.")


@pytest.fixture(scope="session")
def jepsen_run_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that keeps all runs of this session, with their page ``index.html``."""
    option: str | None = request.config.getoption(_STORE)
    if option:
        return request.config.invocation_params.dir / option
    setting: str = request.config.getini(_STORE)
    if setting:
        return request.config.rootpath / setting
    return tmp_path_factory.mktemp("jepsen-run")


@pytest.fixture(scope="session")
def run_spec(jepsen_run_store: Path) -> RunSpec:
    """Return the function that runs one test of a cluster and returns its outcome."""
    from jepsen_run_pytest.fixtures import RunSpec  # noqa: PLC0415 - only for those who use it

    return RunSpec(jepsen_run_store)


@pytest.fixture(scope="session")
def check_history(jepsen_run_store: Path) -> CheckHistory:
    """Return the function that judges a recorded history and returns its outcome."""
    from jepsen_run_pytest.fixtures import CheckHistory  # noqa: PLC0415 - as above

    return CheckHistory(jepsen_run_store)


@pytest.fixture(scope="session")
def assert_valid() -> AssertValid:
    """Return the function that fails with the story of an outcome that is not valid."""
    from jepsen_run_pytest.fixtures import AssertValid  # noqa: PLC0415 - as above

    return AssertValid()
