"""The STOMP codec without I/O: a parser of bytes into frames, and an encoder of frames.

Why no I/O: the same codec serves the broker's sessions, the test clients and a simulated network,
and its tests need no socket. Why so little work per frame: all load on the broker and all that the
clients record passes through here, in pure Python. A frame costs one search for the end of its
headers, one decoding of the whole header block, and one split into lines. Only blocks with an
escape, a carriage return or a repeated header take the slow path.

A server reads all versions of the protocol (``versions``); the encoder writes 1.2, the clients'
half.

Sources: the STOMP specifications. Two interpretations of them: an unescaped ":" in a header's
*value* is accepted, as every server does (the first ":" ends the name). A frame other than SEND,
MESSAGE and ERROR with a body is refused, unless the body has only line ends, with which many
clients end their CONNECT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from stomp_protocol.errors import LocalProtocolError, RemoteProtocolError
from stomp_protocol.frames import COMMANDS, NO_HEADERS, UNESCAPED, WITH_BODY, Frame, LargeHead, LargePart
from stomp_protocol.limits import DEFAULT_LIMITS, Limits
from stomp_protocol.versions import V1_2, Version, escaped

_HEADERS_END: Final = re.compile(rb"\n\r?\n")
_NOT_A_LINE_END: Final = re.compile(rb"[^\r\n]|\r(?!\n)")
_COMMAND_BYTES: Final = max(map(len, COMMANDS)) + len("\r")
"""The length of the longest first line that can be a command."""
_LENGTH_DIGITS: Final = 18

NOT_LARGE: Final = -1
UNTIL_NUL: Final = -2


class Parser:
    """A parser that turns a stream of bytes, cut anywhere, into frames.

    Memory is bounded by the limits. Where these have ``large_from``, large bodies are returned as
    ``LargeHead`` and ``LargePart``s, and the parser keeps nothing of them. After a
    RemoteProtocolError the stream cannot be resynchronised: every later ``feed`` raises the error
    again, without frames.
    """

    __slots__ = ("_chunks", "_error", "_held", "_large", "_limits", "_searched", "_version", "_wanted")

    def __init__(self, limits: Limits = DEFAULT_LIMITS, version: Version = V1_2) -> None:
        self._limits = limits
        self._version = version
        self._chunks: list[bytes] = []  # the bytes so far of a frame that is not whole
        self._held = 0  # the number of bytes in _chunks
        self._wanted = 0  # parse again when so many bytes are here; -1: when a NUL is
        self._searched = 0  # bytes of the unfinished frame in which its headers do not end
        self._error = ""
        """What was wrong; the exception itself would hold all that its traceback leads to."""
        self._large = (
            NOT_LARGE  # missing bytes of a large body; UNTIL_NUL - bytes so far, if only a NUL ends it
        )

    @property
    def held_bytes(self) -> int:
        """The number of bytes of an unfinished frame; 0 between frames."""
        return self._held

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Take the bytes that arrived, and return the frames that they completed.

        Line ends between frames are heart-beats, and are dropped.

        Raises RemoteProtocolError, with the whole frames before the damage in ``.frames``.
        """
        if self._error:
            raise RemoteProtocolError(self._error)
        data = bytes(data)
        if self._chunks:
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._wanted or (self._wanted < 0 and 0 not in data and not self._overfull()):
                return []
            data = b"".join(self._chunks)
        frames: list[Frame] = []
        try:
            used = self._parse(data, frames)
        except RemoteProtocolError as error:
            error.frames = frames
            self._error = str(error)
            self._chunks = []
            self._held = 0
            raise
        self._held = len(data) - used
        self._chunks = [data[used:]] if self._held else []
        return frames

    def _overfull(self) -> bool:
        limits = self._limits
        body = limits.max_body_bytes if limits.large_from is None else limits.large_from
        return self._held > limits.max_header_bytes + body

    def _parse(self, data: bytes, frames: list[Frame]) -> int:
        """Append the whole frames in ``data``, and return how many bytes they took.

        ``_wanted`` says afterwards what the rest of the data waits for.
        """
        limits = self._limits
        max_body_bytes = limits.max_body_bytes
        large_from = limits.large_from
        version = self._version
        size = len(data)
        position = 0
        searched = self._searched
        self._searched = 0
        self._wanted = 0
        while position < size:
            if self._large != NOT_LARGE:
                position = self._go_on(data, position, frames)
                continue
            if data[position] < 14:
                found = _NOT_A_LINE_END.search(data, position)
                if found is None:
                    return size
                position = found.start()
                if data[position] == 13 and position + 1 == size:
                    return position  # it may be the first half of a line end
            ends = _HEADERS_END.search(data, position + searched)
            if ends is None:
                _refuse_early(data[position : position + limits.max_header_bytes + 2], limits)
                self._searched = max(0, size - position - 2)
                return position
            searched = 0
            end, start = ends.span()
            command, headers = _head(data[position:end], limits, version)
            length = headers.get("content-length")
            if length is None:
                stop = data.find(0, start, start + max_body_bytes + 1)
                if stop < 0 and large_from is not None and size - start >= large_from and command == "SEND":
                    self._large = UNTIL_NUL
                    frames.append(LargeHead(command, headers))
                    position = start
                    continue
                if stop < 0:
                    if size - start > max_body_bytes:
                        raise RemoteProtocolError(f"a body is longer than {max_body_bytes} bytes")
                    self._wanted = -1
                    return position
            else:
                try:
                    stop = start + int(length)
                except ValueError:
                    stop = -1
                if stop - start > max_body_bytes or not _is_length(length):
                    _refuse_length(length, limits)
                if large_from is not None and stop - start >= large_from and command == "SEND":
                    self._large = stop - start
                    frames.append(LargeHead(command, headers))
                    position = start
                    continue
                if stop >= size:
                    self._wanted = stop - position + 1
                    return position
                if data[stop]:
                    raise RemoteProtocolError(f"a body of content-length {length} is not followed by NUL")
            if stop == start:
                frames.append(Frame(command, headers))
            elif command in WITH_BODY:
                frames.append(Frame(command, headers, data[start:stop]))
            elif _NOT_A_LINE_END.search(data, start, stop) is None:
                frames.append(Frame(command, headers))
            else:
                raise RemoteProtocolError(
                    f"{command} has a body, which only {', '.join(sorted(WITH_BODY))} may have"
                )
            position = stop + 1
        return size

    def _go_on(self, data: bytes, position: int, frames: list[Frame]) -> int:
        """Append the next part of a large body, and return where it ends in ``data``."""
        size = len(data)
        due = self._large
        if due <= UNTIL_NUL:
            stop = data.find(0, position)
            end = size if stop < 0 else stop
            due -= end - position
            if UNTIL_NUL - due > self._limits.max_body_bytes:
                raise RemoteProtocolError(f"a body is longer than {self._limits.max_body_bytes} bytes")
            last = stop >= 0
        else:
            end = min(size, position + due)
            due -= end - position
            last = not due and end < size
            if last and data[end]:
                raise RemoteProtocolError("a large body is not followed by NUL where its content-length says")
        if end > position or last:
            frames.append(LargePart("SEND", NO_HEADERS, data[position:end], last))
        self._large = NOT_LARGE if last else due
        return end + 1 if last else end


