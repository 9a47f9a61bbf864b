"""The wheel has what the program reads, nothing of the tests, and works without a checkout."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest
from test_layers import PACKAGES

import harness

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def ran(*words, **options):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built as a release builds it."""
    directory = tmp_path_factory.mktemp("wheel")
    words = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT)
    built = ran(*words, env={**os.environ, "JEPSEN_RUN_REPOSITORY": "https://example.org/us/ours"})
    if re.search("(No matching distribution found|satisfies the requirement).*hatchling", built.stderr):
        assert not os.environ.get("CI"), built.stderr
        pytest.skip("hatchling could not be fetched, which builds the wheel")
    assert built.returncode == 0, built.stderr
    (made,) = directory.iterdir()
    return made


@pytest.fixture(scope="module")
def description(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name).decode()


def test_the_wheel_has_each_file_of_the_packages_and_nothing_else(wheel):
    kept = ran("git", "ls-files", *PACKAGES, cwd=ROOT).stdout.split()
    if not kept:
        pytest.skip("no repository says which files are ours")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == set(kept)
    assert {"harness/report/templates/report.html.j2", "checkers/log4j2.properties"} <= names


def test_the_readme_is_read_in_a_few_minutes():
    assert len(README.split()) <= 700


def test_the_page_of_an_index_has_the_version_and_no_link_to_a_file_beside_it(description):
    assert f"\nVersion: {harness.__version__}\n" in description
    targets = re.findall(r"\]\(([^)]+)\)", description)
    assert len(targets) == len(re.findall(r"\]\(([^)]+)\)", README))
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    tag = f"v{harness.__version__}"
    assert (
        f"![A run that ends invalid, in the terminal and in its report](https://example.org/us/ours/raw/{tag}/"
        in description
    )
    assert f"](https://example.org/us/ours/blob/{tag}/docs/tutorial/first-run.md)" in description


def test_without_an_address_the_links_are_plain_text(monkeypatch):
    interface = types.SimpleNamespace(MetadataHookInterface=object)  # the build has it, tests need not
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    hatch_build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hatch_build)
    text = hatch_build.for_index(README, "", "v1")
    assert [
        target for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith("https://")
    ] == []
    assert "A run that ends invalid" not in text
    assert "what works" in text


@pytest.mark.long
def test_the_installed_wheel_makes_the_red_run_of_the_readme_outside_of_the_checkout(wheel, tmp_path):
    """Takes 10 s of processor time: an environment, an installation and a run.

    The dependencies are those of this environment; .github/workflows/tests.yml installs them anew.
    """
    line = re.search(r"^\.venv/bin/jepsen-run (--environment simulation .*)$", README, re.MULTILINE)[1]
    fresh = tmp_path / "fresh"
    assert ran(sys.executable, "-m", "venv", "--without-pip", fresh).returncode == 0
    (site,) = fresh.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(str(Path(pytest.__file__).parents[1]))
    python = fresh / "bin" / "python"
    installed = ran(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        wheel,
    )
    assert installed.returncode == 0, installed.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = ran(python, "-c", "import harness; print(harness.__file__)", cwd=elsewhere, env=environment)
    assert where.stdout.startswith(str(site))
    done = ran(fresh / "bin" / "jepsen-run", *shlex.split(line), cwd=elsewhere, env=environment)
    assert (done.returncode, "split-brain (1)" in done.stdout) == (1, True), done.stderr
    assert (elsewhere / "store" / "latest" / "report.html").is_file()
