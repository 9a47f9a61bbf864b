"""Databases to test on.

SQLite in a directory, a PostgreSQL server of our own, the server of a simulated world.
"""

import asyncio
import contextlib
import functools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg
from needs import need

from broker.storage.database.postgresql import PostgresqlDatabase
from broker.storage.database.sqlite import SqliteDatabase
from environments.simulation.database import NODE, PORT, DatabaseServer
from environments.simulation.world import World
from harness.interface import Address
from harness.systems.own.database import WorldDatabase

PASSWORD = "a-password-that-must-never-be-seen"


class SqlitePlace:
    def __init__(self, directory):
        self.path = directory / "store.sqlite"

    def open(self, name="a1"):
        return SqliteDatabase(self.path)

    def nowhere(self):
        blocked = self.path.parent / "a-file"
        blocked.write_text("")
        return SqliteDatabase(blocked / "store.sqlite")

    def run(self, main):
        return asyncio.run(main())


class PostgresqlPlace:
    def __init__(self, server):
        self.server = server
        self.name = server.new_database()

    @property
    def url(self):
        return f"postgresql://127.0.0.1:{self.server.port}/{self.name}"

    def open(self, name="a1", **options):
        return PostgresqlDatabase(self.url, "tester", PASSWORD, **options)

    def nowhere(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        return PostgresqlDatabase(f"postgresql://127.0.0.1:{port}/x", "tester", PASSWORD)

    def run(self, main):
        return asyncio.run(main())


class SimulatedPlace:
    def __init__(self, seed=7):
        self.world = World(seed)
        self.server = DatabaseServer(self.world)

    def open(self, name="a1"):
        return WorldDatabase(Address(NODE, PORT), name)

    def nowhere(self):
        self.server.stop()
        return self.open()

    def run(self, main):
        try:
            return self.world.run(main)
        finally:
            self.server.close()


class PostgresqlServer:
    """One server for all tests of a process.

    Debian's binaries, a directory of its own, no authentication but a password over TCP.
    """

    def __init__(self, binaries):
        self._binaries = binaries
        # The server refuses to run as root; its directory must belong to whoever runs it.
        self._user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self._directory = Path(tempfile.mkdtemp(prefix="jepsen-run-postgresql-"))
        if self._user:
            owner = pwd.getpwnam("postgres")
            os.chown(self._directory, owner.pw_uid, owner.pw_gid)
        secret = self._directory / "secret"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o644)
        data = self._directory / "data"
        self._run(
            "initdb",
            "-D",
            data,
            "-U",
            "tester",
            "--pwfile",
            secret,
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--no-sync",
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c "
            f"unix_socket_directories={self._directory} -c fsync=off"
        )
        self._run(
            "pg_ctl", "-D", data, "-w", "-t", "120", "-l", self._directory / "log", "-o", options, "start"
        )
        self._databases = 0

    def new_database(self):
        self._databases += 1
        name = f"test{self._databases}"
        where = f"postgresql://127.0.0.1:{self.port}/postgres"
        with psycopg.connect(where, user="tester", password=PASSWORD, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return name

    def stop(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-D", self._directory / "data", "-m", "immediate", "stop")
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self, program, *arguments):
        subprocess.run(
            [*self._user, str(self._binaries / program), *map(str, arguments)],
            check=True,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )


@functools.cache
def postgresql_binaries():
    """(directory of initdb and pg_ctl, reason why there is none)."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    candidates += [Path(found).parent] if found else []
    for directory in candidates:
        if (directory / "initdb").exists() and (directory / "pg_ctl").exists():
            return directory, ""
    return None, "PostgreSQL's initdb and pg_ctl are not on this machine (Debian: apt-get install postgresql)"


def start_postgresql():
    """A server, or a skip that says what is missing; a failure where it must run."""
    need("POSTGRESQL", lambda: postgresql_binaries()[1])
    return PostgresqlServer(postgresql_binaries()[0])
