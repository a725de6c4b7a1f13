"""What tests of security do over and over: tell a database how to be let in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.rows import dict_row

from tests.fix_cluster import Connection
from tests.testbed.secure_broker import SecureBroker

SECRETS = ("sasl.password", "ssl.key.pem", "ssl.key.password")


def configure(connection: Connection, broker: SecureBroker, properties: Mapping[str, str]) -> str:
    """Put these properties, and the listener of their security protocol, in place of those there are; its address.

    They go into the tables, as a restored dump's do: set_property() would ask librdkafka about each.
    """
    host = broker.bootstrap_of(properties["security.protocol"])
    with connection.transaction():
        for table in ("brokers", "properties", "secrets"):
            connection.execute(f"DELETE FROM pipeline_kafka.{table}".encode())
        connection.execute("SELECT pipeline_kafka.add_broker(%s)", [host])
        change(connection, properties)
    return host


def change(connection: Connection, properties: Mapping[str, str | None]) -> None:
    """Change some properties; None takes one away."""
    with connection.transaction():
        for name, value in properties.items():
            table = "secrets" if name in SECRETS else "properties"
            connection.execute(f"DELETE FROM pipeline_kafka.{table} WHERE name = %s".encode(), [name])
            if value is not None:
                connection.execute(f"INSERT INTO pipeline_kafka.{table} VALUES (%s, %s)".encode(), [name, value])


def checked(connection: Connection, timeout: int = 10000) -> list[dict[str, Any]]:
    """The rows of check_brokers()."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM pipeline_kafka.check_brokers(%s)", [timeout]).fetchall()
