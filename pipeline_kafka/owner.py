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


@contextmanager
def as_owner(cursor: psycopg.Cursor[Any], consumer: Consumer) -> Iterator[None]:
    """Run statements as the consumer's owner, with the owner's search_path.

    The token keeps a trigger from ending the switch. On an error nothing is undone here: rolling back to the
    savepoint restores both. Constraints that were deferred inside are checked inside: once switched the server
    refuses to defer any, so that only needs asking for where there is nothing to switch.
    """
    token = secrets.token_hex(16)
    if consumer.switch_to is not None:
        cursor.execute("SELECT pipeline_kafka.begin_as(%s::oid, %s)", (consumer.switch_to, token))
    cursor.execute("SELECT pg_catalog.set_config('search_path', %s, true)", (consumer.search_path,))
    yield
    if consumer.switch_to is None:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    else:
        cursor.execute("SELECT pipeline_kafka.end_as(%s)", (token,))
    cursor.execute("SELECT pg_catalog.set_config('search_path', %s, true)", (SEARCH_PATH,))
