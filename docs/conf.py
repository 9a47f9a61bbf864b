"""The documentation site. ``nox -s docs`` builds it into build/site; a link or an anchor that leads nowhere is an error.

The pages are plain Markdown and read the same in the repository. index.md has the order of the site.

Why Sphinx: it is developed by many, warns of each broken link and anchor by itself, and MyST reads CommonMark, as the repository's host does.
MkDocs has had no release since 2024, and its theme Material only gets repairs.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))
from harness import __version__ as version  # noqa: E402

project = "jepsen-run"
html_title = f"jepsen-run {version}"
html_theme = "furo"
html_show_copyright = False
html_copy_source = False
extensions = ["myst_parser", "sphinx_reredirects", "sphinxcontrib.mermaid"]
exclude_patterns = ["*.py", "**/repeat.py"]
myst_heading_anchors = 6
myst_enable_extensions = ["attrs_inline"]
myst_fence_as_directive = ["mermaid"]
redirects = {f"findings/{path.parent.name}": f"{path.parent.name}/README.html" for path in DOCS.glob("findings/*/README.md")}
"""Before 0.2.0 the page of a finding stood beside its folder."""

OF_THE_REPOSITORY = {"index": "README.md", "contribute": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
"""Pages of the site whose text is a file beside docs/."""
_PAGES = {ROOT / file: DOCS / f"{page}.md" for page, file in OF_THE_REPOSITORY.items()}
_LINK = re.compile(r'(?<=\]\()(?!\w+:|#)([^)#\s]+)')


def _read(_app: object, page: str, source: list[str]) -> None:
    """Complete a page: text of the repository, links to files outside of docs/, and anchors in HTML, which Sphinx does not see."""
    own = DOCS / f"{page}.md"
    if page in OF_THE_REPOSITORY:
        file = ROOT / OF_THE_REPOSITORY[page]
        links = _linked(file.read_text(encoding="utf-8"), file, own)
        source[0] = f"{links}\n\n{source[0]}"
    else:
        source[0] = _linked(source[0], own, own)
    source[0] = re.sub(r'<a id="([^"]+)"></a>', r"[]{#\1}", source[0])


def _linked(text: str, file: Path, page: Path) -> str:
    """Return the text of a file with its links as they are on the site; files outside of docs/ become downloads."""

    def target(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(file.parent / link[1]))
        path = _PAGES.get(path, path)
        scheme = "" if path.is_relative_to(DOCS) or not path.is_file() else "path:"
        return scheme + os.path.relpath(path, page.parent)

    return _LINK.sub(target, text)


def setup(app: object) -> None:
    """Connect the hook."""
    app.connect("source-read", _read)  # type: ignore[attr-defined]
