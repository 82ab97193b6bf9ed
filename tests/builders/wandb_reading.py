"""A reader of W&B's offline files, written from the formats' descriptions: checks every length and checksum."""

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

BLOCK, HEAD = 32768, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
Fields = dict[int, list[Any]]


def read_records(data: bytes) -> Iterator[Fields]:
    """The fields of each record."""
    assert data[:HEAD] == struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
    at, parts = HEAD, list[bytes]()
    while at < len(data):
        room = BLOCK - at % BLOCK
        if room < HEAD:
            assert not any(data[at : at + room])
            at += room
            continue
        checksum, length, kind = struct.unpack("<IHB", data[at : at + HEAD])
        part = data[at + HEAD : at + HEAD + length]
        assert length <= room - HEAD
        assert checksum == zlib.crc32(bytes([kind]) + part)
        assert (kind in (MIDDLE, LAST)) == bool(parts)
        parts.append(part)
        at += HEAD + length
        if kind in (FULL, LAST):
            yield fields_of(b"".join(parts))
            parts = []
    assert not parts


def fields_of(message: bytes) -> Fields:
    found: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: Any
        value, at = _varint(message, at)
        if tag & 7 == 2:
            at, value = at + value, message[at : at + value]
        found.setdefault(tag >> 3, []).append(value)
    assert at == len(message)
    return found


def values_of(message: bytes, field: int | None = None) -> dict[str, Any]:
    """The items of a config, a step or a summary."""
    fields = fields_of(message)
    if field is not None:
        fields = fields_of(fields[field][0])
    items = [fields_of(each) for each in fields.get(1, [])]
    return {each[1][0].decode(): json.loads(each[16][0]) for each in items}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
