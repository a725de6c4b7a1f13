"""The testbed itself: what other tests lean on."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fix_kafka import MakeTopic
from tests.fix_proxy import MakeProxy
from tests.fix_zookeeper import CHROOT
from tests.testbed.broker import Broker
from tests.testbed.cluster import Cluster
from tests.testbed.folders import LONGEST_SOCKET_PATH, socket_folder
from tests.testbed.kafka import Kafka
from tests.testbed.ports import LOOPBACK, Address, free_port
from tests.testbed.process import Process
from tests.testbed.proxy import Proxy
from tests.testbed.wait import wait_until
from tests.testbed.zookeeper import ZooKeeper, ZooKeeperBroker


def test_wait_until_returns_what_was_accepted() -> None:
    values = iter([1, 2, 3])
    assert wait_until(lambda: next(values), "it is 3", accept=lambda n: n == 3) == 3


def test_wait_until_says_what_and_the_last_value() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0.01 s until the cows come home; last value: \[\]"):
        wait_until(list, "the cows come home", timeout=0.01)


def test_ports_are_each_given_once() -> None:
    assert len({free_port() for _ in range(50)}) == 50


def test_a_long_folder_gets_a_short_socket_folder(folder: Path) -> None:
    deep = folder / ("x" * LONGEST_SOCKET_PATH)
    short = socket_folder(deep, ".s.PGSQL.5432", user=None)
    assert len(str(short / ".s.PGSQL.5432")) <= LONGEST_SOCKET_PATH


def test_a_process_that_ignores_sigterm_is_killed(folder: Path) -> None:
    process = Process(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], folder / "log")
    wait_until((folder / "log").read_text, "the trap is set")
    assert process.stop(timeout=0.2) == -signal.SIGKILL
    assert not process.running


def test_children_die_with_their_parent(folder: Path) -> None:
    """kill -9 of the parent, which can then clean up nothing by itself."""
    log = folder / "log"
    program = f"""
import signal
from pathlib import Path
from tests.testbed.process import Process
Process(["sh", "-c", "echo $$; exec sleep 300"], Path({str(log)!r}))
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program]) as parent:
        child = wait_until(lambda: log.read_text().strip() if log.exists() else "", "the child runs")
        parent.kill()
    wait_until(lambda: is_dead(child), f"process {child} is gone")


def is_dead(pid: str) -> bool:
    """Gone, or a zombie that nobody collects."""
    try:
        return "State:\tZ" in Path("/proc", pid, "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


class Echo(socketserver.StreamRequestHandler):
    """Sends back each line."""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            for line in self.rfile:
                self.wfile.write(line)


@pytest.fixture
def through(proxy: MakeProxy) -> Generator[Proxy]:
    """A proxy to a server that sends back each line."""
    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield proxy(Address(*server.server_address))
        server.shutdown()


def ask(connection: socket.socket, timeout: float = 10) -> bytes:
    connection.settimeout(timeout)
    connection.sendall(b"hello\n")
    return connection.recv(100)


def test_proxy_leads_both_ways(through: Proxy) -> None:
    with socket.create_connection(through.address) as connection:
        assert ask(connection) == b"hello\n"
        assert through.connections == 1
    wait_until(lambda: through.connections, "the connection is closed", accept=lambda n: n == 0)


def test_proxy_cut_resets_and_refuses_until_resumed(through: Proxy) -> None:
    with socket.create_connection(through.address) as connection:
        assert ask(connection) == b"hello\n"
        through.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(100)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(through.address)
    through.resume()
    with socket.create_connection(through.address) as connection:
        assert ask(connection) == b"hello\n"


def test_proxy_stall_holds_back_what_comes_and_loses_nothing(through: Proxy) -> None:
    with socket.create_connection(through.address) as connection:
        assert ask(connection) == b"hello\n"
        through.stall()
        with pytest.raises(TimeoutError):
            ask(connection, timeout=0.3)
        through.resume()
        connection.settimeout(10)
        assert connection.recv(100) == b"hello\n"


def test_proxy_delays_each_direction(through: Proxy) -> None:
    with socket.create_connection(through.address) as connection:
        through.delay(0.1)
        start = time.monotonic()
        assert ask(connection) == b"hello\n"
        assert time.monotonic() - start >= 0.2


def test_a_standby_follows_and_is_promoted(folder: Path) -> None:
    primary = Cluster(folder / "a", preload=False).start()
    with primary, primary.standby(folder / "b") as standby:
        with primary.connect() as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS n")
        wait_until(lambda: count_tables(standby), "the table is there")
        primary.kill9()
        standby.promote()
        with standby.connect() as connection:
            connection.execute("INSERT INTO t VALUES (2)")


def count_tables(cluster: Cluster) -> int:
    with cluster.connect() as connection:
        row = connection.execute("SELECT count(*) FROM pg_class WHERE relname = 't'").fetchone()
    assert row is not None
    return int(row[0])


def test_a_broker_killed_comes_back_with_its_messages(own_broker: Broker, topic: MakeTopic) -> None:
    name = topic(partitions=2, on=own_broker)
    own_broker.produce(name, [("a", "1"), "2"], partition=1)
    own_broker.kill9()
    own_broker.start()
    assert [(m.key(), m.value()) for m in own_broker.messages(name)] == [(b"a", b"1"), (None, b"2")]
    assert own_broker.high_watermarks(name) == {0: 0, 1: 2}


def test_a_brokers_clients_can_be_led_through_a_proxy(own_broker: Broker, kafka_proxy: Proxy, topic: MakeTopic) -> None:
    name = topic(on=own_broker)
    client = Kafka(own_broker.proxied_bootstrap)
    client.produce(name, ["1"])
    assert client.answers()
    kafka_proxy.cut()
    assert not client.answers(timeout=0.3)
    assert own_broker.answers()


def test_zookeeper_keeps_a_broker_below_its_chroot(zookeeper: ZooKeeper, old_kafka: ZooKeeperBroker) -> None:
    name = old_kafka.create_topic("kept-by-zookeeper")
    old_kafka.produce(name, ["1", "2"])
    assert old_kafka.high_watermarks(name) == {0: 2}
    with zookeeper.client(CHROOT) as client:
        assert client.get_children("/brokers/ids") == ["1"]
        value, _ = client.get("/brokers/ids/1")
    assert f"PLAINTEXT://{old_kafka.address}" in json.loads(value)["endpoints"]


def test_zookeeper_comes_back_with_what_was_written(own_zookeeper: ZooKeeper) -> None:
    own_zookeeper.write({"/consumers/g/offsets/t/0": "42"})
    own_zookeeper.stop()
    assert not own_zookeeper.answers()
    own_zookeeper.start()
    with own_zookeeper.client() as client:
        assert client.get("/consumers/g/offsets/t/0")[0] == b"42"
