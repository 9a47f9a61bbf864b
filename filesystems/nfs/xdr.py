"""XDR (RFC 4506), the part that NFSv4 uses: big-endian integers, and bytes padded to four."""

from __future__ import annotations

import struct
from typing import Final

_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")

TRUE: Final = b"\0\0\0\1"
FALSE: Final = b"\0\0\0\0"


class XdrError(ValueError):
    """An answer is shorter than it announces, or has something unexpected in it."""


def u32(value: int) -> bytes:
    """Encode an unsigned integer, or an enumeration's value."""
    return _U32.pack(value)


def u64(value: int) -> bytes:
    """Encode an unsigned hyper."""
    return _U64.pack(value)


def opaque(data: bytes | memoryview) -> bytes:
    """Encode variable-length bytes, or a string: their number, the bytes, then padding."""
    return b"".join((_U32.pack(len(data)), data, _PADDING[len(data) & 3]))


def bitmap(bits: tuple[int, ...]) -> bytes:
    """Encode NFSv4's bitmap4 with some bits set."""
    words = [0] * (max(bits, default=-1) // 32 + 1)
    for bit in bits:
        words[bit // 32] |= 1 << (bit % 32)
    return u32(len(words)) + b"".join(map(u32, words))


class XdrReader:
    """A reader that takes values off the front of a reply; raises XdrError at its end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = memoryview(data)
        self._at = 0

    def u32(self) -> int:
        """Read the next unsigned integer."""
        value: int = _U32.unpack(self.fixed(4))[0]
        return value

    def u64(self) -> int:
        """Read the next unsigned hyper."""
        value: int = _U64.unpack(self.fixed(8))[0]
        return value

    def fixed(self, size: int) -> memoryview:
        """Read ``size`` bytes without a count; sizes in NFSv4 are multiples of four."""
        end = self._at + size
        if end > len(self._data):
            raise XdrError(
                f"{size} bytes are announced at {self._at}, but only {len(self._data) - self._at} came"
            )
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def opaque(self) -> bytes:
        """Read counted bytes and their padding."""
        size = self.u32()
        piece = bytes(self.fixed(size))
        self.fixed(-size & 3)
        return piece

    def bits(self) -> list[int]:
        """Read a bitmap4, and return its set bits, lowest first."""
        found = []
        for word in range(self.u32()):
            value = self.u32()
            found += [word * 32 + bit for bit in range(32) if value >> bit & 1]
        return found
