"""A file of the storage that is being written: it appears under its key when it is committed, or not at all."""

from typing import Protocol

from app.storage.failures import translated


class Unfinished(Protocol):
    """What an adapter gives for a file that is being written; raises OSError. Keeps nothing of what it has written."""

    def write(self, data: bytes | memoryview) -> None: ...
    def commit(self) -> None: ...
    def discard(self) -> None: ...


class PendingWriter:
    """Writes one file as its content arrives; errors are those of the storage."""

    def __init__(self, key: str, unfinished: Unfinished) -> None:
        self._key = key
        self._unfinished = unfinished
        self._is_open = True

    def write(self, data: bytes | memoryview) -> None:
        with translated(self._key):
            self._unfinished.write(data)

    def commit(self) -> None:
        """Make the file visible, and durable where the storage is a disk. If this raises, nothing is left."""
        try:
            with translated(self._key):
                self._unfinished.commit()
        except BaseException:
            self.discard()
            raise
        self._is_open = False

    def discard(self) -> None:
        """Drop what was written; without effect once it is committed."""
        if self._is_open:
            self._is_open = False
            with translated(self._key):
                self._unfinished.discard()
