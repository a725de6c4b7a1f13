"""Asking Kafka for a session, by a process of its own: see answers/.

In: plpy, a question and its arguments. Out: the rows of the answer, each a JSON object.

The session looks for a cancel or a shutdown several times a second, whatever the process does. The process ends when
the session does: it reads the end of its stdin.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import msgspec

from .answers.protocol import DONE, PIECE, TROUBLE, Frame, Frames, Request, Trouble
from .steps import NO_BROKER

# questions that take no broker
OFFLINE = {"refuse_property", "registered_brokers", "zookeeper_offsets", "zookeeper_members"}
LOOK_EVERY = 0.1  # seconds between looks for a cancel
GRACE = 2.0  # seconds the process may take beyond its timeout, to begin and to say why it has no answer
# librdkafka aborts where a group's coordinator goes away at the wrong moment (its issue 4605): then it is asked again,
# unless part of the answer has been given away already.
AGAIN_FOR = 0.5  # seconds that must be left for that
_MOST = 1 << 16  # bytes read at a time
_PROPERTIES = (
    "SELECT name, value FROM pipeline_kafka.properties UNION ALL SELECT name, value FROM pipeline_kafka.secrets"
)


def ask(plpy: Any, question: str, arguments: str, timeout: int) -> list[str]:
    """Return the rows of an answer. ``arguments`` is a JSON object, ``timeout`` in milliseconds.

    Raises plpy.Error with the SQLSTATE, detail and hint of what went wrong. A list, since PL/Python
    makes "error fetching next item from iterator" of what an iterator raises.
    """
    return [frame.data.decode() for frame in frames(plpy, question, msgspec.json.decode(arguments), timeout)]


def frames(plpy: Any, question: str, arguments: dict[str, Any], timeout: int) -> Iterator[Frame]:
    """Yield the frames of an answer but for the last; see ask(). Between pieces, the timeout begins anew."""
    brokers = plpy.execute("SELECT host FROM pipeline_kafka.brokers ORDER BY host")
    if not brokers and question not in OFFLINE:
        raise_trouble(plpy, Trouble(NO_BROKER.step.sqlstate, NO_BROKER.text, hint=NO_BROKER.step.hint))
    properties = plpy.execute(_PROPERTIES)
    request = Request(
        question,
        arguments,
        [row["host"] for row in brokers],
        {row["name"]: row["value"] for row in properties},
        timeout / 1000,
    )
    python = plpy.execute("SELECT pipeline_kafka.setting('python') AS path")[0]["path"]
    end, begun = time.monotonic() + request.timeout, False
    while True:
        try:
            for frame in _answer(plpy, python, request):
                begun = True
                yield frame
            return
        except _Gone as gone:
            request.timeout = end - time.monotonic()
            if gone.code != -signal.SIGABRT or begun or request.timeout < AGAIN_FOR:
                raise_trouble(plpy, Trouble("58000", f"the process that asks Kafka {_end_of(gone.code)}"))


class _Gone(Exception):
    """The process has ended with this exit code in the middle of its answer."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _answer(plpy: Any, python: str, request: Request) -> Iterator[Frame]:
    with _process(python, request) as (process, out):
        for frame in _read(plpy, process, out, request.timeout + GRACE):
            if frame.kind == TROUBLE:
                raise_trouble(plpy, msgspec.json.decode(frame.data, type=Trouble))
            if frame.kind == DONE:
                return
            yield frame


@contextmanager
def _process(python: str, request: Request) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    command = [python, "-I", "-m", "pipeline_kafka.answers"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env={}, cwd="/", start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            data = msgspec.msgpack.encode(request)
            process.stdin.write(len(data).to_bytes(4, "big") + data)
            process.stdin.flush()
            yield process, process.stdout
        finally:
            process.kill()


def _read(plpy: Any, process: subprocess.Popen[bytes], out: IO[bytes], patience: float) -> Iterator[Frame]:
    end = time.monotonic() + patience
    cut = Frames()
    look = plpy.prepare("SELECT")
    while True:
        plpy.execute(look)  # raises where the statement is cancelled; ends with the session where that ends
        if select.select([out], [], [], LOOK_EVERY)[0]:
            data = os.read(out.fileno(), _MOST)
            if not data:
                raise _Gone(process.wait())
            for frame in cut.feed(data):
                yield frame
                if frame.kind == PIECE:
                    end = time.monotonic() + patience  # whoever reads them may take long over one
        elif time.monotonic() > end:
            raise_trouble(plpy, Trouble("08006", "Kafka did not answer in time", hint="Give it a longer timeout."))


def _end_of(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def raise_trouble(plpy: Any, trouble: Trouble) -> None:
    """Raise plpy.Error with what a Trouble says."""
    more = {"detail": trouble.detail, "hint": trouble.hint}  # None would be the text "None"
    plpy.error(trouble.error, sqlstate=trouble.sqlstate, **{name: text for name, text in more.items() if text})
