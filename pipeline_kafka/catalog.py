"""What is configured, read from the catalog tables.

In: a connection. Out: consumers, brokers, properties and relations, as model has them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import class_row, dict_row

from .model import Column, Consumer, Key, KeyColumn, Relation

# Runs a query with parameters by name, and gives its rows by name.
Read = Callable[[str, dict[str, Any]], list[dict[str, Any]]]

_CONSUMERS = """
SELECT c.id, c.topic, c.exclude, c.relation::oid::int8 AS relation,
       coalesce(format('%%s.%%s', quote_ident(n.nspname), quote_ident(r.relname)), c.relation::text) AS name,
       c.owner::text AS owner,
       CASE WHEN a.rolsuper OR a.rolname = current_user THEN NULL ELSE c.owner::oid::int8 END AS switch_to,
       coalesce((SELECT substr(setting, 13)
                 FROM pg_db_role_setting s, unnest(s.setconfig) AS setting
                 WHERE setting LIKE 'search_path=%%' AND s.setrole IN (0, c.owner)
                   AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
                 ORDER BY s.setrole = 0, s.setdatabase = 0 LIMIT 1), '"$user", public') AS search_path,
       coalesce(c.group_id, %(default_group)s) AS group_id,
       c.format, c.delimiter, c.quote, c.escape, c.null_string, c.header, c.unknown_fields, c.batchsize, c.maxbytes,
       c.timeout, c.start_offset,
       ceil(extract(epoch FROM c.start_timestamp) * 1000)::int8 AS start_timestamp, c.start_last, c.started,
       c.on_error, c.on_null, c.on_conflict, c.conflict_key, c.max_dead_letters,
       c.on_offset_lost, c.xmin::text AS version, c.replay
