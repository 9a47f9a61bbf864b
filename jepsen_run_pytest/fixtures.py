"""The functions that the fixtures return: run a test, judge a history, assert that it is valid."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from operator import methodcaller
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from checkers.verdict import Verdict
from harness.history import spec as specs
from harness.history import store as stores
from harness.history.judge import UNKNOWN, VALID
from harness.interface import OWN, TestSpec, UsageError
from harness.interface.errors import near
from harness.systems import registry as systems
from jepsen_run_pytest.outcome import Outcome, outcome_of
from jepsen_run_pytest.program import Answer, JepsenRunError, call

__tracebackhide__ = methodcaller("errisinstance", (AssertionError, JepsenRunError))
"""What pytest reads: such a failure is shown where the user's test stands, not in this module."""

FilePath = str | PathLike[str]
Event = Mapping[str, Any]

_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(TestSpec)}
_LISTS: Final = frozenset(name for name, field in _FIELDS.items() if isinstance(field.default, tuple))
"""The fields that may be one text with commas, as on the command line."""
_NAMING: Final = frozenset(("system", "policy", "nemeses", "workload"))
"""The fields that a test without a name is named after."""


class RunSpec:
    """Runs one test of a cluster: deploys it, breaks it, and judges what happened."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(
        self,
        spec: FilePath | None = None,
        *,
        schedule: FilePath | None = None,
        known: FilePath | None = None,
        system_home: FilePath | None = None,
        **fields: Any,
    ) -> Outcome:
        """Run a test to its verdict.

        Args:
            spec: a ``spec.json``, or the directory of an earlier run; None: the defaults.
            schedule: the faults, as ``--schedule``.
            known: accepted findings, as ``--known``.
            system_home: the distribution of the brokers, as ``--system-home``.
            fields: what differs from ``spec``, by the names of the spec with underscores. Several
                nemeses, shapes, targets or hosts may be one text with commas. Without ``seed`` and
                ``spec`` a seed is drawn.

        Raises JepsenRunError, in one line, if no such test can be run.
        """
        files = {"--schedule": schedule, "--known": known, "--system-home": system_home}
        options = [word for option, path in files.items() if path is not None for word in (option, str(path))]
        with tempfile.TemporaryDirectory(prefix="jepsen-run-") as directory:
            file = stores.save(Path(directory), stores.SPEC, _spec(spec, fields))
            answer = call(["test", "--spec", str(file), "--store", str(self._root), *options])
        return _outcome(answer, answer.document)


class CheckHistory:
    """Judges a history that was recorded before, by this program or by another."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(
        self,
        history: FilePath | Iterable[Event],
        *,
        name: str = "history",
        guarantee: str | None = None,
        ordered: bool | None = None,
        drained: bool = False,
        fifo: bool = False,
        ack_wait_s: float | None = None,
        known: FilePath | None = None,
    ) -> Outcome:
        """Judge a history; nothing in it is changed.

        Args:
            history: the directory of a run; a file that ``jepsen-run import`` reads; or events, as
                ``checkers.check`` takes them.
            name: what events are called in the store and in the message of a failure.
            guarantee: the promised guarantee; None: the run's own, else at-least-once.
            ordered: whether order in a group was promised; None: as the run's own, else True.
            drained: everything that was left was received in the end, so the rest is lost.
            fifo: a queue without groups was promised to be in order.
            ack_wait_s: the seconds after which brokers take back an unacknowledged message.
            known: accepted findings, as ``--known``.

        ``drained``, ``fifo`` and ``ack_wait_s`` are said by a run itself, and only for the others.

        Raises JepsenRunError, in one line, if there is no such history.
        """
        accepted = [] if known is None else ["--known", str(known)]
        said = ["--drained"] * drained + ["--fifo"] * fifo
        said += [] if ack_wait_s is None else ["--ack-wait", str(ack_wait_s)]
        if isinstance(history, str | PathLike) and Path(history).is_dir():
            if said:
                raise JepsenRunError(
                    f"{history} is a run, which already records how it ended: omit {said[0]}"
                )
            return self._checked(Path(history), {"guarantee": guarantee, "ordered": ordered}, accepted)
        options = [*said, *accepted] + ([] if guarantee is None else ["--guarantee", guarantee])
        options += [] if ordered is None else ["--ordered" if ordered else "--unordered"]
        if isinstance(history, str | PathLike):
            return self._imported(Path(history), options)
        with tempfile.TemporaryDirectory(prefix="jepsen-run-") as directory:
            file = Path(directory) / "events.jsonl"
            with file.open("wb") as lines:
                lines.writelines(_line(number, event) for number, event in enumerate(history, 1))
            try:
                return self._imported(file, ["--name", name, *options])
            except JepsenRunError as error:  # of a file that its caller never saw
                raise JepsenRunError(str(error).replace(f"{file}: line ", "event ")) from None

    def _imported(self, file: Path, options: list[str]) -> Outcome:
        return self._judged(["import", str(file), "--store", str(self._root), *options])

    def _checked(self, path: Path, promised: Mapping[str, Any], options: list[str]) -> Outcome:
        """Judge a copy of a run, since spec, verdict and report are written into its directory."""
        try:
            runs = stores.find(path)
            if len(runs) > 1:
                raise JepsenRunError(f"{path} has {len(runs)} runs in it: give the directory of one")
            spec = specs.build(promised, stores.load_spec(runs[0]))
        except UsageError as error:
            raise JepsenRunError(str(error)) from None
        copy = stores.create(self._root, spec.name)
        shutil.copytree(runs[0], copy, dirs_exist_ok=True)
        stores.save(copy, stores.SPEC, spec)
        return self._judged(["check", str(copy), *options])

    def _judged(self, arguments: list[str]) -> Outcome:
        answer = call(arguments)
        return _outcome(answer, answer.document and answer.document["runs"][0], is_recorded=True)


