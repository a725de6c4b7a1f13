"""The faults: how each is done, and how it is undone.

In: a scene. Out: for each kind a context that breaks something, tells what, and heals it at its end.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import psycopg

from tests.faults.scene import MOST_PARTITIONS, PARTITIONS, Scene
from tests.testbed.proxy import Proxy
from tests.testbed.wait import wait_until

SHORT, LONG = (0.0, 0.5), (0.2, 4.0)  # seconds; the session with Kafka's group lasts 3
DYING = 30  # seconds the server may take to notice that one of its processes was killed

Act = Callable[[Scene, random.Random], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault, drawn ``weight`` times as often as one of 1, which holds for a time between two (seconds).

    Another may be played within it, unless it needs a part (server, broker, helper, locks) that this one breaks.
    """

    name: str
    act: Callable[[Scene, random.Random], AbstractContextManager[str]]
    weight: int
    hold: tuple[float, float]
    needs: frozenset[str]
    breaks: frozenset[str]


KINDS: list[Kind] = []


def fault(
    weight: int = 2, hold: tuple[float, float] = SHORT, needs: str = "", breaks: str = ""
) -> Callable[[Act], Act]:
    """Register a kind of fault; ``needs`` and ``breaks`` are words."""

    def register(act: Act) -> Act:
        name = act.__name__.replace("_", " ")
        needed, broken = frozenset(needs.split()), frozenset(breaks.split())
        KINDS.append(Kind(name, contextmanager(act), weight, hold, needed, broken))
        return act

    return register


# -- workers ----------------------------------------------------------------------------------------


@fault(weight=4, needs="server")
def worker_killed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """The server's own worker; it is started again at once, without the pause that doubles each time."""
    number = rng.choice([signal.SIGKILL, signal.SIGSEGV])
    with suppress(ProcessLookupError):  # it was killed before, and its slot's lock is on its way out
        scene.site.kill_child(number=number)
    yield f"worker killed by {number.name}"
    scene.site.hurry()


