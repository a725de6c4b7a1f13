"""The questions there are, by the names that SQL functions ask them by.

In: nothing. Out: for each a function of a request and its arguments, which yields the rows of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .properties import refuse_property
from .topics import topic_partitions, topic_watermarks, topics

QUESTIONS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
    function.__name__: function for function in (refuse_property, topics, topic_partitions, topic_watermarks)
}
