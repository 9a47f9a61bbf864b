"""The features that this host's kernel claims, before a container exists in which to try them out.

Containers share the kernel of an engine on this host, so a test that asks for slow links can be
refused before an image is built. Only a clear "not set" counts: the agents try it out anyway, and
their answer decides.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Final

_SLOW = ("NET_SCH_NETEM", "NET_SCH_PRIO", "NET_CLS_U32")
_CUT = ("NF_TABLES", "NF_TABLES_INET", "NFT_REJECT")
_LOSS = (*_CUT[:2], "NFT_NUMGEN")

_NEEDS: Final = {"cut": _CUT, "datagram-loss": _LOSS, "slow": _SLOW}


def missing(root: Path = Path("/")) -> dict[str, str]:
    """Return why some faults of links cannot work, by the kernel's own list of options.

    The reason is "" where nothing speaks against them.
    """
    settings = _settings(root)
    if settings is None:
        return dict.fromkeys(_NEEDS, "")
    lacking = {fault: [name for name in names if name not in settings] for fault, names in _NEEDS.items()}
    return {
        fault: f"no {names[0].removeprefix('NET_').lower()} in this kernel" if names else ""
        for fault, names in lacking.items()
    }


def _settings(root: Path) -> set[str] | None:
    """Return the options that are built in or modules; None if the kernel does not tell."""
    candidates = (root / "proc/config.gz", root / f"boot/config-{os.uname().release}")
    for path in candidates:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        lines = (line.partition("=") for line in text.decode(errors="replace").splitlines())
        return {name.removeprefix("CONFIG_") for name, _, value in lines if value in ("y", "m")}
    return None
