"""Selectors: which messages a consumer wants.

Said as the conditional expressions of SQL-92 that JMS has ("Message selector syntax").

What a selector sees are the headers of a STOMP message, which are strings, all but the few that
have a meaning in JMS (``NAMES``). As in Artemis a string is no number, and a comparison of
different types is false: ``age > 18`` never holds of the header ``age:21``, and
``convert_string_expressions:age > 18`` does: with that prefix a string that meets a number or a
boolean is read as one. ``hyphenated_props:`` allows ``-`` in names (then a subtraction needs
spaces); without it such a name stands in double quotes.

Three values: a header that is not there is *null*, a comparison with it *unknown*, and what is
unknown is not delivered.

Otherwise than Artemis, and as SQL has it: ``NOT age = 1`` is ``NOT (age = 1)``; a comparison with
null is always unknown (there ``'x' <> missing`` is true); and with ``convert_string_expressions:``
``0.5`` is a number wherever ``5`` is. Division by zero is unknown, too. There are no ``XPATH``,
``%`` and comments.

Bounds, since anybody may send one: ``SelectorBounds`` (``acceptor.max-selector-characters``,
``acceptor.max-selector-terms``), and ``DEPTH_MAX`` parentheses within each other. Evaluation has no
backtracking, and costs a step for each term at the most. Selectors that say the same are one
object, so who asks many of them need ask each object but once.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from lark import Lark, Token

DEPTH_MAX: Final = 32
"""How deep parentheses may nest."""
_LONG: Final = 2**63

Value: TypeAlias = bool | int | float | str | None
"""None is null, and as a truth value unknown."""
Headers: TypeAlias = Mapping[str, str]
Evaluate: TypeAlias = Callable[[Headers], Value]
Kind: TypeAlias = Literal["condition", "number", "text", "name"]

_CONVERT: Final = "convert_string_expressions:"
_HYPHENATED: Final = "hyphenated_props:"
_PREFIXES: Final = (_CONVERT, _HYPHENATED, f"no_{_CONVERT}", f"no_{_HYPHENATED}")


class SelectorError(ValueError):
    """It is no selector; the text is one sentence with the position."""


class SelectorBounds(NamedTuple):
    """The bounds on the size of a selector that a client sends.

    ``terms``: names, constants, comparisons, operations, and words like NOT; a list of IN is one.
    """

    characters: int
    terms: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Selector:
    """A compiled selector; two whose normalized ``text`` is the same are equal.

    ``terms`` is what one evaluation costs at the most.
    """

    text: str
    _evaluate: Evaluate = field(compare=False, repr=False)
    terms: int = field(default=1, compare=False)

    def matches(self, headers: Headers) -> bool:
        """Does a message with these headers match? What is unknown does not."""
        return self._evaluate(headers) is True


_compiled: Final[WeakValueDictionary[str, Selector]] = WeakValueDictionary()
"""Selectors in use, by the texts of clients: many subscribe with the same one."""
_meanings: Final[WeakValueDictionary[str, Selector]] = WeakValueDictionary()
"""The same by their normalized text."""


def compile_selector(text: str, bounds: SelectorBounds | None = None) -> Selector:
    """Compile a selector, or find the one in use that says the same. Raises SelectorError.

    ``bounds`` are for what a client sends; what a store has was within them once.
    """
    if bounds is not None and len(text) > bounds.characters:
        raise SelectorError(
            f"the selector has {len(text)} characters: at most {bounds.characters} are allowed "
            "(acceptor.max-selector-characters)"
        )
    selector = _compiled.get(text)
    if selector is None:
        selector = _compile(text, bounds)
        selector = _compiled[text] = _meanings.setdefault(selector.text, selector)
    elif bounds is not None and selector.terms > bounds.terms:
        raise _too_many(bounds.terms)
    return selector


def ungrouped(selectors: Sequence[Selector]) -> Selector:
    """Return a selector of the messages without a group that one of these selectors matches."""
    return Selector(
        "\n".join(("ungrouped:", *sorted(selector.text for selector in selectors))),
        lambda headers: (
            "JMSXGroupID" not in headers and any(selector.matches(headers) for selector in selectors)
        ),
        sum(selector.terms for selector in selectors) + 1,
    )


def _compile(text: str, bounds: SelectorBounds | None) -> Selector:
    convert = hyphenated = False
    start = len(text) - len(text.lstrip())
    while prefix := next((prefix for prefix in _PREFIXES if text.startswith(prefix, start)), ""):
        if prefix.endswith(_CONVERT):
            convert = prefix == _CONVERT
        else:
            hyphenated = prefix == _HYPHENATED
        start += len(prefix)
    root = _parse(text, start, hyphenated=hyphenated, convert=convert)
    if bounds is not None and root.terms > bounds.terms:
        raise _too_many(bounds.terms)
    return Selector(f"{_CONVERT if convert else ''}{root.text}", root.evaluate, root.terms)


def _too_many(terms: int) -> SelectorError:
    return SelectorError(
        f"the selector has more than {terms} names, constants and operations (acceptor.max-selector-terms)"
    )


# -------------------------------------------------------------------------------------------- names


def _text(header: str, headers: Headers) -> Value:
    return headers.get(header)


def _number(header: str, default: int | None, headers: Headers) -> Value:
    text = headers.get(header)
    return default if text is None else _as_number(text)


def _always(value: Value, _: Headers) -> Value:
    return value


def _queue_name(headers: Headers) -> Value:
    destination = headers.get("destination")
    return None if destination is None else destination.removeprefix("/queue/").removeprefix("/topic/")


_HEADERS: Final[Mapping[str, str]] = {
    "JMSCorrelationID": "correlation-id",
    "JMSDestination": "destination",
    "JMSMessageID": "message-id",
    "JMSReplyTo": "reply-to",
    "JMSType": "type",
    "AMQGroupID": "JMSXGroupID",
    "AMQUserID": "message-id",
}
"""Names that are the text of another header."""
NAMES: Final[Mapping[str, Evaluate]] = {
    **{name: partial(_text, header) for name, header in _HEADERS.items()},
    "JMSDeliveryMode": partial(_always, "PERSISTENT"),
    "JMSExpiration": partial(_number, "expires", 0),
    "JMSPriority": partial(_number, "priority", 4),
    "JMSTimestamp": partial(_number, "timestamp", None),
    "JMSXGroupSeq": partial(_number, "JMSXGroupSeq", None),
    "AMQAddress": _queue_name,
    "AMQDurable": partial(_always, "DURABLE"),
    "AMQExpiration": partial(_number, "expires", 0),
    "AMQPriority": partial(_number, "priority", 4),
    "AMQTimestamp": partial(_number, "timestamp", None),
}
"""Names with a meaning: those of JMS (ActiveMQ Classic) and of Artemis' filter expressions. Any
other is the header of that name."""


# ------------------------------------------------------------------------------------------ grammar

_GRAMMAR: Final = r"""
    start: either
    either: both (_OR both)*
    both: test (_AND test)*
    test: NOT* comparison
    comparison: sum
        | sum COMPARE sum                                   -> compare
        | sum _IS NOT? _NULL                                -> is_null
        | sum NOT? _BETWEEN sum _AND sum                    -> between
        | sum NOT? _LIKE TEXT (_ESCAPE TEXT)?               -> like
        | sum NOT? _IN "(" TEXT ("," TEXT)* ")"             -> within
    sum: product ((PLUS | MINUS) product)*
    product: unary ((TIMES | DIVIDED) unary)*
    unary: (PLUS | MINUS)* primary
    primary: TEXT           -> text
        | NUMBER            -> number
        | (TRUE | FALSE)    -> constant
        | NAME              -> name
        | QUOTED            -> quoted
        | OPEN either ")"   -> nested

    OPEN: "("
    COMPARE: "<>" | "<=" | ">=" | "=" | "<" | ">"
    PLUS: "+"
    MINUS: "-"
    TIMES: "*"
    DIVIDED: "/"
    NOT.2: /NOT{end}/i
    _AND.2: /AND{end}/i
    _OR.2: /OR{end}/i
    _IS.2: /IS{end}/i
    _NULL.2: /NULL{end}/i
    _BETWEEN.2: /BETWEEN{end}/i
    _LIKE.2: /LIKE{end}/i
    _ESCAPE.2: /ESCAPE{end}/i
    _IN.2: /IN{end}/i
    TRUE.2: /TRUE{end}/i
    FALSE.2: /FALSE{end}/i
    TEXT: /'(?:[^']|'')*'/
    QUOTED: /"(?:[^"]|"")+"/
    NUMBER: /(?:0x[0-9a-f]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[0-9]+(?:e[+-]?[0-9]+|l)?){end}/i
    NAME: /(?!\d)[\w$][\w${more}]*/
    %ignore /\s+/
