"""Writes a file into the first directory and does not sync it, then ``begun`` into the second.

When it is killed the kernel closes the file, and that waits for the file server.
"""

import sys
import time
from pathlib import Path

with Path(sys.argv[1], "unsynced").open("wb", buffering=0) as file:
    file.write(b"written")
    Path(sys.argv[2], "begun").touch()
    time.sleep(600)
