"""Logs as one JSON object per line on stderr, with the ids of what a thread or request is working on."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

_context: ContextVar[MappingProxyType[str, str | int]] = ContextVar("log_context", default=MappingProxyType({}))

# They log what their callers are told anyway.
QUIET = {"amqp": logging.WARNING, "urllib3": logging.WARNING, "fsspec": logging.WARNING, "filelock": logging.WARNING}


def configure_logging(level: str, *, process: str) -> None:
    """Send everything this process logs to stderr; ``process`` names it in every line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(least)


@contextmanager
def log_context(**ids: str | int) -> Iterator[None]:
    """Add ids (``job``, ``attempt``, ``node``, ``request``) to every line logged inside."""
    token = _context.set(MappingProxyType({**_context.get(), **ids}))
    try:
        yield
    finally:
        _context.reset(token)


class JsonFormatter(logging.Formatter):
    """``at``, ``level``, ``process``, ``logger``, ``message``, ids of the context, ``error`` with a traceback."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {
            "at": at, "level": record.levelname, "process": self._process, "logger": record.name, **_context.get(),
            "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str)
