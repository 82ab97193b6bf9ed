"""Translates errors of file systems and object stores into domain errors, so that callers know what to retry."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.errors import NotFound, TrainyardError, TransientStorageError

# Permanent errors: the path, the permissions or the file type are wrong.
PERMANENT = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.EEXIST}
)


class StorageRefused(TrainyardError):
    """The storage is misconfigured or denies access; retrying does not help."""

    code = "STORAGE_ERROR"


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raises NotFound, TransientStorageError or StorageRefused instead of what the storage raised."""
    try:
        yield
    except TrainyardError:
        raise
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFound(f"the storage has no {what}") from error
    except OSError as error:
        if isinstance(error, PermissionError) or error.errno in PERMANENT:
            raise StorageRefused(f"{what}: the storage refuses: {error}") from error
        raise TransientStorageError(f"{what}: the storage failed, trying again may help: {error}") from error
