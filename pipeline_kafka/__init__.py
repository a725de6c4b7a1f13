"""Kafka topics into PostgreSQL relations, exactly once, run and watched from psql."""

__version__ = "2.0.0"
