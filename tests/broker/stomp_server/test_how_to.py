"""The examples of the manual, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packages import NODE_MODULES, need_client

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "stomp-clients.md"


@pytest.mark.parametrize(
    ("language", "program", "said"),
    [
        ("python", [sys.executable, "-u", "-c"], "from Python"),
        ("javascript", ["node", "-e"], "from JavaScript"),
    ],
)
def test_the_example_gets_its_message(shared, queue, language, program, said):
    if language == "javascript":
        need_client("node", NODE_MODULES)
    (example,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with subprocess.Popen(
        [*program, example.replace("61613", str(shared.port)).replace("orders", queue)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
    ) as running:
        try:
            assert running.stdout.readline().strip() == said
        finally:
            running.kill()
