"""The account: what was sent, against what is in the relations, what is set aside, and what is counted.

In: a scene whose faults are over. Out: a row a relation and partition, and complaints; none where all is accounted for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.faults.load import Entry
from tests.faults.scene import HELPER_SLOT, Scene
from tests.testbed.wait import wait_until

MOST = 5  # complaints of one kind that are shown


class Line(NamedTuple):
    """One relation and partition."""

    relation: str
    partition: int
    sent: int
    rows: int
    aside: int
    nulls: int
    messages: int
    next_offset: int
    high: int

    def fits(self) -> bool:
        """Sent is in, aside or null; each message was counted once; and all of it was read."""
        return self.sent == self.rows + self.aside + self.nulls == self.messages and self.next_offset == self.high


_SENT = "CREATE TEMP TABLE sent (topic text, partition int, kafka_offset bigint, n bigint, fate text)"

_LINES = """
WITH sent AS (SELECT partition, count(*) AS sent FROM sent WHERE topic = %(topic)s GROUP BY 1),
rows AS (SELECT kafka_partition AS partition, count(*) AS rows FROM {relation} GROUP BY 1),
aside AS (SELECT d.partition, count(*) AS aside FROM pipeline_kafka.dead_letters d
          JOIN pipeline_kafka.consumers c ON c.id = d.consumer_id AND c.relation = %(relation)s::regclass GROUP BY 1),
told AS (SELECT o.partition, o.nulls, o.messages, o.next_offset, o.set_aside FROM pipeline_kafka.offsets o
         JOIN pipeline_kafka.consumers c ON c.id = o.consumer_id AND c.relation = %(relation)s::regclass)
SELECT %(relation)s, partition, coalesce(sent, 0), coalesce(rows, 0), coalesce(aside, 0), coalesce(nulls, -1),
       coalesce(messages, -1), coalesce(next_offset, -1)
FROM sent FULL JOIN rows USING (partition) FULL JOIN aside USING (partition) FULL JOIN told USING (partition)
ORDER BY 2
"""

# Each message by its place: the row it must be, or the dead letter; and what is there without having been sent.
_WRONG = """
WITH expected AS (
    SELECT partition, kafka_offset, n, fate = 'good' OR (fate = 'split' AND %(open)s) AS is_row
    FROM sent WHERE topic = %(topic)s AND fate <> 'null'),
found AS (
    SELECT kafka_partition AS partition, kafka_offset, n, true AS is_row FROM {relation}
    UNION ALL
    SELECT d.partition, d.kafka_offset, NULL, false FROM pipeline_kafka.dead_letters d
    JOIN pipeline_kafka.consumers c ON c.id = d.consumer_id AND c.relation = %(relation)s::regclass)
SELECT partition, kafka_offset, max(e.n) AS n, bool_or(e.is_row) AS must_be_row, count(f.is_row) AS found,
       count(*) FILTER (WHERE f.is_row) AS as_rows, max(f.n) AS row_n
FROM expected e FULL JOIN found f USING (partition, kafka_offset)
GROUP BY partition, kafka_offset
HAVING count(e.n) = 0 OR count(f.is_row) <> 1 OR bool_or(e.is_row) <> bool_or(f.is_row)
    OR (bool_or(e.is_row) AND max(e.n) <> max(f.n))
ORDER BY 1, 2
"""

_COUNTS = """
SELECT c.relation::text, o.topic, o.partition, o.set_aside, count(d.id), o.skipped, o.lost
FROM pipeline_kafka.offsets o
JOIN pipeline_kafka.consumers c ON c.id = o.consumer_id
LEFT JOIN pipeline_kafka.dead_letters d ON (d.consumer_id, d.topic, d.partition) = (o.consumer_id, o.topic, o.partition)
GROUP BY c.relation, o.consumer_id, o.topic, o.partition
HAVING o.set_aside <> count(d.id) OR o.skipped <> 0 OR o.lost <> 0
"""


class Account:
    """The ledger of each load against the database, once all is read."""

    def __init__(self, scene: Scene) -> None:
        self.lines: list[Line] = []
        self.complaints: list[str] = []
        self._scene = scene

    def settle(self) -> None:
        """End the loads, wait until all is read, and compare. Raises TimeoutError where it is not read."""
        for load in self._scene.loads.values():
            load.stop()
        for topic in self._scene.loads:
            self._scene.site.read(topic)
        self._scene.site.admin.execute(_SENT)
        for load in self._scene.loads.values():
            self._keep(load.topic, load.ledger())
            self._compare(load.topic, self._scene.broker.high_watermarks(load.topic))
        self._complain("dead letters and what is counted differ", self._scene.site.rows(_COUNTS))
        self._look_around()

    def _keep(self, topic: str, ledger: list[Entry]) -> None:
        with self._scene.site.admin.cursor().copy("COPY sent FROM STDIN") as copy:
            for entry in ledger:
                copy.write_row((topic, *entry))

    def _compare(self, topic: str, highs: dict[int, int]) -> None:
        for kind in ("open", "strict"):
            relation = f"{topic}_{kind}"
            given = {"topic": topic, "relation": relation, "open": kind == "open"}
            found = self._rows(_LINES.format(relation=relation), given)
            lines = [Line._make((*row, highs.get(row[1], -1))) for row in found]
            self.lines += lines
            self._complain(f"{relation}: it does not add up", [line for line in lines if not line.fits()])
            self._complain(f"{relation}: wrong places", self._rows(_WRONG.format(relation=relation), given))
            if len(lines) != len(highs):
                self.complaints.append(f"{relation} knows {len(lines)} of {len(highs)} partitions")

    def _look_around(self) -> None:
        """At what else must soon hold: nobody stands still or is left over, and the server was reset by us alone.

        Soon, for a worker whose session was lost begins anew, and shows for some seconds why.
        """
        site = self._scene.site
        for topic in self._scene.loads:
            site.all_told(topic)
        self._wait("SELECT * FROM pipeline_kafka.consumers_status WHERE state <> 'running'", [])
        self._wait("SELECT slot FROM pipeline_kafka.workers_status WHERE state = 'running'", [(0,), (HELPER_SLOT,)])
        if (resets := self._scene.cluster.resets()) != self._scene.resets:
            self.complaints.append(f"the server was reset {resets} times, of which {self._scene.resets} were ours")

    def _wait(self, query: str, expected: list[tuple[Any, ...]]) -> None:
        site = self._scene.site
        try:
            wait_until(lambda: site.rows(query), f"it is {expected}: {query}", accept=lambda rows: rows == expected)
        except TimeoutError as error:
            self.complaints.append(str(error))

    def _rows(self, query: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._scene.site.admin.execute(query, given).fetchall()

    def _complain(self, what: str, found: list[Any]) -> None:
        if found:
            self.complaints.append(f"{what}: {len(found)}, such as {[tuple(each) for each in found[:MOST]]}")


def account(scene: Scene) -> Account:
    """Settle a scene's account and return it. Raises TimeoutError where something is not read in time."""
    result = Account(scene)
    result.settle()
    return result


def table(lines: list[Line]) -> str:
    """The account as text."""
    head = f"{'relation':<12} {'part.':>5} {'sent':>8} {'in':>8} {'aside':>7} {'null':>6} {'offset':>8} {'high':>8}"
    rows = [
        f"{line.relation:<12} {line.partition:>5} {line.sent:>8} {line.rows:>8} {line.aside:>7} {line.nulls:>6}"
        f" {line.next_offset:>8} {line.high:>8}"
        for line in lines
    ]
    return "\n".join([head, *rows])
