"""The parent of Spark's Python workers.

It imports once the modules that the rules need; every worker is a fork that has these modules.

Why: Spark starts this process with its first task and forks a worker from it for each core, and
again after a minute without work. If a worker had to import numpy and Arrow itself, a verdict would
take half a second longer.
"""

from __future__ import annotations

import pyarrow.parquet  # noqa: F401 - see above
from pyspark import daemon

from checkers import part  # noqa: F401 - see above

if __name__ == "__main__":
    daemon.manager()
