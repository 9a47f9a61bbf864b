"""The mount options of NFS, and their meaning in seconds.

Their names are those of nfs(5) and of the AMQ manual (17.3.2.1).

Why they are parsed here and not passed on: both clients (the kernel's and ours) must get the same
meaning, and a misspelt option must be refused before a test trusts it. Only options that change
behaviour on which a shared store depends are accepted.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import Final

RECOMMENDED: Final = "sync,intr,noac,soft,lookupcache=none,timeo=600,retrans=5"
"""The options that 17.3.2.1 lists, with the figures of its warning.

With them a broker learns only after up to five minutes that its store is gone.
"""

_FLAGS: Final[dict[str, dict[str, object]]] = {
    "soft": {"soft": True},
    "hard": {"soft": False},
    "sync": {"sync": True},
    "async": {"sync": False},
    "intr": {"intr": True},
    "nointr": {"intr": False},
    "noac": {"attribute_cache_s": 0.0},
    "ac": {"attribute_cache_s": 3.0},
    "rw": {"read_only": False},
    "ro": {"read_only": True},
    "nfs4": {},
    "tcp": {},
}
_NUMBERS: Final = {
    "timeo": ("timeo_ds", 1, 6000, "deciseconds", 1),
    "retrans": ("retrans", 1, 100, "tries", 1),
    "retry": ("retry_s", 0, 10000, "minutes", 60.0),
    "actimeo": ("attribute_cache_s", 0, 3600, "seconds", 1.0),
    "port": ("port", 1, 65535, "a TCP port", 1),
}
"""The options with numbers: field, lowest, highest, unit, and the factor from unit to field."""

_LOOKUP_CACHES: Final = {"none": "none", "positive": "positive", "pos": "positive", "all": "all"}
_CHOICES: Final[dict[str, dict[str, dict[str, object]]]] = {
    "lookupcache": {said: {"lookup_cache": meant} for said, meant in _LOOKUP_CACHES.items()},
    "proto": {"tcp": {}},
    "vers": {"4": {}, "4.0": {}},
    "nfsvers": {"4": {}, "4.0": {}},
}
_VALUES: Final = ("timeo", "retrans", "retry", "lookupcache", "actimeo", "port", "proto", "vers", "nfsvers")


class MountOptionError(ValueError):
    """A mount option is wrong; the text says in one line which, and what would be right."""


@dataclass(frozen=True, kw_only=True)
class MountOptions:
    """The options of a mount; the defaults are those of the manual and of nfs(5).

    ``timeo_ds`` is in deciseconds, as the option is written. ``retrans`` is the number of tries
    (the manual: without it "the NFS client tries each request three times"). So a soft mount gives
    up after ``timeo`` times ``retrans``. ``retry_s`` is for mounting itself, hard or soft; the
    option is written in minutes.
    """

    soft: bool = False
    timeo_ds: int = 600
    retrans: int = 3
    sync: bool = False
    intr: bool = False
    attribute_cache_s: float = 3.0
    lookup_cache: str = "all"
    read_only: bool = False
    retry_s: float = 120.0
    port: int | None = None

    @property
    def try_s(self) -> float:
        """The seconds that one try may take."""
        return self.timeo_ds / 10

    @property
    def patience_s(self) -> float:
        """The seconds of silence after which a soft mount fails, and a hard one logs a line."""
        return self.try_s * self.retrans

    @property
    def mounting_s(self) -> float:
        """The seconds after which mounting is given up if no server answers."""
        return max(self.patience_s, self.retry_s)

    @property
    def lookup_cache_s(self) -> float:
        """The seconds for which a name that was found may be cached (nfs(5): acdirmin)."""
        return 0.0 if self.lookup_cache == "none" else 30.0


def parse(text: str) -> MountOptions:
    """Read options such as ``"soft,timeo=600,retrans=5,lookupcache=none,sync,intr,noac"``.

    Raises MountOptionError for an option that is unknown, out of range, or given twice with
    different meanings.
    """
    options = MountOptions()
    said: dict[str, str] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = word.partition("=")
        changes = _value(name, value) if separator else _flag(name)
        for field, meaning in changes.items():
            before = said.setdefault(field, word)
            if before != word and getattr(options, field) != meaning:
                raise MountOptionError(
                    f"mount options {before!r} and {word!r} contradict each other: give one"
                )
        options = replace(options, **changes)  # type: ignore[arg-type]
    return options


def _flag(name: str) -> dict[str, object]:
    if name in _FLAGS:
        return _FLAGS[name]
    if name in _VALUES:
        raise MountOptionError(f"mount option {name!r} needs a value: {name}=...")
    near = difflib.get_close_matches(name, (*_FLAGS, *_VALUES), 1)
    raise MountOptionError(
        f"unknown mount option {name!r}"
        + (f": did you mean {near[0]!r}?" if near else f"; known: {', '.join((*_FLAGS, *_VALUES))}")
    )


def _value(name: str, value: str) -> dict[str, object]:
    if name in _NUMBERS:
        field, low, high, unit, scale = _NUMBERS[name]
        if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
            raise MountOptionError(f"mount option {name}={value!r}: must be from {low} to {high} ({unit})")
        return {field: scale * int(value)}
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise MountOptionError(f"mount option {name}={value!r}: must be {' or '.join(_CHOICES[name])}")
        return _CHOICES[name][value]
    if name in _FLAGS:
        raise MountOptionError(f"mount option {name!r} takes no value, but {value!r} was given")
    return _flag(name)
