"""One operation of Jepsen's, and what its value may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from checkers.intake import IntakeError
from harness.history.importers.edn import Keyword, Opaque, Symbol, shown

KINDS: Final[Mapping[type, str]] = {
    int: "a number", float: "a number", str: "a text", Keyword: "a keyword", Symbol: "a symbol",
}  # fmt: skip
"""What a message may be called by. Whatever else a client wrote is no name of a message."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Who asked for what, or was answered what, and when (ns)."""

    time: int
    process: int
    type: str
    f: str
    form: Mapping[Any, Any]

    @property
    def value(self) -> Any:
        """The value, None where there is none."""
        return self.form.get(Keyword("value"))

    @property
    def head(self) -> dict[str, Any]:
        """What its events have in common."""
        return {"time": self.time, "type": self.type, "process": self.process}


def kind_of(value: Any) -> str | None:
    """The kind of name that a message may be called by, or None."""
    return KINDS.get(type(value))


def named(value: Any, what: str) -> int | str:
    """Return a message's name. Raises IntakeError for what cannot be one."""
    if value is None:
        raise IntakeError(f"the :value of {what} is nil: it must say which message")
    if kind_of(value) is None:
        why = ", an object that Clojure cannot print" if isinstance(value, Opaque) else ""
        raise IntakeError(
            f"the :value of {what} has {shown(value):.60}{why}: a message must be a number, a text or a "
            "keyword"
        )
    return value if isinstance(value, int) else shown(value)


def elements(value: Any, what: str) -> Iterator[Any]:
    """Yield the elements of a vector, list or set; of nil none. Raises IntakeError."""
    if value is None:
        return
    if not isinstance(value, tuple):
        raise IntakeError(f"the :value of {what} is {shown(value):.40}: it must be a vector")
    yield from value
