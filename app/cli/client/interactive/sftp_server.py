"""An SFTP server (protocol version 3) over standard input and output, which runs in jobs: see sftp_program.py.

It stands alone, by the standard library of Python 3.8, because a job's image has nothing else. It may do what the
sandbox lets the job do.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    Reply = tuple[int, bytes] | None  # None: the request succeeded, without more to say
    Handle = int | tuple[bytes, list[bytes]]  # of a file, or of a directory with the names that are left

STATUS, HANDLE, DATA, NAME, ATTRIBUTES = 101, 102, 103, 104, 105
OK, EOF, NO_SUCH_FILE, DENIED, FAILURE, BAD_MESSAGE, UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8
SIZE, UIDGID, PERMISSIONS, TIMES, EXTENDED = 1, 2, 4, 8, 0x80000000
READ, WRITE, APPEND, CREATE, TRUNCATE, EXCLUSIVE = 1, 2, 4, 8, 16, 32
MOST_MESSAGE = 256 << 10
MOST_READ = 64 << 10
NAMES_AT_ONCE = 100
RENAME = b"posix-rename@openssh.com"
FSYNC = b"fsync@openssh.com"


class SftpError(Exception):
    """``code`` of the protocol, and words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class SftpReader:
    """Reads the fields of a request."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def byte(self) -> int:
        return self._take(1)[0]

    def number(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def long(self) -> int:
        return int.from_bytes(self._take(8), "big")

    def text(self) -> bytes:
        return self._take(self.number())

    def attributes(self) -> dict[str, Any]:
        flags = self.number()
        found: dict[str, Any] = {}
        if flags & SIZE:
            found["size"] = self.long()
        if flags & UIDGID:
            found["owner"] = self.number(), self.number()
        if flags & PERMISSIONS:
            found["mode"] = self.number()
        if flags & TIMES:
            found["times"] = self.number(), self.number()
        if flags & EXTENDED:
            for _ in range(self.number()):
                self.text()
                self.text()
        return found

    def _take(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) < count:
            raise SftpError(BAD_MESSAGE, "the message is too short")
        self._at += count
        return piece


def packed(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def attributes_of(found: os.stat_result) -> bytes:
    flags = SIZE | UIDGID | PERMISSIONS | TIMES
    times = min(int(found.st_atime), 0xFFFFFFFF), min(int(found.st_mtime), 0xFFFFFFFF)
    owner = found.st_uid & 0xFFFFFFFF, found.st_gid & 0xFFFFFFFF
    return struct.pack(">IQIIIII", flags, found.st_size, *owner, found.st_mode, *(max(each, 0) for each in times))


def long_name(name: bytes, found: os.stat_result) -> bytes:
    """As ls -l shows it, which some clients print."""
    when = time.strftime("%b %d %H:%M", time.localtime(found.st_mtime)).encode()
    start = "%s %3d %-8d %-8d %8d " % (  # noqa: UP031 – widths read better so
        stat.filemode(found.st_mode),
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        found.st_size,
    )
    return start.encode() + when + b" " + name


class Server:
    """Answers one request after the other."""

    def __init__(self, reading: BinaryIO, writing: BinaryIO) -> None:
        self._reading, self._writing = reading, writing
        self._count = 0
        self._handles: dict[bytes, Handle] = {}
        self._requests: dict[int, Callable[[SftpReader], Reply]] = {
            3: self.open,
            4: self.close,
            5: self.read,
            6: self.write,
            7: self.lstat,
            8: self.fstat,
            9: self.setstat,
            10: self.fsetstat,
            11: self.opendir,
            12: self.readdir,
            13: self.remove,
            14: self.mkdir,
            15: self.rmdir,
            16: self.realpath,
            17: self.stat,
            18: self.rename,
            19: self.readlink,
            20: self.symlink,
            200: self.extended,
        }

    def run(self) -> None:
        while True:
            head = self._reading.read(4)
            if len(head) < 4:
                return
            length = struct.unpack(">I", head)[0]
            if not 1 <= length <= MOST_MESSAGE:
                return
            message = SftpReader(self._reading.read(length))
            kind = message.byte()
            if kind == 1:
                self._send(2, struct.pack(">I", 3) + packed(RENAME) + packed(b"1") + packed(FSYNC) + packed(b"1"))
                continue
            self._answer(kind, message)

    def _answer(self, kind: int, message: SftpReader) -> None:
        number = message.number()
        try:
            action = self._requests.get(kind)
            if action is None:
                raise SftpError(UNSUPPORTED, "not supported")
            self._reply(number, *(action(message) or (STATUS, self._status(OK, "done"))))
        except SftpError as error:
            self._reply(number, STATUS, self._status(error.code, error.text))
        except OSError as error:
            codes = {errno.ENOENT: NO_SUCH_FILE, errno.EACCES: DENIED, errno.EPERM: DENIED, errno.EROFS: DENIED}
            self._reply(
                number, STATUS, self._status(codes.get(error.errno or 0, FAILURE), error.strerror or str(error))
            )
        except (ValueError, OverflowError) as error:
            self._reply(number, STATUS, self._status(FAILURE, str(error)))

    @staticmethod
    def _status(code: int, text: str) -> bytes:
        return struct.pack(">I", code) + packed(text.encode("utf-8", "replace")) + packed(b"")

    def _reply(self, number: int, kind: int, body: bytes) -> None:
        self._send(kind, struct.pack(">I", number) + body)

    def _send(self, kind: int, body: bytes) -> None:
        self._writing.write(struct.pack(">IB", len(body) + 1, kind) + body)
        self._writing.flush()

    def _new_handle(self, what: Handle) -> Reply:
        self._count += 1
        handle = b"%d" % self._count
        self._handles[handle] = what
        return HANDLE, packed(handle)

    def _file(self, message: SftpReader) -> int:
        found = self._handles.get(message.text())
        if not isinstance(found, int):
            raise SftpError(FAILURE, "no such open file")
        return found

    def open(self, message: SftpReader) -> Reply:
        path, flags, given = message.text(), message.number(), message.attributes()
        mode = {READ: os.O_RDONLY, WRITE: os.O_WRONLY, READ | WRITE: os.O_RDWR}.get(flags & (READ | WRITE))
        if mode is None:
            raise SftpError(BAD_MESSAGE, "neither reading nor writing")
        for flag, bit in ((APPEND, os.O_APPEND), (CREATE, os.O_CREAT), (TRUNCATE, os.O_TRUNC), (EXCLUSIVE, os.O_EXCL)):
            mode |= bit if flags & flag else 0
        return self._new_handle(os.open(path, mode | os.O_CLOEXEC, given.get("mode", 0o666) & 0o7777))

    def close(self, message: SftpReader) -> None:
        found = self._handles.pop(message.text(), None)
        if found is None:
            raise SftpError(FAILURE, "no such handle")
        if isinstance(found, int):
            os.close(found)

    def read(self, message: SftpReader) -> Reply:
        file, at, count = self._file(message), message.long(), message.number()
        data = os.pread(file, min(count, MOST_READ), at)
        if not data:
            raise SftpError(EOF, "end of file")
        return DATA, packed(data)

    def write(self, message: SftpReader) -> None:
        file, at, data = self._file(message), message.long(), message.text()
        while data:
            written = os.pwrite(file, data, at)
            data, at = data[written:], at + written

    def lstat(self, message: SftpReader) -> Reply:
        return ATTRIBUTES, attributes_of(os.lstat(message.text()))

    def stat(self, message: SftpReader) -> Reply:
        return ATTRIBUTES, attributes_of(os.stat(message.text()))

    def fstat(self, message: SftpReader) -> Reply:
        return ATTRIBUTES, attributes_of(os.fstat(self._file(message)))

    def setstat(self, message: SftpReader) -> None:
        self._set(message.text(), message.attributes())

    def fsetstat(self, message: SftpReader) -> None:
        self._set(self._file(message), message.attributes())

    @staticmethod
    def _set(what: int | bytes, given: dict[str, Any]) -> None:
        if "size" in given:
            os.truncate(what, given["size"])
        if "mode" in given:
            os.chmod(what, given["mode"] & 0o7777)
        if "times" in given:
            os.utime(what, given["times"])
        if "owner" in given:
            os.chown(what, *given["owner"])

    def opendir(self, message: SftpReader) -> Reply:
        path = message.text()
        return self._new_handle((path, [b".", b"..", *sorted(os.listdir(path))]))

    def readdir(self, message: SftpReader) -> Reply:
        found = self._handles.get(message.text())
        if not isinstance(found, tuple):
            raise SftpError(FAILURE, "no such open directory")
        path, names = found
        if not names:
            raise SftpError(EOF, "end of directory")
        now = names[:NAMES_AT_ONCE]
        del names[:NAMES_AT_ONCE]
        entries = []
        for name in now:
            try:
                is_at = os.lstat(os.path.join(path, name))
            except OSError:  # deleted meanwhile
                continue
            entries.append(packed(name) + packed(long_name(name, is_at)) + attributes_of(is_at))
        return NAME, struct.pack(">I", len(entries)) + b"".join(entries)

    def remove(self, message: SftpReader) -> None:
        os.unlink(message.text())

    def mkdir(self, message: SftpReader) -> None:
        path, given = message.text(), message.attributes()
        os.mkdir(path, given.get("mode", 0o777) & 0o7777)

    def rmdir(self, message: SftpReader) -> None:
        os.rmdir(message.text())

    def realpath(self, message: SftpReader) -> Reply:
        path = os.path.realpath(message.text() or b".")
        return NAME, struct.pack(">I", 1) + packed(path) + packed(path) + struct.pack(">I", 0)

    def rename(self, message: SftpReader) -> None:
        old, new = message.text(), message.text()
        if os.path.lexists(new):
            raise SftpError(FAILURE, "the new name exists")
        os.rename(old, new)

    def readlink(self, message: SftpReader) -> Reply:
        path = os.readlink(message.text())
        return NAME, struct.pack(">I", 1) + packed(path) + packed(path) + struct.pack(">I", 0)

    def symlink(self, message: SftpReader) -> None:
        target, path = message.text(), message.text()  # in OpenSSH's order
        os.symlink(target, path)

    def extended(self, message: SftpReader) -> None:
        name = message.text()
        if name == RENAME:
            os.replace(message.text(), message.text())
        elif name == FSYNC:
            os.fsync(self._file(message))
        else:
            raise SftpError(UNSUPPORTED, "not supported")


if __name__ == "__main__":
    Server(sys.stdin.buffer, sys.stdout.buffer).run()