"""


@cache
def _parser(*, hyphenated: bool, convert: bool) -> Lark:
    from lark import Lark  # noqa: PLC0415 - a twentieth of a second that only selectors need

    more = "-" if hyphenated else ""
    grammar = _GRAMMAR.replace("{end}", rf"(?![\w${more}])").replace("{more}", more)
    return Lark(grammar, parser="lalr", transformer=_Compiler(convert=convert), maybe_placeholders=False)


def _parse(text: str, start: int, *, hyphenated: bool, convert: bool) -> _Node:
    parser = _parser(hyphenated=hyphenated, convert=convert)
    from lark import UnexpectedCharacters, UnexpectedToken  # noqa: PLC0415 - the same

    try:
        root = parser.parse(" " * start + text[start:])
    except UnexpectedCharacters as error:
        position = error.pos_in_stream or 0
        raise _error(position, f"{text[position]!r} begins nothing known") from None
    except UnexpectedToken as error:
        if error.token.type == "$END":
            raise SelectorError("the selector ends where more is expected") from None
        position = error.token.start_pos or 0
        raise _error(position, f"{str(error.token)[:64]!r} is not expected here") from None
    return cast("_Node", root)  # the transformer's, and no tree


def _error(position: int, what: str) -> SelectorError:
    return SelectorError(f"at character {position + 1} of the selector {what}")


class _Node(NamedTuple):
    """A part of a selector: its normalized text, and how its value is found.

    ``header``: it is the text of that header, or null. ``value``: it is this text.
    """

    text: str
    kind: Kind
    position: int
    depth: int
    evaluate: Evaluate
    terms: int = 1
    header: str | None = None
    value: str | None = None


class _Compiler:
    """What becomes of each rule of the grammar, innermost first, without recursion."""

    def __init__(self, *, convert: bool) -> None:
        self._convert = convert

    # ------------------------------------------------------------------------------------- operands

    def text(self, children: Sequence[Token]) -> _Node:
        value = _unquoted(children[0])
        return _Node(_quoted(value), "text", _at(children[0]), 0, partial(_always, value), value=value)

    def number(self, children: Sequence[Token]) -> _Node:
        token = children[0]
        value = _literal(token)
        if value is None:
            raise _error(_at(token), f"{str(token)[:64]!r} is no number of 64 bits")
        return _Node(repr(value), "number", _at(token), 0, partial(_always, value))

    def constant(self, children: Sequence[Token]) -> _Node:
        text = children[0].upper()
        return _Node(text, "condition", _at(children[0]), 0, partial(_always, text == "TRUE"))

    def name(self, children: Sequence[Token]) -> _Node:
        return self._name(children[0], str(children[0]))

    def quoted(self, children: Sequence[Token]) -> _Node:
        return self._name(children[0], children[0][1:-1].replace('""', '"'))

    def _name(self, token: Token, name: str) -> _Node:
        text = '"' + name.replace('"', '""') + '"'
        evaluate = NAMES.get(name)
        if evaluate is not None:
            return _Node(text, "name", _at(token), 0, evaluate, header=_HEADERS.get(name))
        return _Node(text, "name", _at(token), 0, partial(_text, name), header=name)

    def nested(self, children: tuple[Token, _Node]) -> _Node:
        opened, node = children
        if node.depth >= DEPTH_MAX:
            raise _error(_at(opened), f"parentheses are more than {DEPTH_MAX} deep")
        return node._replace(position=_at(opened), depth=node.depth + 1, header=None, value=None)

    # ----------------------------------------------------------------------------------- arithmetic

    def unary(self, children: Sequence[Any]) -> _Node:
        *signs, node = children
        if not signs:
            return node  # type: ignore[no-any-return]
        _demand_number(node)
        negative = sum(sign == "-" for sign in signs) % 2 == 1
        return _node(
            f"{'-' if negative else '+'}{node.text}",
            "number",
            (node,),
            partial(_signed, node.evaluate, negative, self._convert),
            _at(signs[0]),
        )

    def sum(self, children: Sequence[Any]) -> _Node:
        first, *more = children
        if not more:
            return first  # type: ignore[no-any-return]
        nodes = children[::2]
        for node in nodes:
            _demand_number(node)
        steps = tuple(
            (_OPERATIONS[str(sign)], node.evaluate)
            for sign, node in zip(children[1::2], children[2::2], strict=True)
        )
        text = " ".join(one.text if isinstance(one, _Node) else str(one) for one in children)
        return _node(f"({text})", "number", nodes, partial(_calculated, first.evaluate, steps, self._convert))

    product = sum  # noqa: A003 - the rule's name

    # ----------------------------------------------------------------------------------- conditions

    def comparison(self, children: Sequence[_Node]) -> _Node:
        return children[0]

    def compare(self, children: tuple[_Node, Token, _Node]) -> _Node:
        left, sign, right = children
        if sign not in ("=", "<>"):
            _demand_number(left)
            _demand_number(right)
        elif "name" not in (left.kind, right.kind) and left.kind != right.kind:
            raise _error(right.position, f"a {right.kind} is compared with a {left.kind}")
        return self._compared(left, str(sign), right)

    def _compared(self, left: _Node, sign: str, right: _Node) -> _Node:
        text = f"({left.text} {sign} {right.text})"
        if sign in ("=", "<>") and left.header is not None and right.value is not None:
            evaluate = _text_equals(left.header, right.value, negated=sign == "<>")
        else:
            evaluate = _comparison(left.evaluate, sign, right.evaluate, convert=self._convert)
        return _node(text, "condition", (left, right), evaluate)

    def is_null(self, children: Sequence[Any]) -> _Node:
        node, *negated = children
        if node.kind != "name":
            raise _error(node.position, "IS NULL is asked of what is no name")
        text = f"({node.text} IS {'NOT ' if negated else ''}NULL)"
        return _node(text, "condition", (node,), partial(_is_null, node.evaluate, bool(negated)))

    def between(self, children: Sequence[Any]) -> _Node:
        value, *negated, low, high = children
        for node in (value, low, high):
            _demand_number(node)
        if negated:
            return self._joined((self._compared(value, "<", low), self._compared(value, ">", high)), "OR")
        return self._joined((self._compared(value, ">=", low), self._compared(value, "<=", high)), "AND")

    def like(self, children: Sequence[Any]) -> _Node:
        node, *rest = children
        negated = rest[0].type == "NOT"
        pattern, *escapes = rest[negated:]
        if node.kind != "name":
            raise _error(node.position, "LIKE is asked of what is no name")
        escape = _unquoted(escapes[0]) if escapes else ""
        if escapes and len(escape) != 1:
            raise _error(_at(escapes[0]), "ESCAPE is not followed by one character in quotes")
        text = f"{node.text} {'NOT ' if negated else ''}LIKE {_quoted(_unquoted(pattern))}"
        return _node(
            f"({text}{f' ESCAPE {_quoted(escape)}' if escape else ''})",
            "condition",
            (node,),
            partial(_like, node.evaluate, _pattern(_unquoted(pattern), escape), negated),
        )

    def within(self, children: Sequence[Any]) -> _Node:
        node, *rest = children
        negated = rest[0].type == "NOT"
        if node.kind != "name":
            raise _error(node.position, "IN is asked of what is no name")
        texts = sorted({_unquoted(token) for token in rest[negated:]})
        return _node(
            f"({node.text} {'NOT ' if negated else ''}IN ({', '.join(map(_quoted, texts))}))",
            "condition",
            (node,),
            partial(_within, node.evaluate, frozenset(texts), negated),
        )

    def test(self, children: Sequence[Any]) -> _Node:
        *negations, node = children
        if not negations:
            return node  # type: ignore[no-any-return]
        node = self._condition(node)
        if len(negations) % 2 == 0:
            return node
        return _node(
            f"(NOT {node.text})", "condition", (node,), partial(_negated, node.evaluate), _at(negations[0])
        )

    def both(self, children: Sequence[_Node]) -> _Node:
        return children[0] if len(children) == 1 else self._joined(children, "AND")

    def either(self, children: Sequence[_Node]) -> _Node:
        return children[0] if len(children) == 1 else self._joined(children, "OR")

    def start(self, children: Sequence[_Node]) -> _Node:
        return self._condition(children[0])

    def _joined(self, nodes: Sequence[_Node], word: Literal["AND", "OR"]) -> _Node:
        nodes = [self._condition(node) for node in nodes]
        evaluates = tuple(node.evaluate for node in nodes)
        text = f" {word} ".join(node.text for node in nodes)
        return _node(f"({text})", "condition", nodes, _joined(evaluates, decisive=word == "OR"))

    def _condition(self, node: _Node) -> _Node:
        if node.kind == "name":
            return node._replace(kind="condition", evaluate=partial(_truth, node.evaluate, self._convert))
        if node.kind != "condition":
            raise _error(node.position, f"a {node.kind} stands where a condition is expected")
        return node


def _node(
    text: str, kind: Kind, parts: Sequence[_Node], evaluate: Evaluate, position: int | None = None
) -> _Node:
    at = parts[0].position if position is None else position
    depth = max(part.depth for part in parts)
    return _Node(text, kind, at, depth, evaluate, 1 + sum(part.terms for part in parts))


def _demand_number(node: _Node) -> None:
    if node.kind not in ("number", "name"):
        raise _error(node.position, f"a {node.kind} stands where a number is expected")


def _at(token: Token) -> int:
    return token.start_pos or 0


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(token: Token) -> int | float | None:
    """As Java reads them: 0x1F, 017 (octal), 42, 42L, 1.5, 5., .5, 1E3."""
    text = token.lower().removesuffix("l") if "x" not in token.lower() else token.lower()
    if text.isdecimal() or "x" in text:
        base = 16 if "x" in text else 8 if len(text) > 1 and text[0] == "0" else 10
        try:
            value = int(text, base)
        except ValueError:
            return None
        return value if value < _LONG else None
    number = float(text)
    return number if math.isfinite(number) else None


# --------------------------------------------------------------------------------------- evaluation

_NUMBER: Final = re.compile(r"[+-]?(?:([0-9]{1,18})|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_NUMBER_MAX: Final = 64
"""Characters of a header that is read as a number."""


def _as_number(text: str) -> int | float | None:
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= _NUMBER_MAX else None
    if found is None:
        return None
    return int(text) if found[1] else float(text)


def _operand(value: Value, convert: bool) -> int | float | None:
    """A value as a number, None where it is none."""
    if type(value) is int or type(value) is float:
        return value
    return _as_number(value) if convert and type(value) is str else None


def _signed(evaluate: Evaluate, negative: bool, convert: bool, headers: Headers) -> Value:
    value = _operand(evaluate(headers), convert)
    return value if value is None or not negative else -value


def _divided(left: float, right: float) -> float | None:
    return left / right if right else None  # of whole numbers, too: as in ActiveMQ


_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], int | float | None]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
}


def _calculated(
    first: Evaluate,
    steps: Sequence[tuple[Callable[[Any, Any], int | float | None], Evaluate]],
    convert: bool,
    headers: Headers,
) -> Value:
    value = _operand(first(headers), convert)
    for operation, evaluate in steps:
        other = _operand(evaluate(headers), convert)
        if value is None or other is None:
            return None
        value = operation(value, other)
        if type(value) is int and not -_LONG <= value < _LONG:
            value = float(value)  # or products could grow without end
    return value


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _text_equals(header: str, text: str, *, negated: bool) -> Evaluate:
    """``header = 'text'``, which most selectors are made of."""

    def equal(headers: Headers) -> Value:
        value = headers.get(header)
        return None if value is None else value == text

    def different(headers: Headers) -> Value:
        value = headers.get(header)
        return None if value is None else value != text

    return different if negated else equal


def _comparison(left: Evaluate, sign: str, right: Evaluate, *, convert: bool) -> Evaluate:
    """Different types: never equal, and in no order."""
    compare, equality, negated = _COMPARISONS[sign], sign in ("=", "<>"), sign == "<>"

    def evaluate(headers: Headers) -> Value:
        value, other = left(headers), right(headers)
        if value is None or other is None:
            return None
        if convert:
            value, other = _converted(value, other, equality), _converted(other, value, equality)
        kind = _type(value)
        is_comparable = kind == _type(other) and (equality or kind == "number")
        return (is_comparable and compare(value, other)) != negated

    return evaluate


def _converted(value: str | float, other: str | float, equality: bool) -> str | float:
    if type(value) is not str:
        return value
    if type(other) is bool:
        return value.lower() == "true"
    if type(other) is str and equality:
        return value
    number = _as_number(value)
    return value if number is None else number


def _type(value: str | float) -> Kind:
    return "text" if type(value) is str else "condition" if type(value) is bool else "number"


def _truth(evaluate: Evaluate, convert: bool, headers: Headers) -> Value:
    value = evaluate(headers)
    if value is None or type(value) is bool:
        return value
    return convert and type(value) is str and value.lower() == "true"


def _is_null(evaluate: Evaluate, negated: bool, headers: Headers) -> Value:
    return (evaluate(headers) is None) != negated


def _negated(evaluate: Evaluate, headers: Headers) -> Value:
    value = evaluate(headers)
    return None if value is None else not value


def _joined(evaluates: Sequence[Evaluate], *, decisive: bool) -> Evaluate:
    """OR (one that is true decides) or AND (one that is false); else unknown if any is."""

    def evaluate(headers: Headers) -> Value:
        result: Value = not decisive
        for part in evaluates:
            value = part(headers)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


def _within(evaluate: Evaluate, texts: frozenset[str], negated: bool, headers: Headers) -> Value:
    value = evaluate(headers)
    return None if value is None else (value in texts) != negated


def _like(evaluate: Evaluate, pattern: re.Pattern[str], negated: bool, headers: Headers) -> Value:
    value = evaluate(headers)
    if value is None:
        return None
    return (type(value) is str and pattern.fullmatch(value) is not None) != negated


def _pattern(like: str, escape: str) -> re.Pattern[str]:
    """Each piece between two ``%`` is looked for once, in an atomic group: no backtracking."""
    pieces = [""]
    escaped = False
    for character in like:
        if escaped:
            pieces[-1] += re.escape(character)
            escaped = False
        elif character == escape:
            escaped = True
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    if escaped:
        pieces[-1] += re.escape(escape)
    first, *more = pieces
    if not more:
        return re.compile(first, re.DOTALL)
    *middle, last = more
    found = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)