def _head(block: bytes, limits: Limits, version: Version) -> tuple[str, dict[str, str]]:
    """Return the command and the headers of a block without its last line end."""
    try:
        text = block.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("the headers of a frame are not UTF-8") from None
    if (
        len(block) >= limits.max_header_line_bytes
        or len(block) >= limits.max_header_bytes
        or "\\" in text
        or "\r" in text
        or version.trims
    ):
        return _head_slowly(block, limits, version)
    line, *lines = text.split("\n")
    try:
        headers = dict([line.split(":", 1) for line in lines])
        command = _COMMANDS[line]
    except (ValueError, KeyError):
        return _head_slowly(block, limits, version)
    if len(headers) != len(lines) or len(lines) > limits.max_headers or "" in headers:
        return _head_slowly(block, limits, version)
    return command, headers


def _head_slowly(block: bytes, limits: Limits, version: Version) -> tuple[str, dict[str, str]]:
    """Return the command and the headers of a block, parsed line by line.

    Raises RemoteProtocolError for any violation of the specification, with the violation.
    """
    if len(block) + 1 > limits.max_header_bytes:
        raise RemoteProtocolError(f"the headers of a frame are longer than {limits.max_header_bytes} bytes")
    first, *lines = block.split(b"\n")
    command = COMMANDS.get(first.removesuffix(b"\r"))
    if command is None:
        raise _unknown_command(first)
    if len(lines) > limits.max_headers:
        raise RemoteProtocolError(f"{command} has more than {limits.max_headers} headers")
    headers: dict[str, str] = {}
    for whole in lines:
        line = whole.removesuffix(b"\r") if version.carriage_returns else whole
        if len(line) > limits.max_header_line_bytes:
            raise RemoteProtocolError(
                f"a header line of {command} is longer than {limits.max_header_line_bytes} bytes"
            )
        name, colon, value = line.decode().partition(":")
        if version.trims:
            name, value = name.strip(" \t"), value.strip(" \t")
        if not colon or not name:
            raise RemoteProtocolError(
                f'{command} has the header line {line[:40]!r}, which is not "name:value"'
            )
        if version.carriage_returns and b"\r" in line:
            raise RemoteProtocolError(f"the header {name[:40]!r} of {command} has a carriage return in it")
        if command not in UNESCAPED and b"\\" in line:
            try:
                name, value = version.unescape(name), version.unescape(value)
            except KeyError as error:
                raise RemoteProtocolError(
                    f"a header of {command} has the escape {error.args[0]!r}, which STOMP "
                    f"{version.name} does not define"
                ) from None
        headers.setdefault(name, value)
    return command, headers


