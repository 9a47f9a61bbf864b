"""The properties that messages were sent with, and the selectors that match them."""

from __future__ import annotations

import numpy as np

from checkers.asked import Selector, properties_of
from checkers.rows import NONE, SEND_INVOKE, Flags, Rows, first
from checkers.subscriptions import matches


class Selection:
    """The properties of messages. ``sent`` says of which messages a row has the send."""

    def __init__(self, rows: Rows) -> None:
        sends = rows.of(SEND_INVOKE)
        self._code = first(rows.id[sends], rows.value.codes[sends].astype(np.int64), rows.messages)
        self.sent = self._code != NONE
        self._values = rows.value.values
        self._known: dict[str, Flags] = {}

    def wants(self, selector: Selector) -> Flags:
        """Return whether a selector matches each message; not if its send is not known."""
        key = repr(sorted(selector.items()))
        if key not in self._known:
            codes = np.unique(self._code[self.sent]).tolist()
            is_wanted = np.zeros(len(self._values) + 1, dtype=bool)
            for code in codes:
                value = self._values[code] if code >= 0 else None
                is_wanted[code] = matches(selector, properties_of(value))
            self._known[key] = self.sent & is_wanted[np.where(self.sent, self._code, -1)]
        return self._known[key]
