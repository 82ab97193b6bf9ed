"""Errors about an image name the field of the job document that it comes from: the job's, or a role's."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.spec.locations.images import FIELD
from workers.attempt_failed import AttemptFailed

_IMAGE = FIELD.removesuffix(".reference")  # begins the messages about images


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Have errors about `resource_config.image` name ``field``, which ends with FIELD, in its place."""
    try:
        yield
    except AttemptFailed as failure:
        if not failure.message.startswith(_IMAGE):
            raise
        message = f"{field.removesuffix(FIELD)}{failure.message}"
        raise AttemptFailed(failure.error_type, message, failure.stack) from failure