def _refuse_early(block: bytes, limits: Limits) -> None:
    """Refuse the beginning of a header block at once if no continuation can make it valid."""
    line = block.split(b"\n", 1)[0]
    if len(line) > _COMMAND_BYTES or (len(line) < len(block) and line.removesuffix(b"\r") not in COMMANDS):
        raise _unknown_command(line)
    if len(block) > limits.max_header_bytes + 1:  # it may include the blank line's carriage return
        raise RemoteProtocolError(f"the headers of a frame are longer than {limits.max_header_bytes} bytes")


def _unknown_command(line: bytes) -> RemoteProtocolError:
    return RemoteProtocolError(f"unknown command {line[: _COMMAND_BYTES + 1]!r}: this is STOMP")


def _is_length(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LENGTH_DIGITS


def _refuse_length(text: str, limits: Limits) -> None:
    if _is_length(text):
        raise RemoteProtocolError(
            f"content-length {text} is above the limit of {limits.max_body_bytes} bytes"
        )
    raise RemoteProtocolError(f"content-length {text[:40]!r} is not a number of bytes")


_COMMANDS: Final = {name: name for name in COMMANDS.values()}


def encode(command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return a frame as bytes; a body always gets its content-length.

    Raises LocalProtocolError for what STOMP 1.2 cannot express: an unknown command, an empty header
    name, a body where none may be, a content-length that is not the body's, a line break in a
    header of CONNECT or CONNECTED.
    """
    if not body:
        if "content-length" in headers:
            _check_length(headers, body)
        return head(command, headers) + b"\n\0"
    if command not in WITH_BODY:
        raise LocalProtocolError(f"{command} with a body: only {', '.join(sorted(WITH_BODY))} may have one")
    if "content-length" in headers:
        _check_length(headers, body)
        return b"%b\n%b\0" % (head(command, headers), body)
    return b"%bcontent-length:%d\n\n%b\0" % (head(command, headers), len(body), body)


def head(command: str, headers: Mapping[str, str]) -> bytes:
    r"""Return the command and the header lines, each with its line end, without the blank line.

    This is for callers that send many frames which differ in few headers. They encode the common
    part once, and append ``b"receipt:17\n\n"``, body and NUL. Raises LocalProtocolError as
    ``encode`` does.
    """
    if command not in _COMMANDS:
        raise LocalProtocolError(f"unknown command {command!r}")
    try:
        text = "\n".join([f"{name}:{value}" for name, value in headers.items()])
        count = len(headers)
        plain = (
            text.count(":") == count
            and text.count("\n") < max(count, 1)
            and "\\" not in text
            and "\r" not in text
        )
        if not plain or "" in headers:
            text = "\n".join([_line(command, name, value) for name, value in headers.items()])
        return f"{command}\n{text}\n".encode() if count else f"{command}\n".encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(f"a header of {command} cannot be written as UTF-8") from None


def _line(command: str, name: str, value: str) -> str:
    if not name:
        raise LocalProtocolError(f"{command} with a header without a name (value {value[:40]!r})")
    if command not in UNESCAPED:
        return f"{escaped(name)}:{escaped(value)}"
    if ":" in name or any(end in text for end in "\r\n" for text in (name, value)):
        raise LocalProtocolError(
            f"the header {name[:40]!r} of {command} needs an escape, and {command} has none"
        )
    return f"{name}:{value}"


def _check_length(headers: Mapping[str, str], body: bytes) -> None:
    if headers["content-length"] != str(len(body)):
        raise LocalProtocolError(
            f"content-length {headers['content-length']!r} for a body of {len(body)} bytes"
        )
