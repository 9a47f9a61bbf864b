"""A hook of the build: the page of a package index has links that lead to the repository.

The README links to files beside it, which an index does not have. ``JEPSEN_RUN_REPOSITORY`` is the
address of the repository that a release is made from (``.github/workflows/package.yml`` sets it);
links then lead to the tag of the release. Without it they become plain text: no link is better than
one that leads nowhere.

Why not hatch-fancy-pypi-readme: its replacements are fixed in pyproject.toml, and a fork would link
to the files of somebody else.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE: Final = r"(?!https?:|#)([^)\s]+)"
_PICTURE: Final = re.compile(rf"!\[([^\]]*)\]\({_RELATIVE}\)")
_LINK: Final = re.compile(rf"(?<!!)\[([^\]]+)\]\({_RELATIVE}\)")
_LINKED_PICTURE: Final = re.compile(rf"\[(!\[[^\]]*\]\([^)]*\))\]\({_RELATIVE}\)")


def for_index(readme: str, repository: str, tag: str) -> str:
    """Return the README with links to files of a tag, or with plain text if there is no address."""
    if not repository:
        readme = _LINKED_PICTURE.sub(r"\1", readme)
        return _LINK.sub(r"\1", _PICTURE.sub("", readme))
    address = repository.rstrip("/")
    readme = _PICTURE.sub(rf"![\1]({address}/raw/{tag}/\2)", readme)
    readme = _LINKED_PICTURE.sub(rf"[\1]({address}/blob/{tag}/\2)", readme)
    return _LINK.sub(rf"[\1]({address}/blob/{tag}/\2)", readme)


class LinksOfTheReadme(MetadataHookInterface):
    """Sets the README and the addresses of the project's pages."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Complete the metadata that pyproject.toml declares as dynamic."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("JEPSEN_RUN_REPOSITORY", "")
        text = for_index(readme, repository, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if repository:
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/v{metadata['version']}/docs/tutorial/first-run.md",
                "Changelog": f"{repository}/blob/v{metadata['version']}/CHANGELOG.md",
            }


def get_metadata_hook() -> type[MetadataHookInterface]:
    """Return the hook; hatchling calls this."""
    return LinksOfTheReadme
