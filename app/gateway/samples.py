"""Samples of requests with their answers, of services whose document says so; they become files of the project."""

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from app.gateway.backend import ServiceView
from app.gateway.dispatch import AdmittedRequest
from app.gateway.sample import AnswerSample

MOST_FILE_BYTES = 4 << 20
MOST_BYTES = 32 << 20  # that wait to be written; further samples are dropped
CHECK_SECONDS = 1.0
_DATA = b"data: "
logger = logging.getLogger(__name__)

Store = Callable[[str, str, bytes], Awaitable[None]]  # project, name of the file, content


@dataclass
class _Open:
    """Lines of one service and hour."""

    project: str
    name: str
    hour: str
    lines: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def is_due(self) -> bool:
        return self.size >= MOST_FILE_BYTES or self.hour != _hour()


class SampleBook:
    """For one event loop. ``name`` ends the names of files: it says whose they are."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._open: dict[str, _Open] = {}  # by service
        self._files: list[_Open] = []  # these, and full ones
        self._size = 0

    def begin(self, view: ServiceView) -> AnswerSample | None:
        """None: this request is not sampled."""
        return AnswerSample() if view.logged_share and random.random() < view.logged_share else None  # noqa: S311

    def end(self, sample: AnswerSample, asked: AdmittedRequest, view: ServiceView, *, status: int, model: str) -> None:
        """Keep the sample until its file is written."""
        line = _line(sample, asked, view.name, status=status, model=model)
        if self._size + len(line) > MOST_BYTES:
            logger.warning("a sample of %s is dropped: the storage does not take them fast enough", view.name)
            return
        kept = self._open.get(asked.service_id)
        if kept is None or kept.is_due:
            kept = self._open[asked.service_id] = _Open(view.project, view.name, _hour())
            self._files.append(kept)
        kept.lines.append(line)
        kept.size += len(line)
        self._size += len(line)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self._write([each for each in self._files if each.is_due])

    async def flush(self) -> None:
        await self._write(list(self._files))

    async def _write(self, files: Sequence[_Open]) -> None:
        for each in files:
            self._files.remove(each)
            self._open = {service_id: kept for service_id, kept in self._open.items() if kept is not each}
            name = f"requests-{each.name}-{each.hour}-{self._name}.jsonl"
            try:
                await self._store(each.project, name, b"".join(each.lines))
            except Exception:
                logger.warning("%d samples of %s could not be stored", len(each.lines), each.name, exc_info=True)
            finally:
                self._size -= each.size


def _hour() -> str:
    return time.strftime("%Y-%m-%dT%H", time.gmtime())


def _line(sample: AnswerSample, asked: AdmittedRequest, service: str, *, status: int, model: str) -> bytes:
    document = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": asked.headers["X-Request-ID"],
        "service": service,
        "model": model,
        "path": asked.path,
        "status": status,
        "request": json.loads(asked.body),
        "answer": _answer(bytes(sample.answer)),
    }
    if sample.is_cut:
        document["cut"] = True
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _answer(raw: bytes) -> object:
    """An object, or the chunks of a stream; what is neither, because it was cut, as a text."""
    try:
        if not raw or raw.startswith(b"{"):
            return json.loads(raw) if raw else None
        events = [each for each in raw.split(b"\n\n") if each.startswith(_DATA)]
        return [json.loads(each.removeprefix(_DATA)) for each in events if each != _DATA + b"[DONE]"]
    except (ValueError, RecursionError):
        return raw.decode(errors="replace")
