"""Uploaded files as data sources: `file-…` instead of a path."""

from app.domain.errors import BadSpec
from app.domain.files.purposes import SOURCES
from app.domain.ids import FILE_ID

UPLOAD = "upload"  # the kind of location
UPLOAD_DIRECTORIES = ("user-files", "upload-parts")  # in a storage; jobs read them by `file-…` alone


def is_upload(location: str) -> bool:
    """Whether a data source is the id of an uploaded file; a file of such a name is reached as `./file-…`."""
    return FILE_ID.fullmatch(location) is not None


def check_purpose(file_id: str, purpose: str, *, field: str) -> None:
    """Refuse a file that was uploaded for something else than data. Raises BadSpec."""
    if purpose not in SOURCES:
        raise BadSpec(
            f"{file_id} was uploaded for {purpose}, and data has the purpose {', '.join(SOURCES)}; upload it again "
            "with one of these",
            field=field,
        )
