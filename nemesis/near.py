"""The end of every message about an unknown name: what was probably meant, and what there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """``did you mean "kill"?`` where one is close, and all that there are."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    meant = f'did you mean "{close[0]}"? ' if close else ""
    return f"{meant}there are {', '.join(names)}" if names else "there are none"