@fault(needs="server", hold=LONG, breaks="locks")
def worker_frozen(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Longer than its session with the group lasts, or not."""
    pid = scene.site.child()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    yield "worker frozen"
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@fault(weight=1, needs="server", hold=LONG)
def worker_added(scene: Scene, rng: random.Random) -> Iterator[str]:
    """A second one in the server, which leaves again."""
    _set_workers(scene, 2)
    scene.site.child(slot=1)
    yield "worker added"
    _set_workers(scene, 1)


@fault(needs="helper", breaks="helper")
def helper_killed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """The worker from the command line; it comes back into its slot."""
    scene.helper.kill9()
    yield "helper killed"
    scene.helper.start()


@fault(needs="helper", hold=LONG, breaks="helper")
def helper_removed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """In order, by SIGTERM; then it is added again."""
    scene.helper.stop()
    yield "helper removed"
    scene.helper.start()


@fault(needs="helper", hold=LONG, breaks="helper locks")
def helper_frozen(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Longer than its session with the group lasts, or not."""
    scene.helper.pause()
    yield "helper frozen"
    scene.helper.resume()


def _set_workers(scene: Scene, count: int) -> None:
    scene.site.admin.execute(f"ALTER SYSTEM SET pipeline_kafka.workers = {count}")
    scene.site.admin.execute("SELECT pg_reload_conf()")
    scene.site.wait("SELECT current_setting('pipeline_kafka.workers')", str(count), "the setting is in force")
    scene.site.hurry(count)
    scene.site.admin.execute("NOTIFY pipeline_kafka")


# -- Kafka ------------------------------------------------------------------------------------------


@fault(weight=1, needs="broker", breaks="broker")
def broker_killed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """kill -9."""
    scene.broker.kill9()
    yield "broker killed"
    scene.broker.start()


@fault(weight=1, needs="broker", breaks="broker")
def broker_restarted(scene: Scene, rng: random.Random) -> Iterator[str]:
    """In order."""
    scene.broker.stop()
    yield "broker stopped"
    scene.broker.start()


@fault(weight=1, needs="broker", hold=(0.2, 12.0), breaks="broker")
def broker_frozen(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Connections stay, and nothing answers; after 9 s its own controller gives it up."""
    scene.broker.pause()
    yield "broker frozen"
    scene.broker.resume()


@fault(hold=LONG)
def way_to_kafka_broken(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Every worker's; the load has another."""
    yield f"way to Kafka {_break(scene.way_to_kafka, rng)}"
    scene.way_to_kafka.resume()


@fault(needs="broker")
def partition_added(scene: Scene, rng: random.Random) -> Iterator[str]:
    """The group's work is shared out anew."""
    load = scene.loads[rng.choice(sorted(scene.loads))]
    if load.partitions < MOST_PARTITIONS:
        scene.broker.add_partitions(load.topic, load.partitions + 1)
        load.partitions += 1
    yield f"{load.topic} has {load.partitions} partitions"


def _break(way: Proxy, rng: random.Random) -> str:
    trouble = rng.choice(["cut", "stall"])
    getattr(way, trouble)()
    return {"cut": "cut", "stall": "stalled"}[trouble]


# -- the server -------------------------------------------------------------------------------------


@fault(weight=1, needs="server", breaks="server")
def postmaster_killed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """kill -9."""
    scene.cluster.kill9()
    yield "postmaster killed"
    scene.cluster.start()
    scene.reconnect()


@fault(weight=1, needs="server", breaks="server")
def server_restarted(scene: Scene, rng: random.Random) -> Iterator[str]:
    """As pg_ctl does."""
    mode = rng.choice(["fast", "immediate"])
    scene.cluster.stop(mode)
    yield f"server stopped, {mode}"
    scene.cluster.start()
    scene.reconnect()


@fault(weight=1, needs="server", breaks="server")
def backend_killed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """kill -9 of a process of the server's, which makes it throw out all others. That it must, and only then."""
    whose = rng.choice(["application_name ^@ 'pipeline_kafka loader'", "backend_type = 'pipeline_kafka worker'"])
    found = scene.site.rows(f"SELECT pid FROM pg_stat_activity WHERE {whose} LIMIT 1")
    resets = scene.cluster.resets()
    os.kill(found[0][0] if found else scene.site.admin.info.backend_pid, signal.SIGKILL)
    wait_until(lambda: scene.cluster.resets() > resets, "the server notices that a process of it died", DYING)
    scene.resets += 1
    yield f"backend killed ({whose if found else 'ours'})"
    scene.reconnect()


@fault(needs="server")
def session_ended(scene: Scene, rng: random.Random) -> Iterator[str]:
    """pg_terminate_backend() of one of the workers' sessions."""
    name = rng.choice(["pipeline_kafka loader%", "pipeline_kafka worker"])
    scene.site.end_session(name)
    yield f"session {name} ended"


@fault(hold=LONG, breaks="locks")
def way_to_server_broken(scene: Scene, rng: random.Random) -> Iterator[str]:
    """The helper's."""
    yield f"way to the server {_break(scene.way_to_server, rng)}"
    scene.way_to_server.resume()


# -- what users do ----------------------------------------------------------------------------------


@fault(needs="server locks", breaks="locks", hold=LONG)
def relation_locked(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Against everybody."""
    relation = rng.choice(scene.relations())
    with _held(scene, f"LOCK TABLE {relation}"):
        yield f"{relation} locked"


@fault(needs="server locks", breaks="locks", hold=LONG)
def offsets_locked(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Of one consumer in one partition, as by somebody who looks at them and goes for a coffee."""
    relation, partition = rng.choice(scene.relations()), rng.randrange(PARTITIONS)
    with _held(
        scene,
        f"""SELECT FROM pipeline_kafka.offsets WHERE partition = {partition} AND consumer_id =
            (SELECT id FROM pipeline_kafka.consumers WHERE relation = '{relation}'::regclass) FOR UPDATE""",
    ):
        yield f"offset of {relation} locked in partition {partition}"


@fault(needs="server")
def consumer_ended(scene: Scene, rng: random.Random) -> Iterator[str]:
    """And begun again where it ended."""
    relation = rng.choice(scene.relations())
    topic = relation.partition("_")[0]
    scene.site.end(topic, relation)
    yield f"consumer of {relation} ended"
    scene.site.begin(topic, relation, format=topic, start_offset=None)


@fault(needs="server locks")
def column_added(scene: Scene, rng: random.Random) -> Iterator[str]:
    """One that a line of text need not fill. Then it is dropped again."""
    relation = rng.choice(scene.relations())
    rest = "text DEFAULT 'x'" if relation.startswith("json") else "bigint GENERATED ALWAYS AS (n + 1) STORED"
    scene.site.admin.execute(f"ALTER TABLE {relation} ADD COLUMN extra {rest}")
    yield f"column added to {relation}"
    scene.site.admin.execute(f"ALTER TABLE {relation} DROP COLUMN extra")


@contextmanager
def _held(scene: Scene, statement: str) -> Iterator[None]:
    """Hold the locks of a statement, in a session of its own that may be lost with the server."""
    connection = scene.database.connect(autocommit=False)
    try:
        connection.execute(statement)
        yield
    finally:
        with suppress(psycopg.OperationalError):
            connection.rollback()
        connection.close()
