"""Where the STOMP clients of others are, that ``.ci/install-clients`` brings."""

import os
import shutil
from pathlib import Path

from needs import need

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
PACKAGES = Path(os.environ.get("JEPSEN_RUN_CLIENTS", CACHE / "jepsen-run" / "clients"))
NODE_MODULES = PACKAGES / "node_modules"
JARS = PACKAGES / "java"


def need_client(program, packages):
    """Skip the test, by name, where the program or its packages are missing."""

    def lacking():
        if not shutil.which(program):
            return f"{program} is not installed"
        return "" if packages.exists() else f"{packages} is missing: run .ci/install-clients"

    need("CLIENTS", lacking)
