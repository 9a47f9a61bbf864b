"""The question before what cannot be undone."""

from __future__ import annotations

import sys

import click


def confirmed(question: str) -> bool:
    """Whether the answer is yes.

    Who does not say so is told that nothing happened: an exit status alone leaves one in doubt.
    """
    try:
        yes = click.confirm(question, default=False, err=True)
    except click.Abort:  # nobody is there to answer, or Ctrl-C
        print(file=sys.stderr)
        yes = False
    if not yes:
        print("nothing was changed", file=sys.stderr)
    return yes


__all__ = ["confirmed"]
