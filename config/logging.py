"""JSON logs on stderr, one object per line, with the ids of the current job, attempt, node and request, without
secrets.
"""

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Any

from config.redaction import Redaction

_context: ContextVar[MappingProxyType[str, str | int]] = ContextVar("log_context", default=MappingProxyType({}))

# Loggers that repeat what their callers report; Celery's two lines per wake-up do not name the job, and Tornado has a
# line for each request or answer that cannot be read, which strangers may send without end.
QUIET = {
    "amqp": logging.WARNING,
    "urllib3": logging.WARNING,
    "fsspec": logging.WARNING,
    "filelock": logging.WARNING,
    "celery.worker.strategy": logging.WARNING,
    "celery.app.trace": logging.WARNING,
    "tornado.general": logging.ERROR,
}

# Loggers that install handlers of their own.
SELF_CONFIGURED = ("gunicorn.error",)


def configure_logging(level: str, *, process: str, redaction: Redaction | None = None) -> None:
    """Send all logs of this process to stderr; ``process`` names it in every line.

    ``redaction`` knows the secrets of this process; text in the form of a secret is masked without it, too.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process, redaction or Redaction()))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(least)
    for name in SELF_CONFIGURED:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def log_crashes() -> None:
    """Log uncaught exceptions of the process and its threads as JSON, instead of Python's plain traceback."""

    def crashed(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, at)
        else:
            logging.getLogger(__name__).critical("the process crashes", exc_info=(kind, error, at))

    def thread_crashed(what: threading.ExceptHookArgs) -> None:
        name = what.thread.name if what.thread is not None else ""
        if what.exc_value is not None:
            error = (what.exc_type, what.exc_value, what.exc_traceback)
            logging.getLogger(__name__).critical("the thread %s crashed", name, exc_info=error)

    sys.excepthook, threading.excepthook = crashed, thread_crashed


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

    def __init__(self, process: str, redaction: Redaction) -> None:
        super().__init__()
        self._process = process
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {
            "at": at,
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            **_context.get(),
            "message": self._redaction(record.getMessage()),
        }
        if record.exc_info:
            line["error"] = self._redaction(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = self._redaction(self.formatStack(record.stack_info))
        return json.dumps(line, default=str)
