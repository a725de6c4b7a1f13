"""A loader fed by hand, for what does not need Kafka."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.fix_cluster import Connection
from tests.integration.feeding import Feed
from tests.testbed.database import Database

MakeFeed = Callable[..., Feed]


@pytest.fixture
def feed(database: Database, admin: Connection) -> Generator[MakeFeed]:
    """Call for a consumer that is fed by hand: feed(relation='t', **its columns). Its tables come before."""
    with ExitStack() as stack:

        def make(relation: str = "t", **options: Any) -> Feed:
            return stack.enter_context(closing(Feed(database, admin, relation, **options)))

        yield make


@pytest.fixture
def letters(admin: Connection, feed: MakeFeed) -> Feed:
    """A consumer into t(id int, name text) with the letters 0 to 2, whose ids are x0 to x2."""
    admin.execute("CREATE TABLE t (id int, name text)")
    made = feed()
    made.send(*(f'{{"id":"x{n}"}}' for n in range(3)))
    assert len(made.letters()) == 3
    return made
