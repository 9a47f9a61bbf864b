"""The cache of classes is trained where the program ends, too: on each Python, without a JVM."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOOKS_LIKE_JAVA = """#!/bin/sh
touch "$0.runs"
cat > /dev/null
for word in "$@"; do case $word in *.new) echo trained > "${word#*=}" ;; esac; done
"""
PROGRAM = """
import atexit, sys, time
from pathlib import Path
from checkers import java
from checkers.gateway import Gateway

program = Path(sys.argv[1])
gateway = Gateway(java.Java(program, 25, "PATH"), 512)
atexit.register(gateway.close)
while not Path(f"{program}.runs").exists():
    time.sleep(0.01)
"""


def test_a_program_that_ends_says_nothing_and_its_jvm_leaves_the_cache(tmp_path):
    java = tmp_path / "java"
    java.write_text(LOOKS_LIKE_JAVA)
    java.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(java)],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    give_up = time.monotonic() + 240
    while not (caches := [*(tmp_path / "cache").glob("*/*.aot")]) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert [cache.read_text() for cache in caches] == ["trained\n"]
