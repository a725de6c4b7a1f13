"""A throwaway PostgreSQL cluster: initdb, start, stop, kill -9, standby, promotion.

In: a folder. Out: a running server on a Unix socket in that folder and on 127.0.0.1, trusting everyone.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from tests.testbed.folders import owned_folder, socket_folder
from tests.testbed.ports import LOOPBACK, Address, free_port
from tests.testbed.postgres import bindir, os_user, server_user
from tests.testbed.process import Process, plain_environment, run
from tests.testbed.wait import wait_until

SUPERUSER = "postgres"
SMALL_SERVER: Mapping[str, str | int] = {
    "listen_addresses": LOOPBACK,
    "max_connections": 100,
    "max_worker_processes": 32,
    "max_prepared_transactions": 5,
    "max_wal_senders": 4,
    "wal_level": "replica",
    "hot_standby": "on",
    "shared_buffers": "64MB",
    "fsync": "off",
    "log_line_prefix": "%m [%p] %b %d ",
    "log_min_messages": "info",
    "lc_messages": "C",
}
# postmaster's answer to each signal, by pg_ctl's names for them.
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
START_TIMEOUT = 60
# What a postmaster says that starts while the backends of a killed one are still going away.
PREDECESSOR_ALIVE = ("pre-existing shared memory block", "lock file")


class Cluster:
    """A PostgreSQL cluster in ``folder``; nothing is made until start().

    ``settings`` are lines of postgresql.conf on top of SMALL_SERVER; change them in the attribute and
    restart(), or use ALTER SYSTEM, which wins. With ``preload`` the extension is in
    shared_preload_libraries. With ``outlive`` the server goes on when this process ends.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        preload: bool = True,
        settings: Mapping[str, str | int] | None = None,
        encoding: str = "UTF8",
        outlive: bool = False,
    ) -> None:
        self.user = server_user()
        self.folder = owned_folder(folder, self.user)
        self.data = folder / "data"
        self.log_file = folder / "server.log"
        self.port = port or free_port()
        self.preload = preload
        self.settings = dict(settings or {})
        self.encoding = encoding
        self.outlive = outlive
        self.sockets = socket_folder(folder, f".s.PGSQL.{self.port}", self.user)
        self.process: Process | None = None

    # -- addresses --------------------------------------------------------------------------------

    @property
    def address(self) -> Address:
        """Where it listens for TCP, for a proxy to lead to."""
        return Address(LOOPBACK, self.port)

    def dsn(self, dbname: str = "postgres", **parameters: Any) -> str:
        """A libpq connection string by the Unix socket as superuser; ``parameters`` add or replace."""
        given: dict[str, Any] = {
            "host": str(self.sockets),
            "port": self.port,
            "user": SUPERUSER,
            "dbname": dbname,
        }
        return psycopg.conninfo.make_conninfo(**(given | parameters))

    def connect(
        self, dbname: str = "postgres", autocommit: bool = True, **parameters: Any
    ) -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection; the caller closes it."""
        return psycopg.connect(self.dsn(dbname, **parameters), autocommit=autocommit)

    # -- life -------------------------------------------------------------------------------------

    def start(self, timeout: float = START_TIMEOUT) -> Cluster:
        """Start the server and return when it takes connections; the first time make the cluster.

        Raises RuntimeError with the end of the log when it does not come up within ``timeout`` s.
        """
        if not self.data.exists():
            self._initdb()
        self._write_settings()
        wait_until(lambda: self._try_start(timeout), "the predecessor's backends are gone", timeout)
        return self

    def stop(self, mode: str = "fast", timeout: float = 60) -> None:
        """Shut down as pg_ctl stop -m ``mode`` (smart, fast, immediate); kill -9 after ``timeout`` s."""
        if self.process is not None:
            self.process.stop(STOP_SIGNALS[mode], timeout)

    def restart(self, mode: str = "fast") -> None:
        """Stop and start on the same port."""
        self.stop(mode)
        self.start()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")

    def kill9(self) -> None:
        """kill -9 the postmaster; its backends notice by themselves."""
        if self.process is not None:
            self.process.kill()

    @property
    def running(self) -> bool:
        """Is the postmaster there? It may be recovering."""
        return self.process is not None and self.process.running

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until connections are taken (again), such as after a crash of a backend."""
        wait_until(self._answers, "the server takes connections", timeout)

    # -- replication ------------------------------------------------------------------------------

    def standby(self, folder: Path, **options: Any) -> Cluster:
        """A started streaming standby of this cluster in ``folder``; ``options`` are Cluster's."""
        given: dict[str, Any] = {"preload": self.preload, "settings": self.settings} | options
        standby = Cluster(folder, **given)
        source = self.dsn(application_name=folder.name)
        backup: list[str | Path] = [
            bindir() / "pg_basebackup",
            f"--dbname={source}",
            f"--pgdata={standby.data}",
        ]
        backup += ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        run(backup, user=self.user, env=plain_environment())
        return standby.start()

    def promote(self) -> None:
        """Make a standby the primary and wait until it is. Raises RuntimeError when it did not work."""
        with self.connect() as connection:
            row = connection.execute("SELECT pg_promote(true, 60)").fetchone()
        if row != (True,):
            raise RuntimeError(f"the standby in {self.folder} was not promoted:\n{self.log()[-2000:]}")

    # -- log --------------------------------------------------------------------------------------

    def log(self, since: int = 0) -> str:
        """The server's log as text, from byte ``since`` on (see log_size)."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_bytes()[since:].decode(errors="replace")

    def log_size(self) -> int:
        """How many bytes of log there are, to read on from with log()."""
        return self.log_file.stat().st_size if self.log_file.exists() else 0

    def resets(self, since: int = 0) -> int:
        """How often the server threw out all sessions because one process crashed."""
        return self.log(since).count("terminating any other active server processes")

    # -- parts ------------------------------------------------------------------------------------

    def _initdb(self) -> None:
        locale = "C.UTF-8" if self.encoding.upper().replace("-", "") == "UTF8" else "C"
        options = ["--auth=trust", "--no-sync", f"--username={SUPERUSER}"]
        options += [f"--encoding={self.encoding}", f"--locale={locale}"]
        run([bindir() / "initdb", "-D", self.data, *options], user=self.user, env=plain_environment())
        include = "include_if_exists = 'testbed.conf'\n"
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(include)

    def _write_settings(self) -> None:
        settings = {**SMALL_SERVER, "port": self.port, "unix_socket_directories": str(self.sockets)}
        if self.preload:
            settings["shared_preload_libraries"] = "pipeline_kafka"
        settings |= self.settings
        lines = [f"{name} = '{str(value).replace(chr(39), chr(39) * 2)}'\n" for name, value in settings.items()]
        (self.data / "testbed.conf").write_text("".join(lines))

    def _try_start(self, timeout: float) -> bool:
        """Start once: True when it is up, False when it must be tried again, RuntimeError when it can't."""
        seen = self.log_size()
        self.process = Process(
            [bindir() / "postgres", "-D", self.data],
            self.log_file,
            env=plain_environment(),
            user=self.user,
            death_signal=None if self.outlive else signal.SIGQUIT,
        )
        wait_until(lambda: not self.running or self._ready(), "the server is up", timeout)
        if self.running:
            self._make_role()
            return True
        said = self.log(seen)
        if any(sign in said for sign in PREDECESSOR_ALIVE):
            return False
        raise RuntimeError(f"PostgreSQL did not start in {self.folder}:\n{said[-4000:]}")

    def _ready(self) -> bool:
        """postmaster.pid, as pg_ctl reads it: line 1 is the pid, line 8 the state."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        mine = self.process is not None and lines[:1] == [str(self.process.pid)]
        return mine and len(lines) >= 8 and lines[7].strip() in ("ready", "standby")

    def _answers(self) -> bool:
        try:
            self.connect(connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _make_role(self) -> None:
        """The server's own OS user may connect by default settings, as background workers do."""
        name = os_user()
        with self.connect() as connection:
            row = connection.execute(
                "SELECT pg_is_in_recovery() OR EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", [name]
            ).fetchone()
            if row == (False,):
                connection.execute(
                    psycopg.sql.SQL("CREATE ROLE {} SUPERUSER LOGIN").format(psycopg.sql.Identifier(name))
                )
