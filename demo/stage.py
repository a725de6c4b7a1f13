"""The servers of the demo.

In: nothing. Out: a PostgreSQL server and a Kafka broker that run in a folder of their own, and their end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.testbed.broker import Broker
from tests.testbed.cluster import SUPERUSER, Cluster
from tests.testbed.folders import remove_folder
from tests.testbed.leftovers import remove_at_exit
from tests.testbed.postgres import bindir

DATABASE = "demo"

_STOP = """#!/bin/sh
# Stops the demo's PostgreSQL and Kafka, and removes their folder.
cd '{folder}' || exit
[ -w . ] || {{ echo "only root and who started the demo can stop it" >&2; exit 1; }}
[ ! -e postgres/data/postmaster.pid ] || kill -INT "$(head -n 1 postgres/data/postmaster.pid)"
if grep -qs '{folder}' /proc/{kafka}/cmdline; then kill -KILL {kafka}; fi
for second in 1 2 3 4 5 6 7 8 9 10; do
    [ -e postgres/data/postmaster.pid ] || break
    sleep 1
done
rm -rf '{folder}'
"""


class Stage:
    """A server and a broker in a new folder. With ``keep`` they can outlive this process: see leave()."""

    def __init__(self, keep: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pk-demo-", dir="/tmp"))  # a socket's path must be short
        self.folder.chmod(0o755)  # the server may run as another OS user
        if not keep:
            remove_at_exit(self.folder)
        self.cluster = Cluster(self.folder / "postgres", outlive=keep)
        # a topic that somebody who looks around writes to is made
        self.broker = Broker(self.folder / "kafka", {"auto.create.topics.enable": "true"}, outlive=keep)

    def start(self) -> None:
        """Start both at once, and make an empty database. Raises RuntimeError or TimeoutError."""
        with ThreadPoolExecutor(2) as threads:
            starting = threads.submit(self.cluster.start)
            threads.submit(self.broker.start).result()
            starting.result()
        with self.cluster.connect() as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")

    def stop(self) -> None:
        """Stop both in order and remove the folder."""
        with ThreadPoolExecutor(2) as threads:
            threads.submit(self.cluster.stop)
            threads.submit(self.broker.stop)
        remove_folder(self.folder)

    def leave(self) -> str:
        """Write a script that does what stop() does when this process is gone, and return the command that runs it."""
        assert self.broker.process is not None
        script = self.folder / "stop"
        script.write_text(_STOP.format(folder=self.folder, kafka=self.broker.process.pid))
        return f"{'sudo ' if 'SUDO_USER' in os.environ else ''}sh {script}"

    def psql(self) -> list[str]:
        """The command line that connects to the database; it works for every OS user."""
        program = "psql" if shutil.which("psql") else str(bindir() / "psql")
        return [program, "-h", str(self.cluster.sockets), "-p", str(self.cluster.port), "-U", SUPERUSER, DATABASE]
