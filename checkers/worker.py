"""The parent of Spark's Python workers.

It imports once what the rules need, and every worker is a fork that has it.

Why: Spark starts this process with its first task and forks a worker from it for each core, again
after a minute without work. A worker that had to import numpy and Arrow itself would make a verdict
wait for half a second.
"""

from __future__ import annotations

import pyarrow.parquet  # noqa: F401 - see above
from pyspark import daemon

from checkers import part  # noqa: F401 - see above

if __name__ == "__main__":
    daemon.manager()
