"""Uploaded files as data sources, models and code: `file-…` instead of a path; `upload://file-…` is the same."""

from app.domain.errors import BadSpec
from app.domain.files.purposes import DIRECTORY, SOURCES
from app.domain.ids import FILE_ID

UPLOAD = "upload"  # the kind of location
UPLOAD_DIRECTORIES = ("user-files", "upload-parts")  # in a storage; jobs read them by `file-…` alone
SCHEME = "upload://"


def is_upload(location: str) -> bool:
    """Whether a location is the id of an uploaded file; a file of such a name is reached as `./file-…`."""
    return FILE_ID.fullmatch(location) is not None


def without_scheme(location: str) -> str:
    """`file-…` for `upload://file-…`, and any other location as it is. Raises ValueError for no file's id."""
    if not location.lower().startswith(SCHEME):
        return location
    file_id = location[len(SCHEME) :]
    if not is_upload(file_id):
        raise ValueError(
            f"{location[:100]!r} names no uploaded file; the form is upload://file-…, with the id that "
            "`trainyard data push` prints"
        )
    return file_id


def check_purpose(file_id: str, purpose: str, *, field: str) -> None:
    """Refuse a file that was uploaded for something else than data. Raises BadSpec."""
    if purpose not in SOURCES:
        raise BadSpec(
            f"{file_id} was uploaded for {purpose}, and data has the purpose {', '.join(SOURCES)}; upload it again "
            "with one of these",
            field=field,
        )


def check_directory(file_id: str, purpose: str, *, field: str) -> None:
    """Refuse a file as code or model that is no archive of a directory. Raises BadSpec."""
    if purpose != DIRECTORY:
        raise BadSpec(
            f"{file_id} was uploaded for {purpose}, and code or a model is an archive of the purpose {DIRECTORY}; "
            "upload it with `trainyard data push DIR`",
            field=field,
        )
