"""A storm: a topic of messages of which the relation takes none, in two ways that the server finds out.

In: the stage. Out: messages set aside per second, by one worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bench import consuming
from bench.filling import fill
from bench.result import Result
from bench.stage import PARTITIONS, Stage

NAMES = ("storm-value", "storm-check")
TABLES = {
    "storm-value": "CREATE TABLE storm_value (id int, name text)",  # 22P02, while the value is read
    "storm-check": "CREATE TABLE storm_check (id int CHECK (id < 0), name text)",  # 23514, when the row is written
}
_LETTERS = """
SELECT count(*) FROM pipeline_kafka.dead_letters d
JOIN pipeline_kafka.consumers c ON c.id = d.consumer_id WHERE c.topic = %s
"""


def measure(stage: Stage, names: Collection[str]) -> list[Result]:
    """Send only bad messages, and count how fast they are set aside."""
    count = stage.scale.rows // 5
    with stage.database("storm") as database, database.connect() as connection:
        consuming.warm_up(connection, stage.broker, 1)
        return [_storm(stage, connection, name, count) for name in NAMES if name in names]


def _storm(stage: Stage, connection: consuming.Connection, name: str, count: int) -> Result:
    fill(stage.broker, name, PARTITIONS, _values(name, count))
    connection.execute(TABLES[name])
    relation = name.replace("-", "_")
    begun = consuming.now(connection)
    consuming.begin(connection, name, relation, format="json")
    consuming.wait_passed(connection, [relation], count)
    seconds = (consuming.now(connection) - begun).total_seconds()
    letters = connection.execute(_LETTERS, [name]).fetchall()[0][0]
    consuming.end(connection, name, relation)
    wrong = None if letters == count else f"{letters} of {count} messages were set aside"
    return Result(name, count / seconds, "messages/s", wrong=wrong)


def _values(name: str, count: int) -> Iterator[bytes]:
    form = '{"id":%d,"name":"bad"}' if name == "storm-check" else '{"id":"x%d","name":"bad"}'
    return ((form % number).encode() for number in range(count))
