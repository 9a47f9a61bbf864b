"""A probe: named steps, each with its expected result, for claims that need no fault schedule.

Why besides scenarios: "a second broker with the same id is refused with one line" is about what a
person does and reads. There is no history to judge, so every step says what was expected and what
was found. The evidence (commands with their output, logs of brokers) lies in the same directory. A
step that is not as expected refutes the claim; a machine on which the steps cannot be taken decides
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.interface import InfrastructureError

STEPS: Final = "steps.json"
"""The file, in the probe's directory, of every step with what was expected and found."""


class ProbeStep(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A step and its result."""

    name: str
    expected: Any
    found: Any

    @property
    def as_expected(self) -> bool:
        """True if the step had the expected result."""
        return bool(self.expected == self.found)

    def __str__(self) -> str:
        return f"{self.name}: expected {_shortened(self.expected)}, found {_shortened(self.found)}"


class StepMissedError(Exception):
    """A step failed, so that the next steps make no sense; it has been noted."""


class Notes:
    """The notes that a probe writes while it runs.

    ``directory`` is its own; whatever else it leaves there is evidence, too.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.steps: list[ProbeStep] = []

    def compare(self, name: str, expected: Any, result: Any) -> None:
        """Note a step; the probe continues whatever its result. Both values must fit into JSON."""
        self.steps.append(ProbeStep(name=name, expected=expected, found=result))
        document = msgspec.json.encode(self.steps)
        (self.directory / STEPS).write_bytes(msgspec.json.format(document) + b"\n")

    def require(self, name: str, expected: Any, result: Any) -> None:
        """Note a step without which the rest makes no sense.

        Raises StepMissedError if it is not as expected.
        """
        self.compare(name, expected, result)
        if expected != result:
            raise StepMissedError(name)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A case of a claim that is shown by steps.

    ``id`` is as a scenario's. ``expected`` says in words what must be found. ``place`` says where
    its steps are taken, in whatever environment scenarios run. ``take`` takes the steps and notes
    each; it raises InfrastructureError if the machine cannot do so.
    """

    id: str
    claim: str
    source: str
    expected: str
    take: Callable[[Notes], Coroutine[Any, Any, None]]
    place: str = "on local processes"

    @property
    def row(self) -> str:
        """The claim's row: "HA8"."""
        return self.id.partition("-")[0]

    def conduct(self, directory: Path) -> Notes:
        """Take the steps. Raises InfrastructureError."""
        notes = Notes(directory)
        try:
            asyncio.run(self.take(notes))
        except StepMissedError:
            assert any(not step.as_expected for step in notes.steps), "a step was missed and not noted"
        assert notes.steps, f"probe {self.id} has noted no step"
        return notes

    def outcome(self, directory: Path) -> tuple[Sequence[ProbeStep], str]:
        """Return the steps taken, and why they decide nothing ("" if they do)."""
        try:
            return self.conduct(directory).steps, ""
        except InfrastructureError as error:
            return (), f"could not be run: {error}"
        except (OSError, EOFError, TimeoutError) as error:
            # A connection was cut, or a process never ended: that says nothing about the claim.
            return (), f"broke off: {str(error) or type(error).__name__}"


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 160 else f"{text[:157]}..."
