"""The house stays as it was drawn: layers point one way, the seams are not bypassed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "checkers", "environments", "harness", "nemesis", "workloads")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

SEAMED = ("broker", "workloads", "nemesis")
"""Packages that must also run in a simulation: all they take from outside goes through the seams."""

SEAM_IMPLEMENTATIONS = {
    "broker/storage/database/sqlite.py",
    "broker/storage/directory.py",
    "broker/storage/shared_directory.py",
    "broker/daemon.py",
    "broker/ctl.py",
    "broker/seams.py",
}
"""The real implementations of the seams, and the programs that choose them."""

FORBIDDEN_CALLS = {
    ("time", "time"),
    ("time", "sleep"),
    ("time", "monotonic"),
    ("random", "random"),
    ("random", "choice"),
    ("random", "randint"),
    ("random", "shuffle"),
    ("asyncio", "to_thread"),
    ("threading", "Thread"),
    ("loop", "run_in_executor"),
    ("uuid", "uuid4"),
    ("os", "urandom"),
    ("socket", "socket"),
}


def test_layers_point_one_way():
    lint = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_an_import_against_the_arrow_is_noticed(tmp_path):
    """The test above can fail: a broker that imports the harness is refused."""
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    for name in ("cli", "run", "history", "report", "store", "monitor", "systems"):
        (tmp_path / "harness" / f"{name}.py").write_text("")
    for name in ("disk", "docker", "fuse", "local", "nfs", "simulation"):
        (tmp_path / "environments" / f"{name}.py").write_text("")
    (tmp_path / "broker" / "wrong.py").write_text("import harness.run\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    lint = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert lint.returncode != 0
    assert "broker.wrong" in lint.stdout


def forbidden_calls(source: str) -> list[str]:
    """``module.function`` calls that bypass a seam, with their line."""
    return [
        f"line {node.lineno}: {node.func.value.id}.{node.func.attr}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) in FORBIDDEN_CALLS
    ]


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.relative_to(ROOT).parts[0] in SEAMED],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_seams_are_not_bypassed(path):
    if str(path.relative_to(ROOT)) not in SEAM_IMPLEMENTATIONS:
        assert forbidden_calls(path.read_text()) == []


def test_a_bypassed_seam_is_noticed():
    assert forbidden_calls("import time\nx = time.time()\n") == ["line 2: time.time"]
