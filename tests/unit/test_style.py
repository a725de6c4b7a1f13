"""Rules of the house that no linter holds: short files, words for whoever reads, nothing of one machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ["pipeline_kafka", "demo", "bench", "tests"]
LONGEST_FILE = 300
LONGEST_C_FILE = 500
LONGEST_FUNCTION = 40

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def definitions(path: Path) -> Iterator[tuple[str, Definition]]:
    """Classes, functions and methods that can be named from outside the file, by dotted name."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, Definition):
            yield f"{path.relative_to(ROOT)}: {node.name}", node
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, Definition):
                    yield f"{path.relative_to(ROOT)}: {node.name}.{child.name}", child


def test_files_are_short() -> None:
    assert [str(path) for path in python_files(*CODE) if lines(path) > LONGEST_FILE] == []
    assert [str(path) for path in ROOT.glob("workers/*.c") if lines(path) > LONGEST_C_FILE] == []


def test_functions_are_short() -> None:
    long = [
        name
        for path in python_files("pipeline_kafka")
        for name, node in definitions(path)
        if not isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
    ]
    assert long == []


def test_what_is_public_is_documented() -> None:
    silent = [
        name
        for path in python_files("pipeline_kafka")
        for name, node in definitions(path)
        if not any(part.startswith("_") for part in name.split(": ")[1].split(".")) and not ast.get_docstring(node)
    ]
    assert silent == []


def test_files_say_what_they_are() -> None:
    files = [path for path in python_files(*CODE) if path.read_text().strip()]
    assert [str(path) for path in files if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_modules_say_what_goes_in_and_what_comes_out() -> None:
    """All but the package's own face and what its users see of it as a command."""
    files = [p for p in python_files("pipeline_kafka") if p.stem not in ("__init__", "__main__")]
    texts = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in files}
    assert [str(path) for path, text in texts.items() if "In: " not in text or "Out: " not in text] == []


def test_nothing_is_left_to_do_or_bound_to_one_machine() -> None:
    forbidden = re.compile(r"\b(TODO|FIXME|XXX)\b|/root/|/home/|/tmp/\w")
    files = [path for path in python_files(*CODE) if path != Path(__file__)]
    files += [*ROOT.glob("workers/*.c"), *ROOT.glob("sql/**/*.sql")]
    assert [str(path) for path in files if forbidden.search(path.read_text())] == []
