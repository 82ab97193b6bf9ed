"""Files that a supervisor sends to the publisher while it reads them, so that they need no place on a disk.

The source is a Unix socket. A connection names a file by a line and receives the whole of it; any number may follow.
"""

import contextlib
import io
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from workers.publishing.failures import NotPublished
from workers.publishing.orders import PublishedFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger(__name__)

_MOST_NAME_BYTES = 4096
_ACCEPT_AGAIN_SECONDS = 0.2
_END_SECONDS = 5.0  # a storage that hangs is not waited for

Contents = Mapping[str, Callable[[], Iterable[bytes]]]  # by name


class FileStreams:
    """Serves one connection after the other, on a thread of its own."""

    def __init__(self, address: Path, contents: Contents) -> None:
        """Raises OSError."""
        self._contents = contents
        self._listener = socket.socket(socket.AF_UNIX)
        with _near(address) as name:
            self._listener.bind(name)
        self._listener.listen()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="log-streams", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Call when no reader is left."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends accept
        self._thread.join(_END_SECONDS)
        self._listener.close()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it is stopped, or this process has no descriptor left (EMFILE), which may pass
                self._stopped.wait(_ACCEPT_AGAIN_SECONDS)
                continue
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        """A reader knows the size, and so that it was not sent everything."""
        try:
            with connection.makefile("rb") as asked:
                name = asked.readline(_MOST_NAME_BYTES).decode().rstrip("\n")
            for block in self._contents[name]():
                connection.sendall(block)
        except ConnectionError:
            return  # it needed no more, or was ended
        except Exception:
            log.exception("a stream ended early")


@contextlib.contextmanager
def stream_opened(address: Path, file: PublishedFile) -> Iterator[BinaryIO]:
    """A file from the ``FileStreams`` at the address; reading it raises NotPublished where it ends early.

    Raises OSError.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        with _near(address) as near:
            connection.connect(near)
        connection.sendall(f"{file.path}\n".encode())
        with io.BufferedReader(_Whole(connection, file)) as source:
            yield source


class _Whole(io.RawIOBase):
    """As many bytes as were promised: a server waits for missing ones, and takes more for the next request. A job may
    write on after its file was measured.
    """

    def __init__(self, connection: socket.socket, file: PublishedFile) -> None:
        self._connection = connection
        self._file = file
        self._left = file.size_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer") -> int:
        wanted = min(self._left, memoryview(buffer).nbytes)
        if wanted == 0:
            return 0
        count = self._connection.recv_into(buffer, wanted)
        self._left -= count
        if count == 0:
            raise NotPublished(f"{self._file.path} could not be read to its end", transient=True)
        return count


@contextlib.contextmanager
def _near(address: Path) -> Iterator[str]:
    """The address by a short path: that of a socket must fit into 108 bytes."""
    directory = os.open(address.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{address.name}"
    finally:
        os.close(directory)
