"""Tests side by side (``pytest -n 4``): which never run beside each other, and what is begun first.

A plugin, which ``conftest.py`` loads. Tests that share one thing of the machine, or one that takes
long to start, are a group: one worker has all of a group, one after the other.

Why not ``--dist loadgroup``: xdist 3.8 tells its scheduler of groups within the tests' ids, which
pytest 9.2 no longer lets it change, so that groups are lost without a word (pytest-xdist 1386).
Here workers leave them in a file, and ids stay what one can type.
"""

import json
import os
import tempfile
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

GROUPS = (
    ("docker", ("docker",), ()),
    ("files", ("nfs", "fuse"), ()),
    ("spark", ("spark",), ("spark",)),
    ("postgresql", (), ("postgresql_server", "place")),
    ("simulated", (), ("simulated_once",)),
    ("ssh", ("ssh",), ()),
)
"""(name, markers that put a test into it, fixtures that do); the first that fits counts."""

LONG = "long"
"""The marker of tests that are begun first, so that nobody waits for the last of them alone."""

PLACE = "groups"
"""Under this name a worker is told which file to write."""


def group_of(item):
    """The name of a test's group, or None: it may run beside any other."""
    for name, markers, fixtures in GROUPS:
        marked = any(item.get_closest_marker(marker) for marker in markers)
        if marked or any(fixture in item.fixturenames for fixture in fixtures):
            return name
    return None


class Worker:
    """Where tests run."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """Long ones to the front: what is handed out is so in this order, after the groups."""
        items.sort(key=lambda item: item.get_closest_marker(LONG) is None)

    @pytest.hookimpl(tryfirst=True)  # xdist says that all are collected after us
    def pytest_collection_finish(self, session):
        """Leave word of the groups; all workers write the same."""
        given = session.config.workerinput
        own = Path(f"{given[PLACE]}.{given['workerid']}")
        own.write_text(json.dumps({item.nodeid: group_of(item) for item in session.items}))
        own.replace(given[PLACE])


class Distribution:
    """Where tests are handed out."""

    def __init__(self):
        descriptor, name = tempfile.mkstemp(prefix="groups-")
        os.close(descriptor)
        self._place = Path(name)

    def pytest_configure_node(self, node):
        """Tell a new worker of the file."""
        node.workerinput[PLACE] = str(self._place)

    def pytest_xdist_make_scheduler(self, config, log):
        """Ours, unless another one was asked for by name."""
        return GroupScheduling(config, log, self._place) if config.getoption("dist") == "load" else None

    def pytest_unconfigure(self):
        """The file is of no use any more."""
        self._place.unlink(missing_ok=True)


class GroupScheduling(LoadScopeScheduling):
    """A group is one piece of work, each other test is one; xdist hands out large pieces first."""

    def __init__(self, config, log, place):
        super().__init__(config, log)
        self._place = place
        self._groups = {}

    def _split_scope(self, nodeid):
        if not self._groups:  # first asked for when all is collected
            self._groups = json.loads(self._place.read_text())
        return self._groups[nodeid] or nodeid


def pytest_configure(config):
    """Nothing where nobody asked for workers."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(), "side by side")
    elif getattr(config.option, "dist", "no") != "no":
        config.pluginmanager.register(Distribution(), "side by side")
