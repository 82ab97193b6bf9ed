"""Turns what file systems and object stores raise into the errors of the domain, so that callers know what to retry."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.errors import NotFound, TrainyardError, TransientStorageError

# Asking again cannot help: the path, the rights or the kind of the file are wrong.
LASTING = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.EEXIST}
)


class StorageRefused(TrainyardError):
    """The storage is configured wrong or refuses us; retrying does not help."""

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
        if isinstance(error, PermissionError) or error.errno in LASTING:
            raise StorageRefused(f"{what}: the storage refuses: {error}") from error
        raise TransientStorageError(f"{what}: the storage failed, trying again may help: {error}") from error