FROM pipeline_kafka.consumers c
LEFT JOIN pg_class r ON r.oid = c.relation
LEFT JOIN pg_namespace n ON n.oid = r.relnamespace
LEFT JOIN pg_roles a ON a.oid = c.owner
"""
_ENABLED = _CONSUMERS + "WHERE c.enabled AND NOT c.replay ORDER BY c.id"
_REPLAY = _CONSUMERS + "WHERE c.enabled AND c.id = (SELECT p.id FROM pipeline_kafka.replays p WHERE p.slot = %(slot)s)"
_BY_ID = _CONSUMERS + "WHERE c.id = %(id)s::int"

# Two defaults are no expression for others to use: an identity column takes from its sequence what the role that writes
# may not, and a view's column that is left out takes that of the table below.
_COLUMNS = """
WITH RECURSIVE below(relation, attnum, oid, typmod) AS (
    SELECT attrelid, attnum, atttypid, atttypmod FROM pg_attribute
    WHERE attrelid = ANY (%(relations)s::oid[]) AND NOT attisdropped
    UNION ALL
    SELECT b.relation, b.attnum, t.typbasetype, t.typtypmod
    FROM below b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd')
SELECT a.attrelid::int8 AS relation, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       format_type(b.oid, b.typmod) AS base,
       CASE WHEN a.attidentity = '' AND c.relkind <> 'v'
            THEN coalesce(pg_get_expr(d.adbin, d.adrelid), t.typdefault, 'NULL') END AS default,
       a.attgenerated <> '' OR a.attidentity = 'a' AS filled_by_server,
       CASE WHEN b.oid IN ('json'::regtype, 'jsonb'::regtype) THEN 'json'
            WHEN bt.typtype = 'c' OR bt.typcategory = 'A' OR bt.typtype = 'p' THEN 'nested' ELSE 'scalar' END AS kind
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_type t ON t.oid = a.atttypid
JOIN below b ON b.relation = a.attrelid AND b.attnum = a.attnum
JOIN pg_type bt ON bt.oid = b.oid AND bt.typtype <> 'd'
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_depend s ON a.attidentity <> '' AND s.classid = 'pg_class'::regclass AND s.deptype = 'i'
                     AND s.refclassid = 'pg_class'::regclass AND s.refobjid = a.attrelid AND s.refobjsubid = a.attnum
WHERE a.attrelid = ANY (%(relations)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""

_RELATION = """
SELECT c.oid::int8 AS oid, format('%%I.%%I', n.nspname, c.relname) AS qualified, c.relkind::text AS kind,
       pipeline_kafka.relation_version(c.oid) AS version,
       CASE c.relkind WHEN 'v' THEN EXISTS (
                SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgtype & 64 <> 0 AND t.tgtype & 4 <> 0)
            ELSE NOT c.relrowsecurity AND NOT c.relhasrules END AS takes_copy,
       current_setting('server_encoding') AS encoding
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (%(relations)s::oid[])
"""

_PROPERTIES = """
SELECT name, value FROM pipeline_kafka.properties UNION ALL SELECT name, value FROM pipeline_kafka.secrets ORDER BY name
"""

_KEYS = """
SELECT r.oid::int8 AS relation, k.name, k.is_primary, k.columns, k.equals, k.collations
FROM unnest(%(relations)s::oid[]) AS r(oid),
     LATERAL pipeline_kafka.unique_keys(r.oid) WITH ORDINALITY AS k(name, is_primary, columns, equals, collations, n)
ORDER BY r.oid, k.n
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a worker acts on: enabled consumers, brokers, librdkafka properties, ZooKeepers (address,
    protocol), error rules, workers wanted."""

    consumers: tuple[Consumer, ...]
    brokers: tuple[str, ...]
    properties: tuple[tuple[str, str], ...]
    zookeepers: tuple[tuple[str, str | None], ...]
    rules: tuple[tuple[str, str], ...]
    workers_wanted: int

    def groups(self) -> set[str]:
        """Return the consumer groups that the enabled consumers belong to."""
        return {consumer.group_id for consumer in self.consumers}

    def same_kafka(self, other: Snapshot) -> bool:
        """Tell whether Kafka is reached as under another snapshot."""
        return (self.brokers, self.properties) == (other.brokers, other.properties)


def read(connection: psycopg.Connection[Any], default_group: str, slot: int | None = None) -> Snapshot:
    """Read the configuration, in autocommit mode. ``default_group`` is the group of consumers that name none.

    With ``slot`` the only consumer is the replay that goes on in it, if there is one.

    Raises psycopg.errors.UndefinedTable or InvalidSchemaName where the extension is gone.
    """
    # Table by table: who keeps the lock of one while he waits for the next can be in a deadlock with DROP EXTENSION.
    with connection.cursor(row_factory=class_row(Consumer)) as cursor:
        query = _ENABLED if slot is None else _REPLAY
        consumers = cursor.execute(query, {"default_group": default_group, "slot": slot}).fetchall()
    brokers = connection.execute("SELECT host FROM pipeline_kafka.brokers ORDER BY host").fetchall()
    properties = connection.execute(_PROPERTIES).fetchall()
    zookeepers = connection.execute(
        "SELECT address, protocol FROM pipeline_kafka.zookeepers ORDER BY address"
    ).fetchall()
    rules = connection.execute("SELECT code, action FROM pipeline_kafka.error_rules ORDER BY code").fetchall()
    wanted = connection.execute("SELECT pipeline_kafka.workers_wanted()").fetchone()
    return Snapshot(
        tuple(consumers),
        tuple(host for (host,) in brokers),
        tuple((name, value) for name, value in properties),
        tuple((address, protocol) for address, protocol in zookeepers),
        tuple((code, action) for code, action in rules),
        wanted[0] if wanted else 0,
    )


def describe(connection: psycopg.Connection[Any], oid: int) -> Relation:
    """Return the relation with this oid as it is defined now.

    Raises psycopg.errors.UndefinedTable where it is gone.
    """
    found = describe_all(connection, [oid])
    if oid not in found:
        raise psycopg.errors.UndefinedTable(f"relation with OID {oid} does not exist any more")
    return found[oid]


def describe_all(connection: psycopg.Connection[Any], oids: Iterable[int]) -> dict[int, Relation]:
    """Return the relations with these oids as they are defined now; one that is gone is left out."""
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        return _relations(lambda query, params: cursor.execute(query, params).fetchall(), oids)


def target(read: Read, consumer_id: int) -> tuple[Consumer, Relation | None]:
    """Return a consumer, enabled or not, and its relation, None where that is gone."""
    (row,) = read(_BY_ID, {"id": consumer_id, "default_group": ""})
    consumer = Consumer(**row)
    return consumer, _relations(read, [consumer.relation]).get(consumer.relation)


def _relations(read: Read, oids: Iterable[int]) -> dict[int, Relation]:
    wanted = {"relations": f"{{{','.join(map(str, oids))}}}"}
    columns: dict[int, list[Column]] = defaultdict(list)
    for row in read(_COLUMNS, wanted):
        columns[row.pop("relation")].append(Column(**row))
    keys: dict[int, list[Key]] = defaultdict(list)
    for row in read(_KEYS, wanted):
        keys[row.pop("relation")].append(_key(**row))
    return {
        row["oid"]: Relation(columns=tuple(columns[row["oid"]]), keys=tuple(keys[row["oid"]]), **row)
        for row in read(_RELATION, wanted)
    }


def _key(name: str, is_primary: bool, columns: list[str], equals: list[str], collations: list[str]) -> Key:
    return Key(name, is_primary, tuple(map(KeyColumn, columns, equals, collations)))


def identify(connection: psycopg.Connection[Any]) -> tuple[str, int, str]:
    """Return (system identifier, database oid, database name): what makes a worker's names unique."""
    row = connection.execute(
        "SELECT s.system_identifier::text, d.oid::int8, d.datname"
        " FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()"
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]
