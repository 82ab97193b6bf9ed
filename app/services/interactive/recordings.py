"""Recordings of sessions (asciicast v2): written by gateways in pieces, read as one file.

A storage of objects can't append, so that a recording is a folder of pieces, in the order of their names.
"""

from collections.abc import Iterator

from app.domain.errors import NotFound
from app.storage.object_keys import checked_key
from app.storage.storage import Storage

MEDIA_TYPE = "application/x-asciicast"
MOST_BYTES = 256 << 20  # of one recording; a session that prints more is ended
PIECE_BYTES = 1 << 20  # about as many a gateway holds before it writes them
_READ_BYTES = 64 << 10


def folder_key(job_id: str, session_id: str) -> str:
    return checked_key(f"jobs/{job_id}/sessions/{session_id}")


def write_piece(storage: Storage, job_id: str, session_id: str, *, number: int, data: bytes) -> None:
    """Store a piece; ``number`` counts from 0. The first one begins with the header line. Repeating it is harmless."""
    storage.write(checked_key(f"{folder_key(job_id, session_id)}/{number:08d}.cast"), data)


def read(storage: Storage, job_id: str, session_id: str) -> Iterator[bytes]:
    """The recording as far as it is stored. Raises NotFound where nothing is."""
    folder = folder_key(job_id, session_id)
    names = sorted(storage.names(folder))
    if not names:
        raise NotFound(f"nothing of the session {session_id} is recorded yet; its gateway writes every few seconds")
    return (chunk for name in names for chunk in _chunks(storage, f"{folder}/{name}"))


def _chunks(storage: Storage, key: str) -> Iterator[bytes]:
    with storage.open(key) as piece:
        while chunk := piece.read(_READ_BYTES):
            yield chunk
