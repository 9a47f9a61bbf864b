"""The tests of a message with the selectors of its topic, before the message is stored."""

from __future__ import annotations

from collections.abc import Mapping


class Tested:
    """The result of the tests so far.

    Selectors have numbers that grow: those up to ``upto`` were asked, and ``wanted`` are those that
    match. ``headers`` is what they see, while there are tests.
    """

    __slots__ = ("headers", "upto", "wanted")

    def __init__(self) -> None:
        self.headers: Mapping[str, str] | None = None
        self.upto = 0
        self.wanted: dict[int, None] = {}
