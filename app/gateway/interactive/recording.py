"""The recording of a session: what its terminal showed, as asciicast v2, stored in pieces while it runs."""

import codecs
import json
import logging
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from app.gateway.interactive.ends import End
from app.services.interactive.recordings import MOST_BYTES, PIECE_BYTES

PIECE_SECONDS = 5.0  # after which what has come is stored, so that the end of a gateway loses no more
ROWS, COLUMNS = 24, 80
logger = logging.getLogger(__name__)

Store = Callable[[int, bytes], Awaitable[None]]  # number of the piece, content


class RecordingEnded(Exception):
    """The session must end, as no more of it can be recorded; ``end`` says why."""

    def __init__(self, end: End) -> None:
        super().__init__(end.reason)
        self.end = end


class Recording:
    """For one event loop; `add` waits while a piece is stored, so that memory holds no more than one."""

    def __init__(self, store: Store, request: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._began = clock()
        self._stored_at = self._began
        self._pieces = 0
        self._size = 0
        self._lines: list[bytes] = []
        self._pending = 0
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}
        self._line(_header(request))

    async def add(self, channel: int, data: bytes) -> None:
        """Output of this channel. Raises RecordingEnded."""
        text = self._decoder(channel).decode(data)
        if text:
            self._event("o", text)
        await self._store_if_due()

    async def resized(self, rows: int, columns: int) -> None:
        self._event("r", f"{columns}x{rows}")
        await self._store_if_due()

    async def tick(self) -> None:
        """Call it now and then. Raises RecordingEnded."""
        await self._store_if_due()

    async def finish(self) -> None:
        """Store the rest. Raises RecordingEnded."""
        for decoder in self._decoders.values():
            if text := decoder.decode(b"", final=True):
                self._event("o", text)
        await self._flush()

    async def _store_if_due(self) -> None:
        if self._pending >= PIECE_BYTES or (self._lines and self._clock() - self._stored_at >= PIECE_SECONDS):
            await self._flush()
        if self._size > MOST_BYTES:
            raise RecordingEnded(End(f"its recording has reached {MOST_BYTES >> 20} MiB, the limit of one session"))

    async def _flush(self) -> None:
        content, number = b"".join(self._lines), self._pieces
        if not content:
            return
        self._lines, self._pending, self._pieces = [], 0, number + 1
        self._stored_at = self._clock()
        try:
            await self._store(number, content)
        except Exception as error:
            logger.warning("a piece of a recording could not be stored", exc_info=True)
            raise RecordingEnded(End("its recording could not be stored, and the project records sessions")) from error

    def _event(self, kind: str, text: str) -> None:
        self._line([round(self._clock() - self._began, 6), kind, text])

    def _line(self, document: object) -> None:
        line = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        self._lines.append(line)
        self._pending += len(line)
        self._size += len(line)

    def _decoder(self, channel: int) -> codecs.IncrementalDecoder:
        if channel not in self._decoders:
            self._decoders[channel] = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoders[channel]


def _header(request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "version": 2,
        "width": request.get("columns") or COLUMNS,
        "height": request.get("rows") or ROWS,
        "timestamp": int(time.time()),
        "command": shlex.join(request.get("command") or ()),
        "env": {"TERM": request.get("term") or ""},
    }
