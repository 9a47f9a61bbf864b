"""The templates of the pages that are written into a store.

Texts in them come from brokers and from the names of tests, so every value is escaped.
"""

from __future__ import annotations

from typing import Final

import jinja2
import markupsafe

from harness.report import palette

TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("harness.report"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals["style_sheet"] = markupsafe.Markup(palette.style_sheet())  # noqa: S704 - made from constants
