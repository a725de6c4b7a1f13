"""Imports go one way: a stage knows what it is built of, and never who uses it."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "pipeline_kafka"

# A module imports from lines above its own only. A new module gets its place here first.
ORDER = [
    {"__init__"},
    {"model", "log", "errors", "listening", "steps"},
    {"hearing"},
    {
        "place",
        "message",
        "database",
        "kafka",
        "zookeeper",
        "batch",
        "catalog",
        "offsets",
        "consumer_state",
        "kafka_state",
        "placeholders",
        "coverage",
        "pulse",
        "told",
    },
    {"decoders", "consumer", "owner", "tries", "registered"},
    {"answers", "discovery"},
    {"why", "work", "session", "asking", "copying"},
    {"recorder", "together"},
    {"dead_letters", "limit"},
    {"around"},
    {"loader", "retry"},
    {"loading", "routes", "here"},
    {"starts", "replay_routes"},
    {"pipeline"},
    {"runner"},
    {"lanes", "replaying"},
    {"worker", "status", "plpy_api"},
    {"replay_worker"},
    {"__main__"},
]
RANK = {module: rank for rank, modules in enumerate(ORDER) for module in modules}

# Stages of a message's way, and who may know whom: the loader writes what decoders made, where offsets say.
STAGES = {"catalog", "consumer", "decoders", "dead_letters", "loader", "offsets", "consumer_state"}
KNOWN = {
    ("loader", "decoders"),
    ("loader", "offsets"),
    ("loader", "dead_letters"),
    ("loader", "consumer_state"),
    ("dead_letters", "decoders"),
}

# Either side of the pipeline can be changed without the other: neither speaks the other's protocol.
KAFKA_SIDE = {"consumer", "kafka", "batch", "steps", "hearing", "coverage", "pulse", "told"}
POSTGRESQL_SIDE = {"catalog", "database", "offsets", "consumer_state", "loader", "loading", "status"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def top(path: Path) -> str:
    """The name of a module, or of the package it is in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The absolute dotted names that a file imports, wherever in it."""
    package = ["pipeline_kafka", *path.relative_to(PACKAGE).parts[:-1]]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = [*base, *([node.module] if node.module else [])]
            names |= {".".join([*base, alias.name]) for alias in node.names}
    return names


def ours(path: Path) -> set[str]:
    """The modules of ours, by top(), that a file imports."""
    names = {name.split(".")[1] for name in imported(path) if name.startswith("pipeline_kafka.")}
    return {"__init__" if name == "__version__" else name for name in names}


def edges() -> set[tuple[str, str]]:
    return {(top(path), name) for path in modules() for name in ours(path) if name != top(path)}


def test_every_module_has_its_place() -> None:
    assert {top(path) for path in modules()} == set(RANK)


def test_imports_go_up_the_order_only() -> None:
    assert {(importer, name) for importer, name in edges() if RANK[name] >= RANK[importer]} == set()


def test_stages_do_not_know_each_other() -> None:
    assert {edge for edge in edges() if STAGES.issuperset(edge)} <= KNOWN


def test_each_side_speaks_one_protocol() -> None:
    for path in modules():
        libraries = {name.split(".")[0] for name in imported(path)}
        assert not (top(path) in KAFKA_SIDE and "psycopg" in libraries), path
        assert not (top(path) in POSTGRESQL_SIDE and "confluent_kafka" in libraries), path


def test_decoders_do_not_go_in_circles() -> None:
    folder = PACKAGE / "decoders"
    needs = {
        path.stem: {name.split(".")[2] for name in imported(path) if name.startswith("pipeline_kafka.decoders.")}
        for path in folder.glob("*.py")
        if path.stem != "__init__"
    }
    left = dict(needs)
    while ready := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in ready}
    assert left == {}
