"""Why a broker does not start, or ends: for its log, and the exit status of its process."""

from __future__ import annotations


class StartError(Exception):
    """The broker cannot start or go on.

    One line for the log, saying what is wrong, where, and what would be right. ``status`` is the
    process's exit status.
    """

    status = 1
