"""Names: of fields in errors about a translated document, and of what clients gave only the beginning."""

import secrets
import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from app.domain.errors import InvalidRequest
from app.http.errors import BadShape


@contextmanager
def named_as(names: Mapping[str, str], *, rest: str) -> Iterator[None]:
    """`names`: beginning of a native field → what the dialect calls it; `rest` has all that is not among them."""
    try:
        yield
    except BadShape as error:
        raise BadShape([(_renamed(field, names, rest), message) for field, message in error.details]) from error
    except InvalidRequest as error:
        if error.field is not None:
            error.field = _renamed(error.field, names, rest)
        raise


def _renamed(field: str, names: Mapping[str, str], rest: str) -> str:
    known = [name for name in names if f"{field}.".startswith(f"{name}.")]
    return names[max(known, key=len)] if known else f"{rest}.{field}".rstrip(".")


def ending(length: int) -> str:
    """Of a name that is made from what a client gave of it."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(length))
