"""The end of messages about an unknown name: the name that was probably meant, and all names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean "kill"?`` where a known name is close, and all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    meant = f'did you mean "{close[0]}"? ' if close else ""
    return f"{meant}there are {', '.join(names)}" if names else "there are none"
