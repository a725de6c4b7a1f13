"""The play: start, configure, watch, look at what was set aside, stop.

In: KEEP from the environment. Out: the screen; exit code 0 where every order arrived, 1 where not, 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import shlex
import signal
import time

from rich.console import Console

from tests.testbed.jars import KAFKA_VERSION, cache_folder
from tests.testbed.postgres import major_version

from .orders import BACKLOG, PARTITIONS, RATE, TOPIC, Orders
from .psql import Psql
from .stage import DATABASE, Stage
from .watch import Watch

SECONDS = 20  # of counting
LAST_ROWS = 10  # seconds the last rows may take to arrive
LOG_END = 4000  # characters of the server's log that are shown when they do not

CREATE_TABLE = """
    CREATE TABLE orders (
        order_id        bigint,
        customer        text,
        item            text,
        quantity        int,
        price           numeric(8,2),
        ordered_at      timestamptz,
        kafka_partition int,            -- columns of these names tell where a row is from
        kafka_offset    bigint,
        kafka_timestamp timestamptz,
        loaded_at       timestamptz DEFAULT clock_timestamp()
    );
"""
CONSUME = "SELECT pipeline_kafka.consume_begin('orders', 'orders', format => 'json', start_offset => -2);"
COUNT = """
    SELECT count(*) AS rows, count(DISTINCT order_id) AS different, sum(quantity * price) AS turnover
    FROM orders;
"""
DEAD_LETTERS = """
    SELECT topic, partition, kafka_offset, convert_from(value, 'UTF8') AS value, sqlstate, error
    FROM pipeline_kafka.dead_letters;
"""
STATUS = """
    SELECT topic, relation, state, partitions, messages, set_aside, lag, last_progress::timestamptz(0)
    FROM pipeline_kafka.consumers_status;
"""
WORKERS = "SELECT slot, state, pid, partitions, last_progress::timestamptz(0) FROM pipeline_kafka.workers_status;"


def main() -> int:
    """Run the demo and return its exit code."""
    keep = os.environ.get("KEEP", "") not in ("", "0")
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    stage = Stage(keep)
    stay = False
    try:
        arrived = _play(console, stage)
        stay = keep
    except (RuntimeError, TimeoutError) as error:
        console.print(f"\nThe demo failed: {error}", style="bold red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("\nInterrupted.")
        return 130
    finally:
        _end(console, stage, stay)
    return 0 if arrived else 1


def _play(console: Console, stage: Stage) -> bool:
    """Everything between the start and the end; returns whether every order arrived."""
    _start(console, stage)
    orders = Orders(stage.broker)
    psql = Psql(console, stage.psql())
    try:
        _configure(console, psql, orders, stage.broker.bootstrap)
        return _watch(console, stage, psql, orders)
    finally:
        orders.stop()


def _start(console: Console, stage: Stage) -> None:
    kafka = f"Apache Kafka {KAFKA_VERSION}"
    if not (cache_folder() / f"kafka-{KAFKA_VERSION}").exists():
        console.print(f"Fetching {kafka}, this once.")
    console.print(f"Starting PostgreSQL {major_version()} and {kafka} in {stage.folder} …")
    begun = time.monotonic()
    stage.start()
    console.print(f"Both are up after {time.monotonic() - begun:.1f} s.\n")


def _configure(console: Console, psql: Psql, orders: Orders, bootstrap: str) -> None:
    orders.make_topic()
    console.print(
        f"A shop sends its orders to the Kafka topic {TOPIC}: {BACKLOG:,} JSON messages in {PARTITIONS} partitions so "
        "far. In the database, the extension is told where Kafka is.\n"
    )
    psql.run("CREATE EXTENSION pipeline_kafka CASCADE;")
    psql.run(f"SELECT pipeline_kafka.add_broker('{bootstrap}');")
    console.print(
        "A table has columns named like the messages' fields, and one call fills it from then on, starting at the "
        "beginning of the topic (-2).\n"
    )
    psql.run(CREATE_TABLE)
    psql.run(CONSUME)


def _watch(console: Console, stage: Stage, psql: Psql, orders: Orders) -> bool:
    console.print(
        f"When that was committed, the server started a worker. From now on {RATE:,} more orders a second come in, and "
        f"for {SECONDS} s the rows are counted.\n"
    )
    with stage.cluster.connect(DATABASE) as connection:
        orders.start()
        watch = Watch(connection, orders)
        watch.show(console, SECONDS)
        orders.stop()
        arrived = watch.all_arrived(LAST_ROWS)
    console.print(f"\nNo more orders: {orders.sent:,} were sent. Is each of them here, and only once?\n")
    psql.run(COUNT)
    console.print("The quantity of one was no number. It was set aside, whole, and held nothing up.\n")
    psql.run(DEAD_LETTERS, expanded=True)
    console.print("What the extension says of its work:\n")
    psql.run(STATUS)
    psql.run(WORKERS)
    if not arrived:
        console.print("Not every order has arrived. The server's log ends:\n", style="bold red")
        console.out(stage.cluster.log()[-LOG_END:])
    return arrived


def _end(console: Console, stage: Stage, stay: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if stay:
        _say_how_to_go_on(console, stage)
        return
    console.print("Stopping both …")
    stage.stop()
    console.print(f"Stopped, and {stage.folder} is removed.")


def _say_how_to_go_on(console: Console, stage: Stage) -> None:
    order = '{"order_id": 0, "item": "tea", "quantity": 1, "price": 4.20}'
    for text, command in (
        ("Both are left running. Look around:", shlex.join(stage.psql())),
        ("Send an order of your own:", f"echo '{order}' | kcat -P -b {stage.broker.bootstrap} -t {TOPIC}"),
        ("Stop both and remove their folder:", stage.leave()),
    ):
        console.print(f"{text}\n\n    {command}\n", soft_wrap=True)


if __name__ == "__main__":
    raise SystemExit(main())
