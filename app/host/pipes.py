"""Pipes through which splice(2) moves bytes between two connections. Standard library only, as relays need it."""

import contextlib
import errno
import fcntl
import os

PIPE_BYTES = 1 << 20
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # nothing more can be opened now


class Pipes:
    """splice(2) needs a pipe between two sockets. One is taken for as long as there is something in it."""

    def __init__(self) -> None:
        self._spare = [_pipe()]  # for what goes through at once

    def take(self) -> tuple[int, int]:
        """Its ends for reading and for writing. Raises OSError."""
        return self._spare.pop() if self._spare else _pipe()

    def give_back(self, pipe: tuple[int, int], *, is_empty: bool) -> None:
        if is_empty and not self._spare:
            self._spare.append(pipe)
            return
        for fd in pipe:
            os.close(fd)

    def close(self) -> None:
        """Close what is spare."""
        while self._spare:
            for fd in self._spare.pop():
                os.close(fd)


def _pipe() -> tuple[int, int]:
    pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    with contextlib.suppress(OSError):  # a user may only have so much in pipes: a small one does, too
        fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return pipe
