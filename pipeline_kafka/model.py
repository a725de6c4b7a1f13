"""The nouns the stages hand to each other. No stage is imported here.

In: nothing. Out: frozen descriptions of consume actions and relations, as the catalog has them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic: the unit Kafka assigns and the key offsets are kept by."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation that a message may fill.

    ``type`` is format_type() with its modifier, ``base`` the same below any domain; both are
    schema-qualified as needed under search_path = pg_catalog. ``default`` is the SQL expression
    the server would use for an absent value: 'NULL' where there is none; None where only the server can apply it,
    to a statement that leaves the column out (identity, and any column of a view).
    ``filled_by_server`` is true for GENERATED ALWAYS columns, identity or stored: never written.
    ``kind`` is 'scalar' where the base type has one text form that JSON's scalars are read as, 'json' for json and
    jsonb, 'nested' for arrays and composites.
    """

    name: str
    type: str
    base: str
    default: str | None
    filled_by_server: bool
    kind: str = "nested"


class KeyColumn(NamedTuple):
    """A column of a key. ``equals`` and ``collation`` say when two of its values are equal, as SQL ('' for none)."""

    name: str
    equals: str
    collation: str


class Key(NamedTuple):
    """A primary key, or a unique constraint or index, that ON CONFLICT can go by."""

    name: str
    is_primary: bool
    columns: tuple[KeyColumn, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation as of one version of its definition.

    ``qualified`` is quoted and ready for SQL. ``version`` changes whenever a column, a default,
    a type or the name does, so that a batch decoded for an older definition is noticed. ``takes_copy`` is false for
    what COPY refuses or does otherwise than INSERT: a view without an INSTEAD OF trigger, row security, rules.
    ``encoding`` is the database's, by PostgreSQL's name for it.
    """

    oid: int
    qualified: str
    kind: str
    columns: tuple[Column, ...]
    version: str
    takes_copy: bool = True
    encoding: str = "UTF8"
    keys: tuple[Key, ...] = ()

    @property
    def shape(self) -> Hashable:
        """Return what lines of COPY depend on: relations of one shape take the same."""
        return self.kind, self.columns, self.takes_copy, self.encoding


def matches(wanted: str, exclude: str | None, topic: str) -> bool:
    """Tell whether a consumer of the topic or pattern ``wanted`` reads this topic.

    A pattern does not take what ``exclude``, a pattern too, takes out; nor topics of Kafka's own, which begin with __,
    unless it begins so itself.
    """
    if not wanted.startswith("^"):
        return wanted == topic
    if topic.startswith("__") and not wanted.startswith("^__"):
        return False
    return re.search(wanted, topic) is not None and (exclude is None or re.search(exclude, topic) is None)


@dataclass(frozen=True, slots=True)
class Consumer:
    """One (topic, relation) consume action: a row of pipeline_kafka.consumers.

    ``owner`` is the role rows are written as; ``switch_to`` its oid where begin_as() must be used,
    None where the owner is a superuser or the worker's own login role. ``search_path`` is the
    owner's own setting, for triggers on the relation. ``timeout`` is in milliseconds,
    ``start_timestamp`` in milliseconds since 1970, ``maxbytes`` in bytes of message values.
    ``version`` changes whenever consume_begin() or seek() is called for it: the worker reads its offsets again then,
    and tries it at once if it was failing.
    """

    id: int
    topic: str
    exclude: str | None
    relation: int
    name: str
    owner: str
    switch_to: int | None
    search_path: str
    group_id: str
    format: str
    delimiter: str
    quote: str | None
    escape: str | None
    null_string: str | None
    header: bool
    unknown_fields: str
    batchsize: int
    maxbytes: int
    timeout: int
    start_offset: int | None
    start_timestamp: int | None
    start_last: int | None
    started: bool
    on_error: str
    on_null: str
    on_conflict: str
    conflict_key: str | None
    max_dead_letters: int | None
    on_offset_lost: str
    version: str = ""
    replay: bool = False

    def reads(self, topic: str) -> bool:
        """Tell whether it reads this topic: by name, or by its pattern."""
        return matches(self.topic, self.exclude, topic)

    @property
    def reading(self) -> Hashable:
        """Return what decoding goes by: consumers that read alike make the same of a message."""
        way = self.format, self.delimiter, self.quote, self.escape, self.null_string, self.header
        return *way, self.unknown_fields, self.on_null, self.on_conflict, self.conflict_key

    def __str__(self) -> str:
        return f"{self.topic} -> {self.name}"
