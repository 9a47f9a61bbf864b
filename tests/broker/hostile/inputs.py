"""Inputs that no honest client sends: mutations of what is valid, drawn from a seed."""

import os
import random

COUNT = int(os.environ.get("HOSTILE_INPUTS", "10000"))
"""For each port. A million by hand: HOSTILE_INPUTS=1000000."""

BAD_TEXT = (
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xf0\x9f",
    b"\0",
    b"\r",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b'"',
    b"\\",
    b"\n",
    b":",
)
HUGE = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"99999999999999999999",
    b"-1",
    b"1e999999",
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
)


LENGTH_MAX = 4096


def _cut(chance, data):
    return data[: chance.randrange(len(data) + 1)]


def _flipped(chance, data):
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _repeated(chance, data):
    begin, end = sorted(chance.choices(range(len(data) + 1), k=2))
    return data[:end] + data[begin:end] * chance.choice((1, 2, 30)) + data[end:]


def _random(chance, data):
    return chance.randbytes(chance.randrange(2000))


def _with(chance, data, pieces):
    place = chance.randrange(len(data) + 1)
    skipped = chance.choice((0, 0, 1, 4))
    return data[:place] + chance.choice(pieces) * chance.choice((1, 1, 1, 100)) + data[place + skipped :]


def _bad_text(chance, data):
    return _with(chance, data, BAD_TEXT)


def _huge(chance, data):
    return _with(chance, data, HUGE)


def _deep(chance, data):
    return _with(chance, data, (b"[" * 3000, b'{"a":' * 3000, b"\x91" * 3000, b"\x81\xa1a" * 1000))


MUTATIONS = (_cut, _flipped, _flipped, _repeated, _random, _bad_text, _bad_text, _huge, _deep)


def hostile(chance: random.Random, valid: list[bytes]) -> bytes:
    """One input: some of what is valid, in any order, changed once or more."""
    data = b"".join(chance.choices(valid, k=chance.randint(1, 4)))
    for _ in range(chance.choice((1, 1, 2, 5))):
        data = chance.choice(MUTATIONS)(chance, data)
    return data[:LENGTH_MAX]
