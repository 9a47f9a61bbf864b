"""What the commands' options have in common."""

from __future__ import annotations

from typing import Any, Final

import click

CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """A comma list."""
    return None if value is None else tuple(name.strip() for name in value.split(",") if name.strip())
