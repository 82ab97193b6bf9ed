"""TensorBoard's event files: encodes the few messages that metrics need.

A file is a sequence of records: length, CRC and protobuf message. Writing them here costs the training nothing, works
for every framework and script, and needs no library in the supervisor, which has to stay small.
"""

import math
import struct
from collections.abc import Mapping

VERSION = "brain.Event:2"
_LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_SESSION_START = b"\x3a\x02\x08\x01"  # session_log { status: START }


def first_event(at: float) -> bytes:
    """The first record of every file; ``at`` in seconds since the epoch."""
    return _record(_head(at, 0) + _field(0x1A, VERSION.encode()))


def restart_event(at: float, step: int) -> bytes:
    """Makes readers discard this step and later ones of earlier files in the folder."""
    return _record(_head(at, step) + _SESSION_START)


def scalars_event(at: float, step: int, values: Mapping[str, float]) -> bytes:
    """The values of one step by name; NaN and infinities as they are, others as 32-bit numbers."""
    summary = b"".join(
        _field(0x0A, _field(0x0A, name.encode("utf-8", "replace")) + b"\x15" + struct.pack("<f", _narrowed(value)))
        for name, value in values.items()
    )
    return _record(_head(at, step) + _field(0x2A, summary))


def _head(at: float, step: int) -> bytes:
    return b"\x09" + struct.pack("<d", at) + b"\x10" + _varint(step)


def _field(tag: int, content: bytes) -> bytes:
    return bytes((tag,)) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _narrowed(value: float) -> float:
    """Values too large for 32 bits become infinite."""
    return math.copysign(math.inf, value) if abs(value) > _LARGEST and not math.isnan(value) else value


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _masked_crc(length) + message + _masked_crc(message)


def _masked_crc(data: bytes) -> bytes:
    crc = _crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = tuple(map(_crc_of_byte, range(256)))
