"""The file that W&B's client writes offline and `wandb sync` uploads: records of protobuf in LevelDB's log format.

Numbers are the fields of wandb_internal.proto, which W&B only adds to: old files stay readable.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BLOCK, _HEAD = 32768, 7
_FILE_HEAD = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# Fields of Record.
_HISTORY, _SUMMARY, _RUN, _EXIT, _HEADER, _FOOTER = 2, 3, 17, 18, 21, 22
_VALUE = 16  # value_json of an item
_OLDEST_READER = "0.13.0"


@dataclass(frozen=True, kw_only=True)
class WandbRun:
    """``entity`` empty: that of the user who uploads it. ``started_seconds`` since 1970."""

    run_id: str
    project: str
    name: str
    config: Mapping[str, Any]
    tags: Sequence[str] = ()
    entity: str = ""
    group: str = ""
    job_type: str = ""
    host: str = ""
    started_seconds: float = 0.0


class WandbFile:
    """Each call gives the bytes that come next: first `begin`, then steps in ascending order, then `end`."""

    def __init__(self) -> None:
        self._written = len(_FILE_HEAD)
        self._number = 0

    def begin(self, run: WandbRun) -> bytes:
        versions = _text(1, "trainyard") + _text(2, _OLDEST_READER)
        header = self._record(_HEADER, _bytes(1, versions))
        seconds = int(run.started_seconds)
        started = _whole(1, seconds) + _whole(2, int((run.started_seconds - seconds) * 1e9))
        texts = {1: run.run_id, 2: run.entity, 3: run.project, 6: run.group, 7: run.job_type, 8: run.name}
        body = b"".join(_text(number, text) for number, text in texts.items())
        body += _bytes(4, _items(run.config.items())) + b"".join(_text(10, tag) for tag in run.tags)
        return _FILE_HEAD + header + self._record(_RUN, body + _text(13, run.host) + _bytes(17, started))

    def step(self, number: int, values: Mapping[str, Any]) -> bytes:
        items = _items({**values, "_step": number}.items())
        return self._record(_HISTORY, items + _bytes(2, _whole(1, number)))

    def summary(self, values: Mapping[str, Any]) -> bytes:
        return self._record(_SUMMARY, _items(values.items()))

    def end(self, exit_code: int, runtime_seconds: int) -> bytes:
        """Of a run that has ended."""
        ended = self._record(_EXIT, _whole(1, exit_code) + _whole(2, runtime_seconds))
        return ended + self._record(_FOOTER, b"")

    def _record(self, kind: int, body: bytes) -> bytes:
        self._number += 1
        return b"".join(self._framed(_whole(1, self._number) + _bytes(kind, body)))

    def _framed(self, data: bytes) -> Iterator[bytes]:
        """A record, in as many parts as blocks need."""
        is_first = True
        while True:
            room = _BLOCK - self._written % _BLOCK
            if room < _HEAD:
                self._written += room
                yield b"\0" * room
                continue
            part, data = data[: room - _HEAD], data[room - _HEAD :]
            kind = (_MIDDLE if data else _LAST) if not is_first else (_FIRST if data else _FULL)
            self._written += _HEAD + len(part)
            yield struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            if not data:
                return
            is_first = False


def _items(values: Iterable[tuple[str, Any]]) -> bytes:
    """`repeated Item`, field 1, of configs, steps and summaries alike."""
    return b"".join(_bytes(1, _text(1, name) + _text(_VALUE, json.dumps(value))) for name, value in values)


def _text(number: int, text: str) -> bytes:
    """Left out where it is empty, as protobuf does; lone surrogates have no UTF-8."""
    return _bytes(number, text.encode(errors="replace")) if text else b""


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _whole(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value & (1 << 64) - 1) if value else b""


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
