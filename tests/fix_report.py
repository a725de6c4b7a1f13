"""On a failure, what servers, brokers and workers logged during the test is in the report."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.testbed.folders import new_folder, remove_folder

SHOWN = 6000  # characters of each log

Watch = Callable[[str, Path], None]
_LOGS = pytest.StashKey[dict[Path, str]]()
_SIZES = pytest.StashKey[dict[Path, int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LOGS] = {}


@pytest.fixture(scope="session")
def watch_log(pytestconfig: pytest.Config) -> Watch:
    """Call with a title and a file to have the file's end shown when a test fails."""

    def watch(title: str, path: Path) -> None:
        pytestconfig.stash[_LOGS][path] = title

    return watch


@pytest.fixture(scope="session")
def session_folder() -> Generator[Path]:
    """A folder for what lasts as long as the session, with a short path that other OS users can reach."""
    folder = new_folder()
    yield folder
    remove_folder(folder)


@pytest.fixture
def folder() -> Generator[Path]:
    """A folder of the test's own, with a short path that other OS users can reach (unlike tmp_path)."""
    folder = new_folder()
    yield folder
    remove_folder(folder)


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_SIZES] = {path: _size(path) for path in item.config.stash[_LOGS]}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        before = item.stash.get(_SIZES, {})
        for path, title in item.config.stash[_LOGS].items():
            if said := _read(path, before.get(path, 0)):
                report.sections.append((f"{title} during {report.when}", said[-SHOWN:]))
    return report


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(path: Path, start: int) -> str:
    return path.read_bytes()[start:].decode(errors="replace") if path.exists() else ""
