"""What is said of an error that was raised elsewhere.

One line, and the one that tells what was wrong.
"""

import pytest

from checkers.cause import in_a_line


class PythonException(Exception):  # noqa: N818 - Spark's name
    """As Spark raises it: its own first line tells nothing."""


IN_A_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 12, in main
    process()
  File "/x/checkers/part.py", line 3, in answer
    raise KeyError(name)
KeyError: 'lost'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/checkers/part.py", line 9, in answer
    raise RuntimeError("our own bug")
checkers.part.OwnError: our own bug,
in two lines
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
Caused by: java.io.EOFException: nothing more
"""
WITHOUT_THE_PACKAGE = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Error from python worker:
  /usr/bin/python3: Error while finding module specification for 'checkers.worker'
PYTHONPATH was:
  /x
"""
IN_JAVA = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted
\tat a.b(C.scala:1)
Caused by: java.lang.RuntimeException: it went wrong
\tat d.e(F.scala:2)
Caused by: java.io.IOException: No space left on device
\t... 3 more
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PythonException(IN_A_WORKER), "checkers.part.OwnError: our own bug,"),
        (
            PythonException(WITHOUT_THE_PACKAGE),
            (
                "a worker's Python could not start (/usr/bin/python3: Error while finding module "
                "specification for 'checkers.worker'): it needs this package, and PYSPARK_PYTHON names it "
                "where it has another path"
            ),
        ),
        (PythonException(IN_JAVA), "java.io.IOException: No space left on device"),
        (PythonException("Error from python worker:"), "PythonException: Error from python worker"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError(), "ValueError"),
    ],
    ids=["in a worker", "without the package", "in Java", "cut off", "here", "without words"],
)
def test_an_error_is_told_by_the_line_that_says_what_was_wrong(error, line):
    assert in_a_line(error) == line
