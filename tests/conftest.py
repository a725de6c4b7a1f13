"""The fixtures of all tests, a plugin a subject."""

from __future__ import annotations

pytest_plugins = [
    "tests.fix_report",
    "tests.fix_cluster",
    "tests.fix_kafka",
    "tests.fix_secure",
    "tests.fix_zookeeper",
    "tests.fix_proxy",
    "tests.fix_worker",
    "tests.fix_feed",
]
