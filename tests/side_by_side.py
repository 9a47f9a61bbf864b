"""Tests side by side (``pytest -n 6``): which never run beside each other, and what is begun first.

A plugin, which ``conftest.py`` loads. Tests that share one thing of the machine, or one that takes
long to start, are a group: one worker has all of a group, one after the other. So are tests of a
module that share what a fixture makes once for it, which is mostly a whole simulated run.

Why not ``--dist loadgroup``: xdist 3.8 tells its scheduler of groups within the tests' ids, which
pytest 9.2 no longer lets it change, so that groups are lost without a word (pytest-xdist 1386).
Here workers leave them in a file, and ids stay what one can type.
"""

import json
import os
import tempfile
from pathlib import Path

import pytest
from needs import OF_THE_MACHINE, machine_is_ready
from xdist.scheduler import LoadScopeScheduling

GROUPS = ("docker stores", "docker", "files", "spark", "simulated", "postgresql", "ssh")
"""In the order in which they are begun: what takes longest first."""

LONG = "long"
"""The marker of tests that are begun first, so that nobody waits for the last of them alone."""

PLACE = "groups"
"""Under this name a worker is told which file to write."""


def group_of(item):
    """The name of a test's group, one of GROUPS or a module; None: it may run beside any other."""
    marks, fixtures = {mark.name for mark in item.iter_markers()}, {*item.fixturenames}
    if "docker" in marks:
        return "docker stores" if marks & {"nfs", "database_server"} else "docker"
    if "java" in marks and "spark" not in fixtures:
        return None
    if marks & {"nfs", "fuse"} or marks >= {"cluster", "spark"}:
        return "files"  # and runs on processes that Spark judges: they mostly wait
    if "spark" in marks | fixtures:
        return "spark"
    if "simulated_once" in fixtures:
        return "simulated"
    if fixtures & {"postgresql_server", "place"}:
        return "postgresql"
    return "ssh" if "ssh" in marks else module_of(item)


def module_of(item):
    """The module of a test with a fixture that is made once for it: each worker would make one."""
    made = item._fixtureinfo.name2fixturedefs.values()
    return str(item.path) if any(last.scope == "module" for *_, last in made) else None


def waits(item):
    """Whether it cannot begin before the machine has what it needs."""
    return group_of(item) == "postgresql" or any(mark.name in OF_THE_MACHINE for mark in item.iter_markers())


def begun(item):
    """Which are handed out first: groups in their order, long tests, then all others."""
    group = group_of(item)
    if group in GROUPS:
        return GROUPS.index(group)
    return len(GROUPS) + (item.get_closest_marker(LONG) is None)


class Worker:
    """Where tests run."""

    def __init__(self, number, count):
        self._number, self._count = number, count

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        """Each worker begins elsewhere: what one has compiled, the others find so."""
        report = yield
        if isinstance(collector, pytest.Directory):
            first = len(report.result) * self._number // self._count
            report.result = [*report.result[first:], *report.result[:first]]
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """As they are to be handed out, which is the same order for all workers."""
        items.sort(key=lambda item: (begun(item), item.path.parts))

    @pytest.hookimpl(tryfirst=True)  # xdist says that all are collected after us
    def pytest_collection_finish(self, session):
        """Leave word of the groups; all workers write the same."""
        given = session.config.workerinput
        own = Path(f"{given[PLACE]}.{given['workerid']}")
        own.write_text(json.dumps({item.nodeid: (group_of(item), waits(item)) for item in session.items}))
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
        if config.getoption("dist") != "load":
            return None
        config.option.loadscopereorder = False  # handed out in the order of the workers' lists
        return GroupScheduling(config, log, self._place)

    def pytest_unconfigure(self):
        """The file is of no use any more."""
        self._place.unlink(missing_ok=True)


class GroupScheduling(LoadScopeScheduling):
    """A group is one piece of work, and each other test is one."""

    def __init__(self, config, log, place):
        super().__init__(config, log)
        self._place = place
        self._groups = {}

    def _told(self, nodeid):
        """Its group, and whether it waits for the machine."""
        if not self._groups:  # first asked for when all is collected
            self._groups = json.loads(self._place.read_text())
        return self._groups[nodeid]

    def _split_scope(self, nodeid):
        return self._told(nodeid)[0] or nodeid

    def _assign_work_unit(self, node):
        """The first; while the machine is not ready, the first that does not wait for it."""
        if not machine_is_ready():
            idle = (
                scope
                for scope, unit in self.workqueue.items()
                if not any(self._told(test)[1] for test in unit)
            )
            if (first := next(idle, None)) is not None:
                self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node, item_index, duration=0):
        """What is done is forgotten: xdist counts all that a worker ever had after each test."""
        scope = self._split_scope(self.registered_collections[node][item_index])
        work = self.assigned_work[node]
        if scope in work:  # a test may tell of itself more than once
            super().mark_test_complete(node, item_index, duration)
            if all(work[scope].values()):
                del work[scope]


def pytest_configure(config):
    """Nothing where nobody asked for workers."""
    if hasattr(config, "workerinput"):
        number = int(config.workerinput["workerid"].removeprefix("gw"))
        count = config.workerinput["workercount"]
        config.pluginmanager.register(Worker(number % count, count), "side by side")
    elif getattr(config.option, "dist", "no") != "no":
        config.pluginmanager.register(Distribution(), "side by side")
