"""Consumer groups of the time when ZooKeeper kept them: their offsets, and who is in them.

In: a request and a ZooKeeper's address. Out: rows of zookeeper_offsets() and zookeeper_members(), and what they are of.
A group is /consumers/<group>: offsets/<topic>/<partition> holds the next offset, and ids has a node a live member.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..zookeeper import ZooKeeper, ZooKeeperError, connect
from .protocol import Request, Unanswered


class OldOffset(NamedTuple):
    """Where a group stands in a partition, by its node; None where that is empty."""

    topic: str
    partition: int
    offset: int | None
    written_at: datetime


def zookeeper_offsets(request: Request, group: str, topic: str | None, zookeeper: str) -> Iterator[dict[str, Any]]:
    """Yield where a group stands in each partition, or in those of one topic, and when that was written."""
    check(group)
    with session(zookeeper, request.timeout) as keeper:
        if keeper.children(f"/consumers/{group}") is None:
            raise absent(group, keeper)
        for topic_, partition, offset, written_at in offsets(keeper, group, topic):
            written = written_at.isoformat()
            yield {"topic": topic_, "partition": partition, "committed_offset": offset, "written_at": written}


def zookeeper_members(request: Request, group: str, zookeeper: str) -> Iterator[dict[str, Any]]:
    """Yield the id of each consumer that is in a group now, by ZooKeeper; none for a group that is not there."""
    check(group)
    with session(zookeeper, request.timeout) as keeper:
        for member in members(keeper, group):
            yield {"member_id": member}


def check(group: str) -> None:
    """Raise Unanswered where no group of ZooKeeper's can have this name."""
    if not _is_node(group):
        raise Unanswered("22023", f'"{group}" is no name of a consumer group in ZooKeeper')


@contextmanager
def session(address: str, timeout: float) -> Iterator[ZooKeeper]:
    """Open a session for ``timeout`` seconds. Raises Unanswered, as what is done in it does."""
    try:
        with connect(address, timeout) as keeper:
            yield keeper
    except ZooKeeperError as error:
        raise Unanswered(error.sqlstate, str(error), hint=error.hint) from None


def absent(group: str, keeper: ZooKeeper) -> Unanswered:
    """Return that there is no such group in a ZooKeeper."""
    groups = keeper.children("/consumers")
    detail = f"There are {', '.join(groups)}." if groups else None
    hint = "Is the address's chroot the one that the consumers' zookeeper.connect has?"
    return Unanswered("42704", f'ZooKeeper {keeper.address} has no consumer group "{group}"', detail, hint)


def offsets(keeper: ZooKeeper, group: str, topic: str | None = None) -> Iterator[OldOffset]:
    """Yield where a group stands, in one topic or all. Raises Unanswered where a node is no offset."""
    above = f"/consumers/{group}/offsets"
    topics = keeper.children(above) or [] if topic is None else [topic]
    for name in filter(_is_node, topics):
        for partition in sorted(keeper.children(f"{above}/{name}") or [], key=_number):
            path = f"{above}/{name}/{partition}"
            node = keeper.get(path)
            if node is not None:
                written_at = datetime.fromtimestamp(node.written_at, UTC)
                yield OldOffset(name, _whole(path, partition), _offset(path, node.data), written_at)


def members(keeper: ZooKeeper, group: str) -> list[str]:
    """Return the ids of the consumers that are in a group now: their nodes go with their sessions."""
    return keeper.children(f"/consumers/{group}/ids") or []


def _is_node(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name


def _number(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() else -1, name)


def _offset(path: str, data: bytes) -> int | None:
    return _whole(path, data.decode("ascii", "backslashreplace")) if data else None


def _whole(path: str, text: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) >= 1 << 63:
        raise Unanswered("22P02", f'node "{path}" of ZooKeeper is not about an offset: "{text[:100]}"')
    return int(text)
