"""Opaque, creation-sorted identifiers: a prefix and a UUIDv7 (RFC 9562)."""

import re
import secrets
import threading
import time
import uuid
from datetime import UTC, datetime

JOB_ID = re.compile(r"job-[0-9a-f-]{36}")
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
FILE_ID = re.compile(f"file-{_UUID}")
UPLOAD_ID = re.compile(f"upload-{_UUID}")
PART_ID = re.compile(f"part-{_UUID}")
BATCH_ID = re.compile(f"batch-{_UUID}")
PERMISSION_ID = re.compile(f"cp-{_UUID}")


class _Clock:
    """Unique timestamps: 48 bits of milliseconds and 12 bits of a fraction (RFC 9562 §6.2, method 3)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def stamp(self) -> int:
        now_ns = time.time_ns()
        stamp = (now_ns // 1_000_000 << 12) | ((now_ns % 1_000_000) * 4096 // 1_000_000)
        with self._lock:
            self._last = max(stamp, self._last + 1)
            return self._last


_clock = _Clock()


def first_id(prefix: str, moment: datetime) -> str:
    """An id that sorts before all ids created at ``moment`` or later."""
    return f"{prefix}-{uuid.UUID(int=int(moment.timestamp() * 1000) << 80)}"


def moment_of(any_id: str) -> datetime:
    """The millisecond at which an id was made. Raises ValueError for one that says none."""
    return datetime.fromtimestamp((uuid.UUID(any_id.partition("-")[2]).int >> 80) / 1000, UTC)


def new_id(prefix: str) -> str:
    """``job-0193…``; ids of one process sort by creation, even within a millisecond."""
    stamp = _clock.stamp()
    value = (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | secrets.randbits(62)
    digits = f"{value:032x}"
    return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"  # as of `uuid.UUID`
