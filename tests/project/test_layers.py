"""The house stays as it was drawn: layers point one way, the seams are not bypassed."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "broker",
    "checkers",
    "environments",
    "filesystems",
    "harness",
    "jepsen_run_pytest",
    "nemesis",
    "stomp_protocol",
    "workloads",
)
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

SEAMED = ("broker", "stomp_protocol", "workloads", "nemesis")
"""Packages that must also run in a simulation.

All they take from outside goes through the seams.
"""

SEAM_IMPLEMENTATIONS = {
    "broker/storage/database/sqlite.py",
    "broker/storage/directory.py",
    "broker/storage/shared_directory.py",
    "broker/daemon.py",
    "broker/ctl.py",
    "broker/multicast.py",
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


def lint(root):
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


AGAINST_THE_ARROW = (
    ("broker/config.py", "harness.interface"),
    ("stomp_protocol/frames.py", "broker.storage.blobs"),
    ("broker/cluster/membership.py", "broker.policies.policy"),
    ("workloads/producer.py", "broker.stomp.headers"),
    ("harness/run/run.py", "broker.daemon"),
    ("checkers/rows.py", "nemesis.kind"),
    ("nemesis/kind.py", "workloads.registry"),
    ("workloads/registry.py", "harness.history.store"),
    ("environments/registry.py", "harness.systems.registry"),
    ("harness/report/html.py", "harness.run.run"),
    ("harness/run/run.py", "harness.systems.own.system"),
    ("filesystems/fuse/kernel.py", "filesystems.nfs.client"),
    ("harness/report/html.py", "jepsen_run_pytest.outcome"),
    ("jepsen_run_pytest/program.py", "harness.run.session"),
)
"""Imports that must not be."""

A_CIRCLE = ("broker/core/pages.py", "broker.core.message")


def test_layers_point_one_way():
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_every_folder_of_modules_is_a_package():
    """The linter sees no others."""
    assert [path for path in MODULES if not path.with_name("__init__.py").is_file()] == []


def test_an_import_against_the_arrow_and_a_circle_within_the_broker_are_noticed(tmp_path):
    """The test above can fail: each wrong import anywhere is refused, and named."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for module, wrong in (*AGAINST_THE_ARROW, A_CIRCLE):
        with (tmp_path / module).open("a") as text:
            text.write(f"import {wrong}\n")
    linted = lint(tmp_path)
    assert linted.returncode != 0
    against = [f"{module[:-3].replace('/', '.')} -> {wrong}" for module, wrong in AGAINST_THE_ARROW]
    assert [one for one in against if one not in linted.stdout] == []
    assert "- .pages -> .message (1 import)" in linted.stdout


def room(module):
    """A package of the picture: the harness has two, its interface and the rest of it."""
    package, _, inner = module.partition(".")
    return "interface" if package == "harness" and inner.startswith("interface") else package


def test_the_picture_of_the_packages_shows_who_imports_whom():
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    packages, rooms = re.findall(r"```mermaid\nflowchart TD\n(.*?)```", text, re.DOTALL)[:2]
    drawn = {tuple(line.split(" --> ")) for line in packages.strip().splitlines()}
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found = {
        (room(module), room(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if room(module) != room(imported)
    }
    assert {(a.strip(), b) for a, b in drawn} == found
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one.get("containers") == ["harness"]]
    assert rooms.strip().split(" --> ") == layers


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
