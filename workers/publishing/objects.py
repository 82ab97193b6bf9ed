"""A prefix in a bucket of an S3-compatible service: objects are written atomically, and read back for verification."""

import contextlib
import mimetypes
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import s3fs
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from fsspec.callbacks import Callback

from app.storage.failures import PERMANENT
from workers.fetching.addresses import GuardedSockets
from workers.fetching.filesystems import is_denied
from workers.publishing.copying import Arrived, digest_of
from workers.publishing.failures import AlreadyClaimed, NotPublished
from workers.publishing.orders import PublishedFile

BLOCK_BYTES = 8 << 20
PARALLEL_PARTS = 2  # of up to 50 MB each, in memory
PROBE = ".trainyard-probe-"


class ObjectTarget:
    """``root`` is bucket/prefix in an s3fs file system that holds the service's keys, and connects by ``gate``."""

    def __init__(self, files: s3fs.S3FileSystem, root: str, token: str, gate: GuardedSockets | None = None) -> None:
        self._fs = files
        self._gate = gate
        self._root = root.rstrip("/")
        self._probe = PROBE + token

    def check(self) -> None:
        """Check that an object can be written there. Raises NotPublished."""
        with self._explaining():
            self._fs.pipe_file(self._at("", self._probe), b"")
            with contextlib.suppress(Exception):  # some keys may write but not delete; an empty object is left
                self._fs.rm_file(self._at("", self._probe))

    def read(self, folder: str, path: str, most: int) -> bytes | None:
        with self._explaining():
            try:
                return bytes(self._fs.cat_file(self._at(folder, path), start=0, end=most))
            except FileNotFoundError:
                return None

    def is_free(self, folder: str) -> bool:
        with self._explaining():
            try:
                found = self._fs.ls(self._at(folder), detail=False, refresh=True)
            except FileNotFoundError:
                return True
            return all(name.rpartition("/")[2].startswith(PROBE) or name == self._at(folder) + "/" for name in found)

    def claim(self, folder: str, path: str, data: bytes) -> None:
        with self._explaining():
            try:
                self._fs.pipe_file(self._at(folder, path), data, mode="create")
            except FileExistsError:
                raise AlreadyClaimed from None
            except OSError as error:
                if not _does_not_know_conditions(error):
                    raise
                self._fs.pipe_file(self._at(folder, path), data)

    def write(self, folder: str, path: str, data: bytes) -> None:
        with self._explaining():
            self._fs.pipe_file(self._at(folder, path), data)

    def put(self, folder: str, file: PublishedFile, source: BinaryIO, arrived: Arrived) -> None:
        kind, _ = mimetypes.guess_type(file.path)  # s3fs would guess from the descriptor's name
        options = {"ContentType": kind} if kind else {}
        with self._explaining():
            if not source.seekable():
                self._put_stream(self._at(folder, file.path), source, arrived, options)
                return
            self._fs.put_file(
                f"/proc/self/fd/{source.fileno()}",
                self._at(folder, file.path),
                callback=_ProgressCallback(arrived),
                max_concurrency=PARALLEL_PARTS,
                **options,
            )

    def _put_stream(self, key: str, source: BinaryIO, arrived: Arrived, options: Mapping[str, str]) -> None:
        target = self._fs.open(key, "wb", block_size=BLOCK_BYTES, autocommit=False, **options)
        try:
            with target:
                while block := source.read(BLOCK_BYTES):
                    target.write(block)
                    arrived(len(block))
        except BaseException:
            target.discard()
            raise
        target.commit()

    def digest(self, folder: str, path: str, arrived: Arrived) -> tuple[int, str] | None:
        key = self._at(folder, path)
        with self._explaining():
            try:
                size = int(self._fs.info(key, refresh=True)["size"])
            except FileNotFoundError:
                return None
            starts = range(0, size, BLOCK_BYTES)
            blocks = (self._fs.cat_file(key, start=at, end=min(size, at + BLOCK_BYTES)) for at in starts)
            return digest_of(blocks, arrived)

    def remove(self, folder: str, path: str) -> None:
        with self._explaining(), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._at(folder, path))

    def _at(self, *parts: str) -> str:
        return "/".join((self._root, *filter(None, parts)))

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except NoCredentialsError as error:
            raise NotPublished("the service has no keys; have the administrator configure them") from error
        except FileNotFoundError as error:
            bucket = self._root.partition("/")[0]
            raise NotPublished(f"there is no bucket {bucket}; create it, or name another") from error
        except (OSError, ClientError, BotoCoreError, TimeoutError) as error:
            if self._gate is not None and self._gate.refused:
                raise NotPublished(
                    "endpoint_url leads to a private address; have the administrator list its host in "
                    "TRAINYARD_FETCH_ALLOW"
                ) from error
            if is_denied(error):
                raise NotPublished(f"the service refuses: {error}; let its keys write there") from error
            lasting = isinstance(error, OSError) and error.errno in PERMANENT
            raise NotPublished(f"the service failed: {error}", transient=not lasting) from error


class _ProgressCallback(Callback):  # type: ignore[misc]
    """Forwards s3fs's progress."""

    def __init__(self, arrived: Arrived) -> None:
        super().__init__()
        self._arrived = arrived

    def relative_update(self, inc: int = 1) -> None:
        self._arrived(inc)


def _does_not_know_conditions(error: OSError) -> bool:
    cause = error.__cause__
    code = cause.response.get("Error", {}).get("Code", "") if isinstance(cause, ClientError) else ""
    return code in ("NotImplemented", "InvalidArgument", "501")
