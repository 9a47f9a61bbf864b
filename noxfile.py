"""Sessions of the checks that a developer runs: ``nox --list`` names them.

Most run in the environment that nox itself is installed in, so that nothing is installed twice.
``tests`` makes an environment for each Python, and ``docs`` one that has only Sphinx.
"""

from __future__ import annotations

import re
import sys

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "quick"]
nox.options.error_on_missing_interpreters = False  # a Python that is not here is skipped by name

PROJECT = nox.project.load_toml("pyproject.toml")
MARKERS = PROJECT["tool"]["pytest"]["ini_options"]["markers"]
QUICK = f"not ({' or '.join(re.split('[:(]', marker)[0] for marker in MARKERS)})"
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.run(sys.executable, "-m", "ruff", "check", ".", *session.posargs)
    session.run(sys.executable, "-m", "ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of all packages with mypy."""
    session.run(sys.executable, "-m", "mypy", *session.posargs)


@nox.session
def quick(session: nox.Session) -> None:
    """Run the tests without a marker: no root, no Docker, no Java, and nothing slow."""
    session.run(sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", QUICK, *session.posargs)


@nox.session(venv_backend="virtualenv")
def docs(session: nox.Session) -> None:
    """Build the documentation site into build/site; a broken link or anchor is an error."""
    session.install(*PROJECT["project"]["optional-dependencies"]["docs"])
    session.run(
        "python", "-m", "sphinx", "--fail-on-warning", "--keep-going", *session.posargs, "docs", "build/site"
    )


@nox.session(name="all")
def all_checks(session: nox.Session) -> None:
    """Check style and types, and run all tests; what the machine lacks is skipped by name."""
    session.notify("lint")
    session.notify("types")
    session.run(sys.executable, "-m", "pytest", "-n", "4", *session.posargs)


@nox.session(python=PYTHONS, venv_backend="virtualenv")
def tests(session: nox.Session) -> None:
    """Install the package on each Python from 3.11 to 3.14, and run the quick tests."""
    session.install("--no-compile", "-e", ".[test]")
    session.run("pytest", "-q", "-n", "2", "-m", QUICK, *session.posargs)
