"""Writing as the owner of a consumer: see "Writing as the owner" in docs/design.md.

In: a cursor in a transaction, a consumer. Out: the owner's rights and search_path for as long as a block lasts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from .database import SEARCH_PATH
from .model import Consumer

_SEARCH = "SELECT pg_catalog.set_config('search_path', %s, true)"
_BEGIN = "SELECT pipeline_kafka.begin_as(%s::oid, %s), pg_catalog.set_config('search_path', %s, true)"


@contextmanager
def as_owner(cursor: psycopg.Cursor[Any], consumer: Consumer) -> Iterator[None]:
    """Run statements as the consumer's owner, with the owner's search_path.

    On an error nothing is undone here: rolling back to the savepoint restores both.
    """
    token = become_owner(cursor, consumer)
    yield
    leave_owner(cursor, consumer, token)


def become_owner(cursor: psycopg.Cursor[Any], consumer: Consumer) -> str:
    """Begin to be the owner, and return the token that ends it: it keeps a trigger from doing so."""
    token = secrets.token_hex(16)
    if consumer.switch_to is None:
        cursor.execute(_SEARCH, (consumer.search_path,))
    else:
        cursor.execute(_BEGIN, (consumer.switch_to, token, consumer.search_path))
    return token


def leave_owner(cursor: psycopg.Cursor[Any], consumer: Consumer, token: str) -> None:
    """Be oneself again, with one's own search_path, which end_as() puts back.

    Constraints that were deferred meanwhile are checked first: once switched the server refuses to defer any, so that
    only needs asking for where there was nothing to switch.
    """
    if consumer.switch_to is None:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(_SEARCH, (SEARCH_PATH,))
    else:
        cursor.execute("SELECT pipeline_kafka.end_as(%s)", (token,))
