"""A reader of EDN, form by form: the notation of Clojure's data, as far as Jepsen writes it.

Why a reader of our own: a history has a million forms of one line, and must be read without being
held in memory; the needed part of the notation is a page (https://github.com/edn-format/edn).

It reads maps (with a namespace, too), vectors, lists, sets, texts, characters, keywords, symbols,
numbers, ``nil``, ``true`` and ``false``, comments and discards. A tag is dropped and what it tags
is read: ``#jepsen.history.Op{...}`` is a map. A vector is a tuple; lists and sets are tuples of
their own classes, a set in the order in which it is written.

Clojure also prints what it cannot read again: ``#object[...]``, ``#<...>``, ``#'name`` and patterns
(``#"..."``). Each is an ``Opaque`` form, because most are in fields that no importer needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

DEEPEST: Final = 100
LONGEST: Final = 16 * 1024 * 1024
"""The maximum number of characters of a text before it is closed."""

_PIECE: Final = re.compile(
    r"""
    (?P<space>[\s,]+|;.*) |
    (?P<text>"(?:[^"\\]|\\.)*") |
    (?P<cut>"(?:[^"\\]|\\.)*) |
    (?P<character>\\(?:u[0-9A-Fa-f]{4}|o[0-7]{1,3}|[a-z]{3,}|.)) |
    (?P<opaque>\#<[^\n]*|\#'[^\s,;"\[\](){}]+) |
    (?P<pattern>\#(?=")) |
    (?P<open>\#\{|[\[({]) |
    (?P<close>[\])}]) |
    (?P<discard>\#_) |
    (?P<symbolic>\#\#(?:Inf|-Inf|NaN)) |
    (?P<prefix>\#:[^\s,;"\[\](){}]+) |
    (?P<tag>\#[A-Za-z][^\s,;"\[\](){}]*) |
    (?P<keyword>:[^\s,;"\\\[\](){}^@`~]+) |
    (?P<word>[^\s,;"\\\[\](){}\#:^@`~][^\s,;"\\\[\](){}^@`~]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTINUED: Final = re.compile(r'(?:[^"\\]|\\.)*(")?', re.DOTALL)
"""The rest of a text, from somewhere within it to its end or the end of the line."""
_INTEGER: Final = re.compile(r"[+-]?\d+N?")
_FLOAT: Final = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
_RATIO: Final = re.compile(r"[+-]?\d+/\d+")
_CLOSES: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_CHARACTERS: Final = {
    "newline": "\n", "space": " ", "tab": "\t", "return": "\r", "formfeed": "\f", "backspace": "\b",
}  # fmt: skip
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", '"': '"', "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_DISCARD: Final = "discard"
_TAG: Final = "tag"
_PATTERN: Final = "pattern"
_OBJECT: Final = "#object"
_PREFIXES: Final = (_DISCARD, _TAG, _PATTERN)
_NOTHING: Final = object()


class EdnError(ValueError):
    """A text that is not EDN: the line, and what is wrong there."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


class Keyword(str):
    """A keyword: ``:name``, without the colon."""

    __slots__ = ()


class Symbol(str):
    """A name that is neither a keyword nor ``nil``, ``true`` or ``false``."""

    __slots__ = ()


class Opaque(str):
    """A form that Clojure prints and cannot read again, as written in the file."""

    __slots__ = ()


class List(tuple[Any, ...]):
    """A list: ``(...)``."""

    __slots__ = ()


class Set(tuple[Any, ...]):
    """A set: ``#{...}``."""

    __slots__ = ()


@dataclass(slots=True)
class _Open:
    """A collection that is not closed yet, or a tag or discard that waits for its form.

    ``prefix`` is the namespace of a map, or the name of a tag.
    """

    sign: str
    line: int
    forms: list[Any] = field(default_factory=list)
    prefix: str = ""


def forms(lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """Yield each form of a file, with the number of the line on which it ends.

    If the file begins with a vector or a list, yield each form in that. Raises EdnError.
    """
    reader = _Reader()
    for line, kind, piece in _pieces(lines):
        form = reader.take(line, kind, piece)
        if form is not _NOTHING:
            yield line, form
    reader.end()


def _pieces(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the line, kind and text of each piece of a file except spaces and comments.

    A text of many lines is put together when it ends: each line is read once.
    """
    open_text: list[str] = []
    length, since, escaping = 0, 0, ""
    for number, next_line in enumerate(lines, 1):
        line, position = escaping + next_line, 0
        while position < len(line):
            matched = (_CONTINUED if open_text else _PIECE).match(line, position)
            if matched is None:
                wrong = line[position : position + 20].split()[0]
                raise EdnError(number, f"no EDN can begin with {wrong!r}")
            start, position = position, matched.end()
            kind = "cut" if open_text else str(matched.lastgroup)
            if kind == "opaque" and matched.group().startswith("#<"):
                position = _end_of_opaque(line, start, number)
            if kind == "cut":
                since = since if open_text else number
                open_text.append(matched.group())
                length += len(matched.group())
                if length > LONGEST:
                    raise EdnError(since, "a text that begins here is not closed")
                if len(open_text) > 1 and matched[1] is not None:
                    yield number, "text", "".join(open_text)
                    open_text, length = [], 0
                else:  # to the end of the line, or to a backslash that is its last character
                    break
            elif kind != "space":
                yield number, kind, line[start:position]
        escaping = line[position:] if open_text else ""
    if open_text:
        raise EdnError(since, "a text that begins here is not closed")


def _end_of_opaque(text: str, start: int, line: int) -> int:
    """Return where ``#<...>`` ends: at the ``>`` that closes it, as far as that can be told."""
    depth = 0
    for bracket in re.compile(r"[<>\n]").finditer(text, start):
        depth += {"<": 1, ">": -1}.get(bracket.group(), 0)
        if not depth:
            return bracket.end()
        if bracket.group() == "\n":
            break
    raise EdnError(line, '"#<" is not closed on its line')


class _Reader:
    """A builder of forms from their pieces."""

    def __init__(self) -> None:
        self._stack: list[_Open] = []
        self._whole: _Open | None = None
        self._begun = self._over = False
        self._prefix = ""
        self._objects = 0  # the number of open forms of _is_opaque, whose contents need not be EDN

    def take(self, line: int, kind: str, piece: str) -> Any:
        """Return the outermost form that this piece completes, or ``_NOTHING``."""
        if self._prefix and piece != "{":
            raise EdnError(line, f"#:{self._prefix} is followed by {piece!r:.30}: it must be a map")
        if self._over and not self._stack and kind != "discard":
            raise EdnError(line, f"{piece!r:.30} follows the end of the history")
        if kind == "open":
            if not self._begun and not self._stack and piece in "[(":
                self._whole, self._begun = _Open(piece, line), True
            else:
                self._stack.append(_Open(piece, line, prefix=self._prefix))
                self._prefix, self._begun = "", True
        elif kind in _PREFIXES:
            self._stack.append(_Open(kind, line, prefix=piece))
            self._objects += _is_opaque(self._stack[-1])
        elif kind == "prefix":
            self._prefix = piece[2:].lstrip(":")
        elif kind != "close":
            return self._put(Opaque(piece) if self._objects else _atom(kind, piece, line))
        elif self._stack:
            return self._put(_closed(self._stack.pop(), piece, line))
        elif self._whole is not None and piece == _CLOSES[self._whole.sign]:
            self._whole, self._over = None, True
        else:
            raise EdnError(line, f'"{piece}" closes nothing')
        if len(self._stack) > DEEPEST:
            raise EdnError(line, f"forms within forms, more than {DEEPEST} deep")
        return _NOTHING

    def end(self) -> None:
        """Raise EdnError for a form that is not closed."""
        for unclosed in (*self._stack[:1], *([self._whole] if self._whole is not None else ())):
            if unclosed.sign in _PREFIXES:
                raise EdnError(unclosed.line, "nothing follows a tag or discard")
            raise EdnError(unclosed.line, f'"{unclosed.sign}" is not closed: the file ends before')
        if self._prefix:
            raise EdnError(0, f"#:{self._prefix} is followed by nothing: it must be a map")

    def _put(self, form: Any) -> Any:
        self._begun = True
        while self._stack and self._stack[-1].sign in _PREFIXES:
            prefix = self._stack.pop()
            self._objects -= _is_opaque(prefix)
            if prefix.sign == _DISCARD:
                return _NOTHING
            if _is_opaque(prefix):
                form = Opaque(f"{prefix.prefix}{shown(form)}")
        if not self._stack:
            return form
        self._stack[-1].forms.append(form)
        return _NOTHING


def _is_opaque(prefix: _Open) -> bool:
    """Return whether the next form belongs to an object or a pattern, and need not be EDN."""
    return prefix.sign == _PATTERN or prefix.prefix == _OBJECT


def _closed(opened: _Open, piece: str, line: int) -> Any:
    if opened.sign in _PREFIXES:
        raise EdnError(line, "nothing follows a tag or discard")
    if piece != _CLOSES[opened.sign]:
        raise EdnError(line, f'"{piece}" does not close "{opened.sign}" of line {opened.line}')
    if opened.sign != "{":
        return {"[": tuple, "(": List, "#{": Set}[opened.sign](opened.forms)
    if len(opened.forms) % 2:
        raise EdnError(line, "a map with a key that has no value")
    result: dict[Any, Any] = {}
    for key, value in zip(opened.forms[::2], opened.forms[1::2], strict=True):
        name = _with_prefix(key, opened.prefix) if opened.prefix else key
        try:
            result[name] = value
        except TypeError:  # a map as a key, or within one: no operation has such a field
            result[Opaque(shown(key))] = value
    return result


def _with_prefix(key: Any, prefix: str) -> Any:
    if not isinstance(key, Keyword):
        return key
    space, slash, name = key.partition("/")
    if slash and space == "_":
        return Keyword(name)
    return key if slash else Keyword(f"{prefix}/{key}")


def _atom(kind: str, piece: str, line: int) -> Any:
    match kind:
        case "keyword":
            return Keyword(piece.lstrip(":"))
        case "text":
            return piece[1:-1] if "\\" not in piece else _text(piece[1:-1], line)
        case "opaque":
            return Opaque(piece)
        case "character":
            return _character(piece[1:], line)
        case "symbolic":
            return float(piece[2:])
    match piece:
        case "nil":
            return None
        case "true":
            return True
        case "false":
            return False
    if piece[0].isdigit() or (piece[0] in "+-" and piece[1:2].isdigit()):
        return _number(piece, line)
    return Symbol(piece)


def _number(piece: str, line: int) -> Any:
    try:
        if _INTEGER.fullmatch(piece):
            return int(piece.rstrip("N"))
        if _FLOAT.fullmatch(piece):
            return float(piece.rstrip("M"))
        if _RATIO.fullmatch(piece):
            return float(Fraction(piece))
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    raise EdnError(line, f"{piece!r:.40} is no number")


def _text(piece: str, line: int) -> str:
    """Return a text without its escapes; two escapes may be the halves of one surrogate pair."""
    text = _ESCAPE.sub(lambda found: _escaped(found, line), piece)
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return text  # half of a pair, which is refused if the text is needed


def _escaped(escape: re.Match[str], line: int) -> str:
    word = escape[1]
    if len(word) > 1:
        return chr(int(word[1:], 16))
    if word not in _ESCAPES:
        raise EdnError(line, f'"\\{word}" in a text is an unknown escape')
    return _ESCAPES[word]


def _character(word: str, line: int) -> str:
    if len(word) == 1:
        return word
    if word in _CHARACTERS:
        return _CHARACTERS[word]
    if word[0] == "u" and len(word) == 5:
        return chr(int(word[1:], 16))
    if word[0] == "o" and word[1:].isdecimal():
        return chr(int(word[1:], 8))
    raise EdnError(line, f'"\\{word}" is no character')


def shown(form: Any) -> str:
    """Return a form as text; equal forms have equal texts."""
    match form:
        case Keyword():
            return f":{form}"
        case str():
            return str(form)
        case None:
            return "nil"
        case bool():
            return "true" if form else "false"
        case tuple():
            begin, end = {List: "()", Set: ("#{", "}")}.get(type(form), "[]")
            return f"{begin}{' '.join(map(shown, form))}{end}"
        case dict():
            return "{" + ", ".join(f"{shown(key)} {shown(value)}" for key, value in form.items()) + "}"
        case _:
            return str(form)
