"""The documents name what there is, and only that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")])
REFERENCE = "\n".join(path.read_text() for path in sorted((CHECKOUT / "docs").glob("*.md")))
SCRIPT = "\n".join(path.read_text() for path in sorted((CHECKOUT / "sql" / "install").glob("*.sql")))
MODULE = (CHECKOUT / "workers" / "pipeline_kafka.c").read_text()

FILES = {"control"}  # pipeline_kafka.control is no object of the database


def defined(kind: str) -> list[str]:
    """The names of the functions, views or tables that CREATE EXTENSION makes in its schema."""
    pattern = rf"^CREATE (?:OR REPLACE )?{kind} (?:IF NOT EXISTS )?pipeline_kafka\.(\w+)"
    return sorted(set(re.findall(pattern, SCRIPT, re.MULTILINE)))


def settings() -> list[str]:
    """The settings that the module defines."""
    return sorted(re.findall(r'DefineCustom\w+Variable\(\s*"(pipeline_kafka\.\w+)"', MODULE))


def anchor(heading: str) -> str:
    """The fragment that leads to a heading, by GitHub's rule."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(document: Path) -> set[str]:
    """The fragments of all headings of a document."""
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("kind", ["FUNCTION", "VIEW", "TABLE"])
def test_kind_of_object_is_found_in_the_script(kind: str) -> None:
    assert defined(kind)


@pytest.mark.parametrize("name", defined("FUNCTION"))
def test_function_is_in_the_reference(name: str) -> None:
    assert re.search(rf"\b{name}\(", REFERENCE)


@pytest.mark.parametrize("name", defined("VIEW"))
def test_view_has_a_section_in_the_reference(name: str) -> None:
    assert f"### {name} (view)" in REFERENCE


@pytest.mark.parametrize("name", defined("TABLE"))
def test_table_is_in_the_reference(name: str) -> None:
    assert f"| `{name}` |" in REFERENCE


def test_settings_are_in_the_reference() -> None:
    assert settings()
    assert [name for name in settings() if f"| `{name}` |" not in REFERENCE] == []


def test_arguments_of_consume_begin_have_their_types_and_defaults() -> None:
    signature = re.search(r"FUNCTION pipeline_kafka\.consume_begin\((topic .*?)\) RETURNS", SCRIPT, re.DOTALL)
    assert signature
    arguments = re.findall(r"(\w+) (\w+)(?: DEFAULT ([^,]+))?", signature[1])
    documented = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\|", REFERENCE, re.MULTILINE)
    written = [(name, kind, default.strip("`").replace("a tab", r"E'\t'")) for name, kind, default in documented]
    assert [argument for argument in arguments if argument not in written] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_object_that_a_document_names_is_there(document: Path) -> None:
    text = document.read_text()
    known = {name for kind in ("FUNCTION", "PROCEDURE", "VIEW", "TABLE") for name in defined(kind)}
    known |= {name.partition(".")[2] for name in settings()}
    named = re.findall(r"(?<![\w/-])pipeline_kafka\.([a-z]\w+)(?!\.)", text)
    assert sorted(set(named) - known - FILES) == []


def test_functions_that_the_reference_describes_are_there() -> None:
    described = re.findall(r"^### (\w+)\(", REFERENCE, re.MULTILINE)
    described += re.findall(r"^\| `(\w+)\(", REFERENCE, re.MULTILINE)
    assert described
    assert sorted(set(described) - {*defined("FUNCTION"), *defined("PROCEDURE")}) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_local_links_resolve(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", document.read_text())
    broken = [f"{path}#{fragment}" for path, fragment in links if not resolves(document, path, fragment)]
    assert broken == []


def resolves(document: Path, path: str, fragment: str) -> bool:
    """Is there such a file beside the document and, where it is named, such a heading in it?"""
    target = document.parent / path if path else document
    return target.exists() and (not fragment or fragment in anchors(target))
