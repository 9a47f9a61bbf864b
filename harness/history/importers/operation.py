"""An operation that Jepsen recorded, and the values that it may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from checkers.intake import IntakeError
from harness.history.importers.edn import Keyword, Opaque, Symbol, shown

KINDS: Final[Mapping[type, str]] = {
    int: "a number", float: "a number", str: "a text", Keyword: "a keyword", Symbol: "a symbol",
}  # fmt: skip
"""The types of value that can be the name of a message; no other value can."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: its process, what it asked for or was answered, and when (ns)."""

    time: int
    process: int
    type: str
    f: str
    form: Mapping[Any, Any]

    @property
    def value(self) -> Any:
        """The value, None if there is none."""
        return self.form.get(Keyword("value"))

    @property
    def head(self) -> dict[str, Any]:
        """The fields that all events of the operation have."""
        return {"time": self.time, "type": self.type, "process": self.process}


def kind_of(value: Any) -> str | None:
    """Return the kind of a value that can be the name of a message, or None."""
    return KINDS.get(type(value))


def named(value: Any, owner: str) -> int | str:
    """Return a message's name. Raises IntakeError for a value that cannot be one."""
    if value is None:
        raise IntakeError(f"the :value of {owner} is nil: it must say which message")
    if kind_of(value) is None:
        why = ", an object that Clojure cannot print" if isinstance(value, Opaque) else ""
        raise IntakeError(
            f"the :value of {owner} has {shown(value):.60}{why}: a message must be a number, a text or a "
            "keyword"
        )
    return value if isinstance(value, int) else shown(value)


def elements(value: Any, owner: str) -> Iterator[Any]:
    """Yield the elements of a vector, list or set; nil has none. Raises IntakeError."""
    if value is None:
        return
    if not isinstance(value, tuple):
        raise IntakeError(f"the :value of {owner} is {shown(value):.40}: it must be a vector")
    yield from value