class AssertValid:
    """Fails a test with the story of a run or history that is not valid."""

    def __call__(self, outcome: Outcome | Verdict, *, may_be_unknown: bool = False) -> None:
        """Pass for a valid outcome, and for one in which every finding is a known one.

        Args:
            outcome: what ``run_spec`` or ``check_history`` returned, or a verdict of
                ``checkers.check``.
            may_be_unknown: skip the test, with the reason, if nothing could be decided. Without it
                the test fails: nothing was shown.

        Raises AssertionError: the text has the findings, the story, the report and the command.
        """
        if isinstance(outcome, Verdict):
            outcome = Outcome(name="history", verdict=outcome)
        if outcome.status == UNKNOWN and may_be_unknown:
            pytest.skip(str(outcome).splitlines()[0])
        if outcome.status != VALID:
            raise AssertionError(str(outcome))


def _spec(base: FilePath | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec to be written: given values over ``base``. Raises JepsenRunError."""
    for name in fields:
        if name not in _FIELDS:
            raise JepsenRunError(f'a test has no field "{name}": {near(name, _FIELDS)}')
    given = {name: _listed(name, value) for name, value in fields.items() if value is not None}
    try:
        if base is not None:
            loaded = msgspec.structs.asdict(specs.load(Path(base)))
            if not _NAMING.isdisjoint(given):
                del loaded["name"]
            given = {**loaded, **given}
        else:
            policy = systems.usual_policy(given.get("system", OWN))
            given = {"policy": policy, "seed": random.SystemRandom().randrange(2**31), **given}
    except UsageError as error:
        raise JepsenRunError(str(error)) from None
    return {_FIELDS[name].encode_name: value for name, value in given.items()}


def _listed(name: str, value: Any) -> Any:
    return [word.strip() for word in value.split(",")] if name in _LISTS and isinstance(value, str) else value


def _line(number: int, event: Event) -> bytes:
    try:
        return msgspec.json.encode(event) + b"\n"
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise JepsenRunError(f"event {number}: it cannot be written as JSON: {error}") from None


def _outcome(answer: Answer, document: Mapping[str, Any] | None, *, is_recorded: bool = False) -> Outcome:
    """Return the outcome of a command. Raises JepsenRunError if there is none."""
    if document is not None and document.get("verdict") is not None:
        return outcome_of(document, is_recorded=is_recorded)
    if answer.status != UNKNOWN:
        raise JepsenRunError(answer.complaint or f"the program ended with exit status {answer.status}")
    reason = answer.complaint.removeprefix("unknown: ")
    return Outcome(name="jepsen-run", verdict=Verdict(valid=None, reasons=(reason,)))
